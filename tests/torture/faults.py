"""The faults: each does its harm for some seconds; the cluster is made whole after each."""

import asyncio
import random
from collections.abc import Awaitable, Callable

from .nodes import TorturedCluster, TorturedNode

STREAM = "headwater-0"

Fault = Callable[[TorturedCluster, random.Random], Awaitable[None]]


def _some(cluster: TorturedCluster, chance: random.Random) -> list[TorturedNode]:
    return chance.sample(cluster.nodes, chance.randint(1, len(cluster.nodes) - 1))


async def kill_a_node(cluster: TorturedCluster, chance: random.Random) -> None:
    chance.choice(cluster.nodes).kill()
    await asyncio.sleep(chance.uniform(0.2, 7))


async def kill_some_nodes(cluster: TorturedCluster, chance: random.Random) -> None:
    for node in _some(cluster, chance):
        node.kill()
    await asyncio.sleep(chance.uniform(0.2, 3))


async def kill_all_nodes(cluster: TorturedCluster, chance: random.Random) -> None:
    for node in cluster.nodes:
        node.kill()
    await asyncio.sleep(chance.uniform(0.2, 2))


async def restart_a_node(cluster: TorturedCluster, chance: random.Random) -> None:
    """As a rolling upgrade does: SIGTERM, then a start."""
    node = chance.choice(cluster.nodes)
    node.terminate()
    await node.ended()


async def pause_a_node(cluster: TorturedCluster, chance: random.Random) -> None:
    chance.choice(cluster.nodes).pause()
    await asyncio.sleep(chance.uniform(0.5, 8))


async def cut_a_node_off(cluster: TorturedCluster, chance: random.Random) -> None:
    """From every NATS server; clients still reach it."""
    for link in chance.choice(cluster.nodes).links:
        link.cut()
    await asyncio.sleep(chance.uniform(0.5, 8))


async def stall_a_node(cluster: TorturedCluster, chance: random.Random) -> None:
    """Its connections to NATS stay open, and nothing passes."""
    for link in chance.choice(cluster.nodes).links:
        link.stall()
    await asyncio.sleep(chance.uniform(0.5, 8))


async def slow_a_node(cluster: TorturedCluster, chance: random.Random) -> None:
    for link in chance.choice(cluster.nodes).links:
        link.delay_seconds = chance.uniform(0.01, 0.2)
    await asyncio.sleep(chance.uniform(1, 5))


async def kill_the_nats_leader(cluster: TorturedCluster, chance: random.Random) -> None:
    leader = await asyncio.to_thread(cluster.nats.leader_of, STREAM)
    leader.kill()
    await asyncio.sleep(chance.uniform(1, 8))


async def kill_a_nats_follower(cluster: TorturedCluster, chance: random.Random) -> None:
    followers = await asyncio.to_thread(cluster.nats.followers_of, STREAM)
    chance.choice(followers).kill()
    await asyncio.sleep(chance.uniform(1, 5))


async def kill_all_of_nats(cluster: TorturedCluster, chance: random.Random) -> None:
    cluster.nats.kill()
    await asyncio.sleep(chance.uniform(0.5, 3))


async def pause_the_nats_leader(cluster: TorturedCluster, chance: random.Random) -> None:
    leader = await asyncio.to_thread(cluster.nats.leader_of, STREAM)
    leader.pause()
    await asyncio.sleep(chance.uniform(1, 6))


FAULTS: tuple[Fault, ...] = (
    kill_a_node,
    kill_the_nats_leader,
    pause_a_node,
    stall_a_node,
    kill_all_nodes,
    cut_a_node_off,
    kill_a_nats_follower,
    restart_a_node,
    pause_the_nats_leader,
    kill_all_of_nats,
    kill_some_nodes,
    slow_a_node,
)
