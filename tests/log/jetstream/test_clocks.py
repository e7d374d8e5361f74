"""A node with a wrong clock, among others whose clocks are right."""

import asyncio
from collections.abc import Callable

from headwater.node.chores.imager import ImageLimits
from headwater.node.clock import Clock
from headwater.node.cluster.keeping import NodeId
from headwater.node.cluster.membership import Profile
from headwater.node.cluster.shared_shard import SharedShard
from headwater.node.committer import ask
from headwater.node.lake.parts import LakeLimits
from headwater.node.node import Node
from headwater.node.shard_parts import ShardLimits, ShardParts
from headwater.protocol.lifetimes import Lifetime
from headwater.storage.blobs import MemoryBlobs
from headwater.streams.apply import apply
from headwater.streams.commands.command import LEVEL
from headwater.streams.commands.streams import Append, Create, Touch
from headwater.streams.replies import Appended, Created
from headwater.streams.state import State

from .nodes import Cluster, until

HOUR_US = 3_600_000_000
LIMITS = ShardLimits(ImageLimits(1 << 40), lake=LakeLimits())
TEXT = "text/plain"


class Ahead(Clock):
    """A clock that is an hour ahead."""

    def now(self) -> int:
        return super().now() + HOUR_US


def open_member(cluster: Cluster, name: str, clock: Clock) -> Node:
    """A whole node, but for its images and its lake."""
    log = cluster.open(node=name, clock=clock.now)
    state = State(log.log_id)
    for batch in log.replay(0):
        apply(state, batch)
    identity = NodeId(name, log.config.session)
    node = Node([ShardParts(state, log, None, MemoryBlobs(), identity)], limits=LIMITS, clock=clock)
    assert isinstance(node.only, SharedShard)
    node.only.join(Profile(identity, "", LEVEL), log)
    return node


def test_a_node_whose_clock_is_ahead_moves_nobody_elses_time(cluster: Cluster) -> None:
    async def main() -> None:
        right = open_member(cluster, "n1", Clock())
        right.start()
        await until(lambda: right.outage is None)
        sliding = Lifetime(ttl_seconds=1_000_000)
        assert isinstance(await ask(right.submit, Create("a", TEXT, sliding)), Created)

        wrong = open_member(cluster, "n2", Ahead())
        wrong.start()
        await until(lambda: "clock is 3600 s ahead" in (wrong.outage or ""))
        stream = wrong.only.state.streams["a"]
        wrong.submit(Touch("a", stream.incarnation, wrong.now()), lambda _: None)  # It waits for the right time.
        await _barrier(wrong)
        await asyncio.sleep(2.5)  # The chores are asked for once a second.
        assert right.only.state.now < Clock().now() + HOUR_US // 2
        assert set(right.only.state.cluster.members) == {"n1"}
        assert isinstance(await ask(right.submit, Append("a", b"x", content_type=TEXT)), Appended)
        for node in (wrong, right):
            await node.stop()

    asyncio.run(main())


async def _barrier(node: Node) -> None:
    """Have a message without commands go through the log, which is what is left when members do not answer."""
    log: object = node.only.command_log
    send: Callable[[Callable[[], None]], None] = log._send_barrier  # type: ignore[attr-defined]
    arrived = asyncio.Event()
    send(arrived.set)
    await asyncio.wait_for(arrived.wait(), 10)
