"""The reaper's heap: as large as the number of streams that may expire, not as that of those that ever could."""

import asyncio

import pytest

from headwater.node import committer
from headwater.node.chores import reaper
from headwater.node.chores.reaper import SWEEP_ENTRIES_MIN, Reaper
from headwater.node.reads.tails import Tails
from headwater.node.renewals import Renewals
from headwater.protocol.lifetimes import Lifetime
from headwater.protocol.limits import SECOND_US
from headwater.streams.apply import apply
from headwater.streams.batches import Batch
from headwater.streams.commands import Command
from headwater.streams.commands.streams import Create, Delete, Expire
from headwater.streams.replies import Done, Reply
from headwater.streams.state import State

DAY_SECONDS = 86_400
START_US = 1_700_000_000 * SECOND_US


class Run:
    """A reaper of a state in memory; its clock is moved by hand."""

    def __init__(self) -> None:
        self.state = State("log")
        self.now_us = START_US
        self.expired: list[str] = []
        self.renewals = Renewals(lambda: self.now_us, self.submit)
        self.reaper = Reaper(self.state, lambda: self.now_us, self.submit, self.renewals, Tails())

    def submit(self, command: Command, done: committer.Done) -> None:
        assert isinstance(command, Expire)
        self.expired.append(command.name)
        done(self.do(command))

    def do(self, command: Command) -> Reply:
        return apply(self.state, Batch(self.state.position + 1, self.now_us, [command]))[0]

    def create(self, name: str, ttl_seconds: int = DAY_SECONDS) -> None:
        self.do(Create(name, "text/plain", Lifetime(ttl_seconds=ttl_seconds)))
        self.reaper.watch(self.state.streams[name])

    @property
    def entries(self) -> int:
        return len(self.reaper._due) + len(self.reaper._unswept)


async def turns(count: int = 50) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_streams_that_were_deleted_before_their_deadline_leave_the_heap() -> None:
    async def work() -> None:
        run = Run()
        for number in range(10 * SWEEP_ENTRIES_MIN):
            run.create(f"b/{number}")
            run.do(Delete(f"b/{number}"))
            if number % 100 == 0:
                await asyncio.sleep(0)
        await turns()
        assert run.entries <= 2 * SWEEP_ENTRIES_MIN
        run.reaper.stop()

    asyncio.run(work())


def test_a_sweep_loses_no_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reaper, "SWEEP_ENTRIES_MIN", 8)
    monkeypatch.setattr(reaper, "SWEPT_PER_TURN", 3)

    async def work() -> None:
        run = Run()
        run.reaper._sweep_at_entries = 8
        kept = []
        for number in range(200):
            run.create(f"b/{number}", ttl_seconds=100 + (number * 7) % 50)
            if number % 3:
                run.do(Delete(f"b/{number}"))
            else:
                kept.append(f"b/{number}")
            if number % 5 == 0:
                await asyncio.sleep(0)
        await turns()
        assert len(kept) <= run.entries < 3 * len(kept)
        run.now_us += 200 * SECOND_US
        run.reaper._reap()
        assert sorted(run.expired) == sorted(kept)
        assert not run.state.streams
        run.reaper.stop()

    asyncio.run(work())


def test_a_stream_does_not_expire_while_its_renewal_is_on_its_way() -> None:
    async def work() -> None:
        run = Run()
        run.create("b/read", ttl_seconds=10)
        run.create("b/forgotten", ttl_seconds=10)
        run.now_us += 9 * SECOND_US
        renewed = run.renewals.renewing("b/read", run.now_us, lambda _: None)
        run.now_us += 60 * SECOND_US
        run.reaper._reap()
        assert run.expired == ["b/forgotten"]
        run.reaper._reap()
        assert run.expired == ["b/forgotten"]
        renewed(Done())
        run.now_us += 2 * SECOND_US
        run.reaper._reap()
        assert run.expired == ["b/forgotten", "b/read"]
        run.reaper.stop()

    asyncio.run(work())
