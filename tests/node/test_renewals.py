"""Sliding lifetimes while the log is slow: a renewal counts from when it was asked for."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from headwater.log.memory import MemoryLog
from headwater.log.seam import Ticket
from headwater.node.chores.imager import ImageLimits
from headwater.node.clock import Clock
from headwater.node.committer import ask
from headwater.node.node import Node
from headwater.node.shard_parts import ShardLimits, ShardParts
from headwater.protocol.lifetimes import Lifetime
from headwater.protocol.limits import SECOND_US
from headwater.protocol.refusals import Code, Refusal
from headwater.storage.blobs import MemoryBlobs
from headwater.streams.commands import Command
from headwater.streams.commands.streams import Append, Create, SetAttrs
from headwater.streams.queries import Head, Read
from headwater.streams.replies import Acknowledged, Appended, Created, Described, Page, Reply
from headwater.streams.state import State, Stream

NAME, TEXT = "a/b", "text/plain"


class Still(Clock):
    """A clock that is set by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.at = 1_700_000_000 * SECOND_US

    def now(self) -> int:
        return self.at


class StalledLog(MemoryLog):
    """Keeps what it is given while it is stalled."""

    def __init__(self) -> None:
        super().__init__("9f2c")
        self.stalled = False
        self.held: list[tuple[int, list[Command], Ticket]] = []

    def append(self, at: int, commands: list[Command], ticket: Ticket) -> None:
        if self.stalled:
            self.held.append((at, commands, ticket))
        else:
            super().append(at, commands, ticket)

    def go_on(self) -> None:
        self.stalled = False
        held, self.held = self.held, []
        for batch in held:
            super().append(*batch)


class Bench:
    """A node with one stream that lives for ten seconds after its last use."""

    def __init__(self) -> None:
        self.clock, self.log = Still(), StalledLog()
        parts = ShardParts(State("9f2c"), self.log, None, MemoryBlobs())
        self.node = Node([parts], limits=ShardLimits(ImageLimits(1 << 40)), clock=self.clock)

    def wait(self, seconds: float) -> None:
        self.clock.at += int(seconds * SECOND_US)

    def append(self, payload: bytes = b"x") -> "asyncio.Task[Reply]":
        work: Coroutine[Any, Any, Reply] = ask(self.node.submit, Append(NAME, payload, content_type=TEXT))
        return asyncio.get_running_loop().create_task(work)

    async def begin(self) -> None:
        self.node.start()
        made = await ask(self.node.submit, Create(NAME, TEXT, Lifetime(ttl_seconds=10)))
        assert isinstance(made, Created)


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def on_a_bench(work: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        bench = Bench()
        await bench.begin()
        try:
            async with asyncio.timeout(20):
                await work(bench)
        finally:
            bench.log.go_on()
            await bench.node.stop()

    asyncio.run(run())


def test_a_stream_is_alive_while_an_append_that_renews_it_is_in_flight() -> None:
    async def work(bench: Bench) -> None:
        bench.log.stalled = True
        bench.wait(9)
        first = bench.append(b"1")
        await turns()
        bench.wait(5)
        assert isinstance(bench.node.read(Read(NAME)), Page)
        assert isinstance(bench.node.describe(Head(NAME)), Described)
        assert isinstance(bench.node.present(NAME), Stream)
        assert bench.node.judge_append(Append(NAME, b"x", content_type=TEXT)) is None
        second = bench.append(b"2")
        await turns()
        bench.log.go_on()
        assert isinstance(await first, Appended)
        assert isinstance(await second, Appended)
        bench.wait(9)
        assert isinstance(bench.node.describe(Head(NAME)), Described)
        bench.wait(9)
        refusal = bench.node.describe(Head(NAME))
        assert isinstance(refusal, Refusal)
        assert refusal.code is Code.STREAM_NOT_FOUND

    on_a_bench(work)


def test_an_append_that_waits_behind_a_slow_commit_counts_from_when_it_was_asked_for() -> None:
    async def work(bench: Bench) -> None:
        bench.log.stalled = True
        other = asyncio.get_running_loop().create_task(ask(bench.node.submit, Create("a/other", TEXT)))
        await turns()
        bench.wait(9)
        renewal = bench.append()
        await turns()
        bench.wait(60)
        bench.log.go_on()
        assert isinstance(await other, Created)
        assert isinstance(await renewal, Appended)

    on_a_bench(work)


def test_new_attributes_count_from_when_they_were_asked_for() -> None:
    async def work(bench: Bench) -> None:
        bench.log.stalled = True
        other = asyncio.get_running_loop().create_task(ask(bench.node.submit, Create("a/other", TEXT)))
        await turns()
        bench.wait(9)
        renewal = asyncio.get_running_loop().create_task(ask(bench.node.submit, SetAttrs(NAME, b"{}")))
        await turns()
        bench.wait(60)
        assert isinstance(bench.node.describe(Head(NAME)), Described)
        bench.log.go_on()
        assert isinstance(await other, Created)
        assert isinstance(await renewal, Acknowledged)
        assert isinstance(bench.node.describe(Head(NAME)), Described)

    on_a_bench(work)


def test_a_read_renews_although_the_log_takes_longer_than_the_rest_of_the_lifetime() -> None:
    async def work(bench: Bench) -> None:
        bench.log.stalled = True
        bench.wait(9)
        assert isinstance(bench.node.read(Read(NAME)), Page)
        await turns()
        bench.wait(5)
        assert isinstance(bench.node.read(Read(NAME)), Page)
        bench.log.go_on()
        await turns()
        assert isinstance(bench.node.describe(Head(NAME)), Described)

    on_a_bench(work)


def test_reads_renew_although_the_log_stalls_for_longer_than_the_whole_lifetime() -> None:
    async def work(bench: Bench) -> None:
        bench.log.stalled = True
        bench.wait(9)
        for _ in range(5):
            assert isinstance(bench.node.read(Read(NAME)), Page)
            await turns()
            bench.wait(9)
        assert isinstance(bench.node.read(Read(NAME)), Page)
        bench.log.go_on()
        await turns()
        bench.wait(9)
        assert isinstance(bench.node.describe(Head(NAME)), Described)
        bench.wait(3)
        assert isinstance(bench.node.describe(Head(NAME)), Refusal)

    on_a_bench(work)


def test_a_write_after_reads_in_a_long_stall_finds_its_stream() -> None:
    async def work(bench: Bench) -> None:
        bench.log.stalled = True
        bench.wait(9)
        for _ in range(5):
            assert isinstance(bench.node.read(Read(NAME)), Page)
            await turns()
            bench.wait(9)
        written = bench.append()
        await turns()
        bench.log.go_on()
        assert isinstance(await written, Appended)

    on_a_bench(work)


def test_a_stalled_log_gets_one_renewal_of_a_stream_at_a_time() -> None:
    async def work(bench: Bench) -> None:
        bench.log.stalled = True
        bench.wait(9)
        for _ in range(100):
            bench.node.read(Read(NAME))
            await turns()
            bench.wait(1)
        assert sum(len(commands) for _, commands, _ in bench.log.held) == 1

    on_a_bench(work)


def test_a_stream_that_nobody_renewed_in_time_is_gone() -> None:
    async def work(bench: Bench) -> None:
        bench.wait(12)
        refusal = await bench.append()
        assert isinstance(refusal, Refusal)
        assert refusal.code is Code.STREAM_NOT_FOUND

    on_a_bench(work)
