"""Nodes of a cluster in one process, on a real NATS server: what a wrong state and a wrong clock lead to."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from headwater.cli.composition import open_member
from headwater.node.clock import Clock
from headwater.node.cluster.shared_shard import SharedShard
from headwater.node.committer import ask
from headwater.node.node import Node
from headwater.protocol.refusals import Code, Refusal
from headwater.settings import Settings
from headwater.streams.commands.cluster import Checkpoint
from headwater.streams.commands.streams import Append, Create
from headwater.streams.replies import Appended, Created
from headwater.testing.nats import NatsServers, running_nats

LOG_BYTES = 64 * 1024 * 1024
WAIT_SECONDS = 60.0
SECOND_US = 1_000_000


@pytest.fixture(scope="module")
def nats() -> Iterator[NatsServers]:
    with running_nats(1) as servers:
        yield servers


class OffsetClock(Clock):
    """A clock that is off by so much."""

    offset_us = 0

    def now(self) -> int:
        return super().now() + self.offset_us


class Member:
    """One node, which can be restarted."""

    def __init__(self, settings: Settings, name: str) -> None:
        self._settings, self._name = settings, name
        self.clock = OffsetClock()
        self.node: Node | None = None

    @property
    def shard(self) -> SharedShard:
        assert self.node is not None
        shard = self.node.only
        assert isinstance(shard, SharedShard)
        return shard

    async def start(self) -> None:
        self.node = await asyncio.to_thread(open_member, self._settings, self._name, self.clock)
        self.node.start()

    async def stop(self) -> None:
        if self.node is not None:
            node, self.node = self.node, None
            await node.stop()

    @property
    def serves(self) -> bool:
        return self.shard.outage is None

    async def append(self, name: str) -> object:
        return await asyncio.wait_for(
            ask(self.shard.submit, Append(name, b"x", content_type="text/plain")), WAIT_SECONDS
        )


@asynccontextmanager
async def members(settings: Settings, count: int) -> AsyncIterator[list[Member]]:
    all_members = [Member(settings, f"n{number}") for number in range(1, count + 1)]
    try:
        yield all_members
    finally:
        for member in all_members:
            await member.stop()


def run(nats: NatsServers, folder: Path, count: int, use: Callable[[list[Member]], Awaitable[None]]) -> None:
    """Use so many members of a new cluster, none of which has been started."""
    name = "".join(letter for letter in folder.name.replace("_", "-") if letter.isalnum() or letter == "-")[-20:]
    settings = Settings(
        cluster=nats.url, cluster_name=f"c{name}", cluster_log_bytes=LOG_BYTES, lake=str(folder / "lake")
    )

    async def main() -> None:
        async with members(settings, count) as started:
            await use(started)

    asyncio.run(main())


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not condition():
            await asyncio.sleep(0.01)


# -- State -------------------------------------------------------------------------------------------------------------


def test_a_node_whose_state_differs_stops_the_cluster_until_it_is_restarted(nats: NatsServers, tmp_path: Path) -> None:
    async def use(found: list[Member]) -> None:
        good, other, bad = found
        for member in found:
            await member.start()
        await until(lambda: all(member.serves for member in found))
        assert isinstance(await ask(good.shard.submit, Create("s", "text/plain")), Created)
        await until(lambda: "s" in bad.shard.state.streams)
        await ask(good.shard.submit, Checkpoint("alike"))
        await until(lambda: all(peer.digest[0] == "alike" for peer in good.shard.command_log.peers.values()))  # type: ignore[attr-defined]
        assert all(member.serves for member in found)

        del bad.shard.state.streams["s"]
        await ask(good.shard.submit, Checkpoint("differing"))
        await until(lambda: not any(member.serves for member in found))
        said = good.shard.outage
        assert said is not None and said.startswith("The nodes n1 and n3 differ in what they hold at checkpoint")
        reply = await good.append("s")
        assert isinstance(reply, Refusal) and reply.code is Code.LOG_UNAVAILABLE

        await bad.stop()
        await bad.start()
        await until(lambda: all(member.serves for member in found))
        assert isinstance(await bad.append("s"), Appended)
        assert other.serves

    run(nats, tmp_path, 3, use)


# -- Clocks ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("offset_seconds", "said"), [(-10, "behind"), (10, "ahead of")])
def test_a_node_with_a_wrong_clock_does_not_serve_until_it_is_right(
    nats: NatsServers, tmp_path: Path, offset_seconds: int, said: str
) -> None:
    async def use(found: list[Member]) -> None:
        good, other, wrong = found
        await good.start()
        await other.start()
        await until(lambda: good.serves and other.serves)
        await ask(good.shard.submit, Create("s", "text/plain"))
        wrong.clock.offset_us = offset_seconds * SECOND_US
        await wrong.start()
        await until(lambda: f"s {said} the cluster's; set it" in str(wrong.shard.outage))
        reply = await wrong.append("s")
        assert isinstance(reply, Refusal) and reply.code is Code.LOG_UNAVAILABLE
        # The others are not disturbed: the log's time is not that of the wrong clock.
        await asyncio.sleep(1)
        assert (good.shard.outage, other.shard.outage) == (None, None)
        assert isinstance(await good.append("s"), Appended)
        assert "n3" not in good.shard.state.cluster.members
        wrong.clock.offset_us = 0
        await until(lambda: wrong.serves)
        assert isinstance(await wrong.append("s"), Appended)

    run(nats, tmp_path, 3, use)


def test_a_member_whose_clock_goes_wrong_stops_serving_and_heals(nats: NatsServers, tmp_path: Path) -> None:
    async def use(found: list[Member]) -> None:
        for member in found:
            await member.start()
        await until(lambda: all(member.serves for member in found))
        wrong = found[2]
        wrong.clock.offset_us = -10 * SECOND_US
        await until(lambda: "s behind the cluster's; set it" in str(wrong.shard.outage))
        assert found[0].serves and found[1].serves
        wrong.clock.offset_us = 0
        await until(lambda: all(member.serves for member in found))

    run(nats, tmp_path, 3, use)
