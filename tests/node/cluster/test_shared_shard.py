"""Several nodes on one log: fresh answers, the order of writes, the chores, and what happens when the log is away."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple

import pytest

from headwater.lake.iceberg.streams import read_streams
from headwater.log.seam import MarkDamaged, Marked
from headwater.node import committer
from headwater.node.chores.imager import ImageLimits
from headwater.node.cluster import keeping, membership
from headwater.node.cluster.keeping import NodeId
from headwater.node.cluster.membership import Profile
from headwater.node.cluster.shared_shard import SharedShard
from headwater.node.committer import ask
from headwater.node.lake.flusher import FlushFailed
from headwater.node.lake.parts import LakeLimits
from headwater.node.node import Node
from headwater.node.shard_parts import ShardLimits, ShardParts
from headwater.prometheus import Metric
from headwater.protocol.lifetimes import FOREVER, Lifetime
from headwater.protocol.refusals import Code, Refusal
from headwater.storage.blobs import MemoryBlobs
from headwater.storage.memory import MemoryStore
from headwater.streams.commands import Command
from headwater.streams.commands.cluster import Evict, Join, Keep, RaiseLevel
from headwater.streams.commands.command import LEVEL
from headwater.streams.commands.streams import Append, Create, Delete
from headwater.streams.images import image_of
from headwater.streams.queries import Read
from headwater.streams.replies import Appended, ClosedOnly, Created, Deleted, Done, Page, Reply
from headwater.streams.state import State

from ...doubles.shared_log import Proposer, SharedLog

LOG_ID = "9f2c"
TEXT = "text/plain"
LIMITS = ShardLimits(ImageLimits(1 << 40), lake=LakeLimits())


class Replica:
    """One node of several on one log."""

    def __init__(self, name: str, log: SharedLog, store: MemoryStore, proposer: Proposer | None = None) -> None:
        self.log = proposer or log.proposer()
        parts = ShardParts(State(LOG_ID), self.log, None, MemoryBlobs(), NodeId(name, f"session of {name}"))
        self.node = Node([parts], limits=LIMITS, store=store)
        shard = self.node.only
        assert isinstance(shard, SharedShard)
        self.shard, self.state, self.submit = shard, shard.state, self.node.submit
        if isinstance(self.log, MemberProposer):
            shard.join(Profile(shard.node, "", LEVEL), self.log)
        self.node.start()

    async def ask(self, command: Command) -> Reply:
        return await asyncio.wait_for(ask(self.submit, command), 10)

    def begin(self, command: Command) -> "asyncio.Task[Reply]":
        return asyncio.get_running_loop().create_task(self.ask(command))

    @property
    def keeps(self) -> bool:
        return self.shard.chores is not None


@asynccontextmanager
async def replicas(count: int = 2) -> AsyncIterator[tuple[SharedLog, list[Replica]]]:
    log, store = SharedLog(LOG_ID), MemoryStore()
    started = [Replica(f"n{number}", log, store) for number in range(count)]
    try:
        yield log, started
    finally:
        for replica in started:
            await replica.node.stop()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time-outs that a test can wait for."""
    monkeypatch.setattr(committer, "OUTCOME_SECONDS", 0.1)
    monkeypatch.setattr(committer, "CHECK_SECONDS", 0.02)


