"""A log on three NATS servers while these are killed, paused and restarted."""

import asyncio
from collections.abc import Callable

import pytest

from headwater.log.jetstream import health
from headwater.streams.commands.streams import Append
from headwater.testing.nats import NatsServer, NatsServers

from .nodes import Cluster, Node, until


async def write(nodes: list[Node], stop: asyncio.Event) -> int:
    """Append on all nodes, one batch at a time on each, until told to stop; return how many were acknowledged."""

    async def one(number: int, node: Node) -> int:
        done = 0
        while not stop.is_set():
            await node.append([Append(f"n{number}", b"%d" % done)])
            done += 1
        return done

    return sum(await asyncio.gather(*(one(number, node) for number, node in enumerate(nodes))))


def check_agreement(nodes: list[Node], acknowledged: int) -> None:
    """Every node has the same batches, and each node's appends exactly once, in order."""
    assert all(node.batches == nodes[0].batches for node in nodes)
    for number in range(len(nodes)):
        name = f"n{number}"
        own = [int(one.payload) for batch in nodes[0].batches for one in batch.commands if one.name == name]  # type: ignore[attr-defined]
        assert own == list(range(len(own)))
    assert sum(len(batch.commands) for batch in nodes[0].batches) == acknowledged


def with_faults(cluster: Cluster, break_something: Callable[[], None], heal: Callable[[], None]) -> list[Node]:
    """Write on three nodes before, during and after a fault, and check that nothing is lost, doubled or different."""
    nodes = [Node(cluster.open()) for _ in range(3)]

    async def main() -> None:
        for node in nodes:
            node.start()
        stop = asyncio.Event()
        writing = asyncio.create_task(write(nodes, stop))
        loop = asyncio.get_running_loop()
        for step in (break_something, heal):
            before = len(nodes[0].batches)
            await until(lambda: len(nodes[0].batches) > before + 30)  # noqa: B023
            await loop.run_in_executor(None, step)
        after = len(nodes[0].batches)
        await until(lambda: all(len(node.batches) > after + 30 for node in nodes))
        stop.set()
        acknowledged = await writing
        await until(lambda: all(sum(len(b.commands) for b in node.batches) == acknowledged for node in nodes))
        for node in nodes:
            await node.stop()
        check_agreement(nodes, acknowledged)

    asyncio.run(main())
    return nodes


def server_kinds(servers: NatsServers, stream: str) -> dict[str, list[NatsServer]]:
    return {"leader": [servers.leader_of(stream)], "follower": servers.followers_of(stream)[:1], "all": servers.servers}


@pytest.mark.parametrize("which", ["leader", "follower", "all"])
def test_nothing_is_lost_doubled_or_reordered_when_nats_servers_are_killed(
    cluster_of_three: Cluster, which: str
) -> None:
    servers = cluster_of_three.servers
    killed: list[NatsServer] = []

    def kill() -> None:
        killed[:] = server_kinds(servers, cluster_of_three.stream)[which]
        for server in killed:
            server.kill()
        if which == "all":
            servers.start()

    def restart() -> None:
        servers.start()
        servers.wait_ready()

    with_faults(cluster_of_three, kill, restart)
    assert killed


@pytest.mark.parametrize("which", ["leader", "follower"])
def test_nothing_is_lost_doubled_or_reordered_when_a_nats_server_is_paused(
    cluster_of_three: Cluster, which: str
) -> None:
    servers = cluster_of_three.servers
    paused: list[NatsServer] = []

    def pause() -> None:
        paused[:] = server_kinds(servers, cluster_of_three.stream)[which]
        for server in paused:
            server.pause()

    def resume() -> None:
        for server in paused:
            server.resume()

    with_faults(cluster_of_three, pause, resume)


def test_without_a_majority_there_is_an_outage_that_ends_with_it(
    cluster_of_three: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "SWITCH_SECONDS", 0.3)
    monkeypatch.setattr(health, "OUTAGE_SECONDS", 1.0)
    servers = cluster_of_three.servers
    node = Node(cluster_of_three.open())

    async def main() -> None:
        node.start()
        await node.append([Append("a", b"1")])
        for server in servers.servers[:2]:
            server.kill()
        waiting = node.append([Append("a", b"2")])
        await until(lambda: node.log.outage == health.STALLED)
        assert not await node.barrier()
        servers.start()
        await waiting
        await until(lambda: node.log.outage is None)
        assert await node.barrier()
        await node.stop()

    asyncio.run(main())
    assert [one.payload for batch in node.batches for one in batch.commands] == [b"1", b"2"]  # type: ignore[attr-defined]


def test_a_node_that_starts_from_a_mark_continues_where_its_state_ends(cluster: Cluster) -> None:
    first = Node(cluster.open())
    marks: list[tuple[int, bytes]] = []

    async def main() -> None:
        first.start()
        for number in range(20):
            await first.append([Append("a", b"x" * 300_000 if number == 9 else b"%d" % number)])
            marks.append((number + 1, first.log.mark()))
        await first.stop()

    asyncio.run(main())
    for position, mark in marks:
        again = cluster.open(mark)
        assert list(again.replay(position)) == first.batches[position:]
        assert again.mark()[:3] == marks[-1][1][:3]
        assert again.applied == first.log.applied