@pytest.fixture
def brief(impatient: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leases that a test can wait for, too."""
    monkeypatch.setattr(keeping, "RENEW_SECONDS", 0.02)
    monkeypatch.setattr(keeping, "LEASE_SECONDS", 0.3)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.001)


def append(name: str, payload: bytes) -> Append:
    return Append(name, payload, content_type=TEXT)


def refused(reply: Reply) -> Code | None:
    return reply.code if isinstance(reply, Refusal) else None


def test_nodes_serve_each_others_streams() -> None:
    async def main() -> None:
        async with replicas() as (_, (first, second)):
            assert isinstance(await first.ask(Create("a", TEXT)), Created)
            await until(lambda: "a" in second.state.streams)
            assert isinstance(await second.ask(append("a", b"from the second")), Appended)
            await until(lambda: first.state.position == second.state.position)
            page = first.node.read(Read("a"))
            assert isinstance(page, Page)
            assert page.body == b"from the second"
            assert image_of(first.state) == image_of(second.state)

    asyncio.run(main())


def test_an_append_to_a_stream_that_another_node_has_just_created_is_not_refused() -> None:
    async def main() -> None:
        async with replicas() as (_, (first, second)):
            second.log.lag()
            await first.ask(Create("a", TEXT))
            appended = second.begin(append("a", b"1"))
            await asyncio.sleep(0.02)
            assert not appended.done(), "it waits for the barrier"
            second.log.catch_up()
            assert isinstance(await appended, Appended)
            assert refused(await second.ask(append("b", b"1"))) is Code.STREAM_NOT_FOUND

    asyncio.run(main())


def test_writes_on_a_name_keep_their_order_behind_a_held_answer() -> None:
    async def main() -> None:
        async with replicas() as (_, (first, second)):
            second.log.lag()
            await first.ask(Create("other", TEXT))
            writes: list[Command] = [
                append("a", b"too early"),
                Create("a", TEXT),
                append("a", b"1"),
                Append("a", b"", close=True),
                append("a", b"too late"),
                Delete("a"),
                append("a", b"gone"),
                Create("a", TEXT, payload=b"2"),
            ]
            replies = [second.begin(write) for write in writes]
            await asyncio.sleep(0.02)
            assert not any(reply.done() for reply in replies)
            second.log.catch_up()
            kinds = [type(reply) if refused(reply) is None else refused(reply) for reply in [await r for r in replies]]
            assert kinds == [
                Code.STREAM_NOT_FOUND,
                Created,
                Appended,
                ClosedOnly,
                Code.STREAM_CLOSED,
                Deleted,
                Code.STREAM_NOT_FOUND,
                Created,
            ]
            assert second.shard.committer.queued_bytes == 0
            page = second.node.read(Read("a"))
            assert isinstance(page, Page)
            assert page.body == b"2"

    asyncio.run(main())


def test_without_a_barrier_nothing_is_decided_and_the_client_is_told() -> None:
    async def main() -> None:
        async with replicas() as (_, (first, second)):
            second.log.lag()
            await first.ask(Create("a", TEXT))
            waiting = [second.begin(append("a", b"1")), second.begin(Create("a", TEXT))]
            await asyncio.sleep(0.02)
            second.log.fail_barriers()
            assert [refused(await reply) for reply in waiting] == [Code.LOG_UNAVAILABLE] * 2
            second.log.catch_up()
            assert isinstance(await second.ask(append("a", b"2")), Appended)
            assert second.state.streams["a"].tail == 1

    asyncio.run(main())


def test_while_the_log_is_away_writes_are_refused_and_change_nothing(impatient: None) -> None:
    async def main() -> None:
        async with replicas() as (log, nodes):
            first = nodes[0]
            await first.ask(Create("a", TEXT))
            for node in nodes:  # Nothing else is in flight.
                assert node.shard.keeping is not None
                await node.shard.keeping.stop()
            await until(lambda: log.in_flight == 0)
            log.hold()
            in_flight = first.begin(append("a", b"1"))
            await asyncio.sleep(0.01)
            queued = first.begin(append("a", b"2"))
            await asyncio.sleep(0)
            first.log.outage = "The log is away."
            assert await first.ask(append("a", b"3")) == Refusal(Code.LOG_UNAVAILABLE, "The log is away.")
            assert refused(await queued) is Code.LOG_UNAVAILABLE
            assert refused(await in_flight) is Code.OUTCOME_UNKNOWN
            first.log.outage = None
            log.release()
            assert isinstance(await first.ask(append("a", b"4")), Appended)
            page = first.node.read(Read("a"))
            assert isinstance(page, Page)
            assert page.body == b"14", "what was unknown happened, what was refused did not"

    asyncio.run(main())


def test_a_late_delete_does_not_end_a_stream_that_was_created_again() -> None:
    async def main() -> None:
        async with replicas() as (_, (first, second)):
            await first.ask(Create("a", TEXT))
            await until(lambda: "a" in second.state.streams)
            second.log.lag()
            await first.ask(Delete("a"))
            await first.ask(Create("a", TEXT, payload=b"new"))
            late = second.begin(Delete("a", second.state.streams["a"].incarnation))
            again = second.begin(Delete("a"))
            await asyncio.sleep(0.02)
            second.log.catch_up()
            assert refused(await late) is Code.INCARNATION_CHANGED
            assert isinstance(await again, Deleted), "a client that names no incarnation means the present one"

    asyncio.run(main())


def test_a_node_that_is_no_member_keeps_its_answers_to_itself(brief: None) -> None:
    async def main() -> None:
        async with replicas() as (_, (first, _)):
            await first.ask(Create("a", TEXT))
            first.shard.committer.may_answer = False
            withheld = first.begin(append("a", b"1"))
            await until(lambda: first.state.streams["a"].tail == 1)
            assert await first.ask(Keep("other", "other", 1)) is not None, "chores are answered"
            assert not withheld.done()
            first.shard.committer.may_answer = True
            assert isinstance(await withheld, Appended)
            first.shard.committer.may_answer = False
            assert refused(await first.ask(append("a", b"2"))) is Code.OUTCOME_UNKNOWN

    asyncio.run(main())


def test_a_delete_that_is_aimed_again_is_not_overtaken_by_later_writes() -> None:
    async def main() -> None:
        async with replicas() as (_, (first, second)):
            await first.ask(Create("a", TEXT))
            await until(lambda: "a" in second.state.streams)
            second.log.lag()
            await first.ask(Delete("a"))
            await first.ask(Create("a", TEXT, payload=b"new"))
            writes: list[Command] = [Delete("a"), append("a", b"1"), Create("a", TEXT, payload=b"2"), append("a", b"3")]
            replies = [second.begin(write) for write in writes]
            await asyncio.sleep(0.02)
            second.log.catch_up()
            kinds = [type(reply) if refused(reply) is None else refused(reply) for reply in [await r for r in replies]]
            assert kinds == [Deleted, Code.STREAM_NOT_FOUND, Created, Appended]
            page = second.node.read(Read("a"))
            assert isinstance(page, Page)
            assert page.body == b"23"
            assert second.shard.committer.queued_bytes == 0

    asyncio.run(main())


class Heard(NamedTuple):
    """A peer that is heard, and has applied everything."""

    session: str
    applied: int = 1 << 40
    known: int = 1 << 40
    clock_offset_us: int = 0
    heard_at: float = float("inf")


class MemberProposer(Proposer):
    """A proposer whose node hears all others."""

    members: Mapping[str, str] = {}
    applied = known = 0
    peers: Mapping[str, Heard] = {"n0": Heard("session of n0")}

    def clock_offset_us(self) -> int:
        return 0

    def metrics(self) -> list[Metric]:
        return []

    def compare(self, checkpoint: str, sha256: str) -> None:
        """Tells no other node."""

    def read_mark(self, mark: bytes) -> Marked:
        raise MarkDamaged("there are no images")

    async def describe(self) -> None:
        return None


def test_a_node_that_is_evicted_while_it_waits_for_a_barrier_does_not_answer() -> None:
    async def main() -> None:
        async with replicas(1) as (log, (first,)):
            proposer = MemberProposer(log)
            second = Replica("n1", log, MemoryStore(), proposer)
            await until(lambda: second.node.outage is None)
            proposer.lag()
            await first.ask(Evict("n1", "session of n1"))
            fresh: list[bool] = []
            second.node.barrier(fresh.append)
            assert not fresh
            proposer.catch_up()
            assert fresh == [False], "it is no member at the position that it has reached"
            await until(lambda: second.node.outage is None)
            second.node.barrier(fresh.append)
            await until(lambda: fresh == [False, True])
            await second.node.stop()

    asyncio.run(main())


def test_a_joiner_is_not_confirmed_by_another_process_of_a_members_name() -> None:
    async def main() -> None:
        async with replicas(1) as (log, (first,)):
            await first.ask(Join("n0", "former session of n0", "", LEVEL))
            second = Replica("n1", log, MemoryStore(), MemberProposer(log))
            await until(lambda: "n1" in second.state.cluster.members)
            await asyncio.sleep(0.3)
            assert second.node.outage is not None, "the former process of n0 may still answer, and not ask this node"
            await first.ask(Join("n0", "session of n0", "", LEVEL))
            await until(lambda: second.node.outage is None)
            await second.node.stop()

    asyncio.run(main())


def test_a_member_is_evicted_although_another_process_of_its_name_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "SILENT_SECONDS", 0.5)

    async def main() -> None:
        async with replicas(1) as (log, (first,)):
            await first.ask(Join("n0", "former session of n0", "", LEVEL))
            await until(lambda: first.keeps)
            assert first.shard.keeping is not None
            await first.shard.keeping.stop()
            second = Replica("n1", log, MemoryStore(), MemberProposer(log))
            await until(lambda: second.node.outage is None)
            assert set(second.state.cluster.members) == {"n1"}
            await second.node.stop()

    asyncio.run(main())


def test_a_node_that_was_paused_or_cut_off_evicts_nobody_it_could_not_hear(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "SILENT_SECONDS", 1.2)

    async def main() -> None:
        async with replicas(1) as (log, (first,)):
            await first.ask(Join("n0", "session of n0", "", LEVEL))
            proposer = MemberProposer(log)
            second = Replica("n1", log, MemoryStore(), proposer)
            await until(lambda: second.node.outage is None)

            def pulse() -> None:
                proposer.peers = {"n0": Heard("session of n0", heard_at=time.monotonic())}

            pulse()
            time.sleep(1.5)  # The whole process stands still.
            await asyncio.sleep(0.3)
            pulse()
            proposer.outage = "The log is away."
            await asyncio.sleep(1.5)
            proposer.outage = None
            await asyncio.sleep(0.3)
            pulse()
            assert set(second.state.cluster.members) == {"n0", "n1"}
            await until(lambda: set(second.state.cluster.members) == {"n1"})
            await second.node.stop()

    asyncio.run(main())


# -- Chores -----------------------------------------------------------------------------------------------------------


def test_one_node_does_the_chores_and_another_takes_over_when_it_stops(brief: None) -> None:
    async def main() -> None:
        async with replicas(3) as (_, nodes):
            await until(lambda: any(node.keeps for node in nodes))
            await asyncio.sleep(0.1)
            [keeper] = [node for node in nodes if node.keeps]
            keeper_of_state = keeper.state.cluster.keeper
            assert keeper_of_state is not None
            assert keeper_of_state.node == keeper.shard.node.name
            assert keeper.shard.keeping is not None
            await keeper.shard.keeping.stop()
            assert not keeper.keeps
            await until(lambda: any(node.keeps for node in nodes))
            [successor] = [node for node in nodes if node.keeps]
            assert successor is not keeper
            assert successor.state.cluster.keeper is not None
            assert successor.state.cluster.keeper.epoch > keeper_of_state.epoch

    asyncio.run(main())


def test_a_keeper_that_falls_behind_stops_the_chores_and_its_publications_are_refused(brief: None) -> None:
    async def main() -> None:
        async with replicas() as (_, nodes):
            await until(lambda: any(node.keeps for node in nodes))
            [keeper] = [node for node in nodes if node.keeps]
            [other] = [node for node in nodes if node is not keeper]
            await keeper.ask(Create("b/a", TEXT, payload=b"1"))
            assert keeper.shard.lake is not None and keeper.shard.lake.housekeeping is not None
            housekeeping = keeper.shard.lake.housekeeping
            keeper.log.lag()
            await until(lambda: other.keeps and not keeper.keeps)
            keeper.log.catch_up()
            with pytest.raises((FlushFailed, RuntimeError)):
                await housekeeping.flush()
            assert not keeper.keeps
            assert other.shard.lake is not None
            await asyncio.wait_for(other.shard.lake.flush(), 10)
            assert other.state.cold.rows == 1

    asyncio.run(main())


def test_a_flush_is_asked_of_the_node_that_does_the_chores(brief: None) -> None:
    async def main() -> None:
        async with replicas() as (_, nodes):
            await until(lambda: any(node.keeps for node in nodes))
            [other] = [node for node in nodes if not node.keeps]
            assert isinstance(await other.ask(Create("b/a", TEXT, payload=b"1")), Created)
            assert other.shard.lake is not None
            position = await asyncio.wait_for(other.shard.lake.flush(), 10)
            assert position >= other.state.streams["b/a"].incarnation
            assert other.state.cold.rows == 1
            assert other.state.hot_bytes == 0

    asyncio.run(main())


def test_all_tables_are_asked_of_the_node_that_does_the_chores(brief: None) -> None:
    async def main() -> None:
        async with replicas() as (_, nodes):
            await until(lambda: any(node.keeps for node in nodes))
            [other] = [node for node in nodes if not node.keeps]
            assert isinstance(await other.ask(Create("b/a", TEXT, payload=b"1")), Created)
            lake = other.shard.lake
            assert lake is not None
            # A usual flush that is under way must not answer for the tables.
            await asyncio.wait_for(asyncio.gather(lake.flush(), lake.flush(all_tables=True)), 10)
            found = read_streams(lake.store)
            assert found is not None
            assert [table["stream"].to_pylist() for table in found[1]] == [["a"]]
            # A member of an older version might be asked for what it does not know.
            assert await other.ask(Join("n9", "session of n9", "", 2)) == Done()
            with pytest.raises(FlushFailed, match="older version"):
                await lake.flush(all_tables=True)
            assert await other.ask(Join("n9", "another session of n9", "", LEVEL, 1)) == Done()
            assert await other.ask(RaiseLevel(LEVEL)) == Done()
            await asyncio.wait_for(lake.flush(all_tables=True), 10)

    asyncio.run(main())


def test_a_stream_that_another_node_created_expires_also_when_that_node_has_gone(brief: None) -> None:
    async def main() -> None:
        async with replicas() as (_, (first, second)):
            soon = Lifetime(expires_at=time.time_ns() // 1000 + 100_000)
            assert isinstance(await second.ask(Create("short", TEXT, soon)), Created)
            assert isinstance(await second.ask(Create("long", TEXT, FOREVER)), Created)
            await until(lambda: "long" in first.state.streams)
            assert second.shard.keeping is not None
            await second.shard.keeping.stop()
            await until(lambda: "short" not in first.state.streams)
            assert "long" in first.state.streams
            assert await first.ask(Keep("n0", "session of n0", 0)) == Done()

    asyncio.run(main())


def test_a_flush_is_answered_also_if_another_node_takes_over_the_chores_meanwhile(brief: None) -> None:
    async def main() -> None:
        async with replicas() as (_, nodes):
            await until(lambda: any(node.keeps for node in nodes))
            [keeper] = [node for node in nodes if node.keeps]
            await keeper.ask(Create("b/a", TEXT, payload=b"1"))
            assert keeper.shard.lake is not None
            keeper.log.lag()
            flushing = asyncio.get_running_loop().create_task(keeper.shard.lake.flush())
            await until(lambda: not keeper.keeps)
            with pytest.raises(FlushFailed):
                await asyncio.wait_for(flushing, 10)
            keeper.log.catch_up()

    asyncio.run(main())


def test_chores_of_a_node_that_is_no_member_leave_nothing_behind(brief: None) -> None:
    async def main() -> None:
        async with replicas() as (_, (first, _)):
            first.shard.committer.may_answer = False
            for _ in range(50):
                await first.ask(Keep("other", "other", 1))
            assert not first.shard.committer._withheld
            first.shard.committer.may_answer = True

    asyncio.run(main())
