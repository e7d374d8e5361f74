"""Scans of a node with a lake: every row once, as of one instant, whatever happens while they are read."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
from typing import Any

import pytest

from headwater.lake.format import SCHEMA
from headwater.lake.segments import writer
from headwater.node.reads.cold import LakeUnreadable
from headwater.node.scans import pace, scans, windows
from headwater.node.scans.scans import Scan
from headwater.node.scans.windows import Limits, Times
from headwater.protocol.message_ends import pack
from headwater.protocol.producers import Producer
from headwater.protocol.refusals import Code, Problem, Refusal
from headwater.streams.commands.streams import Create
from headwater.streams.queries import Range

from ...doubles.faulty_store import Fault, FaultyStore
from ..lake.lakes import NEVER, TEXT, bench
from ..lake.stories import Story, found, plan, rows_of


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows and row groups of a few rows, and a turn of the loop for each stream that is looked up."""
    monkeypatch.setattr(scans, "WINDOW", Limits(5, 40))
    monkeypatch.setattr(windows, "CUT_BYTES_MIN", 7)
    monkeypatch.setattr(writer, "GROUP_BYTES", 30)
    monkeypatch.setattr(writer, "GROUP_ROWS", 4)
    monkeypatch.setattr(scans, "LOOKUPS_PER_STEP", 1)
    monkeypatch.setattr(pace, "TURN_SECONDS", -1.0)


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 120))


# -- Every row once --------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("seed", range(25))
def test_a_scan_of_everything_finds_every_row_once_wherever_ranges_are_cut(seed: int) -> None:
    async def test() -> None:
        async with bench(history_seconds=0.0) as node:
            story = Story(node, seed)
            for number in range(90):
                await story.act()
                if number % 15 == 14:
                    assert await found(await plan(node, story.everything())) == story.all_rows()
                    ordinals = story.ordinals()
                    offsets = await node.node.only.scans.locate([ordinal for ordinal, _ in ordinals])
                    assert offsets == [offset for _, offset in ordinals]
            for name, rows in story.rows.items():
                assert await node.whole(name) == b"".join(row["payload"] for row in rows)
            assert not +node.lake.reads.in_use
            assert not node.state.observers

    run(test)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("seed", range(25))
def test_what_happens_while_a_scan_is_planned_and_read_is_not_seen_by_it(seed: int) -> None:
    async def test() -> None:
        async with bench(history_seconds=0.0) as node:
            story = Story(node, seed)
            for _ in range(60):
                await story.act()
            ranges, expected = story.everything(), story.all_rows()
            planning = asyncio.create_task(plan(node, ranges))
            await asyncio.sleep(0)
            while not planning.done():
                await story.act()
            scan, body = planning.result(), b""
            async with aclosing(scan.parts()) as parts:
                async for part in parts:
                    body += part
                    await story.act()
            scan.close()
            assert rows_of(body) == expected
            assert not +node.lake.reads.in_use

    run(test)


def test_rows_come_in_the_order_of_the_ranges_even_if_these_are_not_sorted() -> None:
    async def test() -> None:
        async with bench() as node:
            story = Story(node)
            for number in range(4):
                await story.append("a/x", b"x%d" % number)
                await story.append("a/y", b"y%d" % number)
                if number in (0, 2):
                    await node.lake.flush()
            x, y = story.life("a/x"), story.life("a/y")
            ranges = [Range("a/y", y, 6, 8), Range("a/x", x, 0, 5), Range("a/y", y, 0, 3), Range("a/y", y, 0, 3)]
            payloads = [row["payload"] for row in await found(await plan(node, ranges))]
            assert payloads == [b"y3", b"x0", b"x1", b"x2", b"y0", b"y1", b"y0", b"y1"]

    run(test)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize("window", [Limits(5, 40), Limits(1_000, 100_000)])
def test_each_range_comes_in_the_order_of_offsets_whatever_else_its_window_needs(
    window: Limits, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scans, "WINDOW", window)

    async def test() -> None:
        async with bench(history_seconds=0.0) as node:
            story = Story(node, seed)
            for _ in range(4):
                for _ in range(15):
                    await story.act()
                ranges = story.anything()
                assert await found(await plan(node, ranges)) == story.rows_in(ranges)

    run(test)


@pytest.mark.usefixtures("small")
def test_a_range_whose_later_rows_an_earlier_one_requested_begins_at_its_beginning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scans, "WINDOW", Limits(1_000, 100_000))

    async def test() -> None:
        async with bench() as node:
            story = Story(node)
            for number in range(10):
                await story.append("b/big", b"%02d" % number)
            await story.append("b/c", b"hello")
            await node.lake.flush()
            await story.fork("a/fork", "b/big", 20)
            big, small, fork = (story.life(name) for name in ("b/big", "b/c", "a/fork"))
            whole = Range("b/big", big, 0, 20)
            for before in (
                Range("b/c", small, 0, 5),  # in the group that the last rows of the other are in
                Range("b/big", big, 16, 20),
                Range("a/fork", fork, 16, 20),
            ):
                rows = await found(await plan(node, [before, whole]))
                assert rows == story.rows_in([before, whole])

    run(test)


@pytest.mark.parametrize("cold", [False, True])
def test_a_batch_has_about_as_many_rows_and_bytes_as_it_may(cold: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scans, "WINDOW", Limits(10, 1000))
    monkeypatch.setattr(windows, "CUT_BYTES_MIN", 1)

    async def batches(scan: Scan) -> list[int]:
        parts = [part async for part in scan.parts()]
        scan.close()
        return [len(rows_of(parts[0] + part + parts[-1])) for part in parts[1:-1]]

    async def test() -> None:
        async with bench() as node:
            story = Story(node)
            for number in range(25):
                await story.append("a/x", b"%02d" % number)
            for _ in range(4):
                await story.append("a/y", b"y" * 600)
            if cold:
                await node.lake.flush()
            ranges = [Range(name, story.life(name), 0, 9_999) for name in ("a/x", "a/y")]
            assert await batches(await plan(node, ranges)) == [10, 10, 7, 2]
            assert await batches(await plan(node, ranges, ["offset"])) == [10, 10, 9]

    run(test)


def test_rows_name_producers_and_appends_of_several_messages() -> None:
    async def test() -> None:
        async with bench() as node:
            story = Story(node)
            await story.append("a/x", b"one", b"two", producer=Producer("p", 3, 0))
            await story.append("a/x", b"three")
            await story.append("a/x", b"four", producer=Producer("p", 3, 1))
            hot = await found(await plan(node, story.everything()))
            assert hot == story.all_rows()
            assert [(row["append"], row["producer_seq"]) for row in hot] == [(0, 0), (0, 0), (6, None), (11, 1)]
            await node.lake.flush()
            assert await found(await plan(node, story.everything())) == hot

    run(test)


# -- Columns and times -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [["payload"], ["stream"], ["record", "bucket"], ["incarnation", "committed_at"]])
def test_only_the_requested_columns_come_in_the_order_of_the_schema(columns: list[str]) -> None:
    async def test() -> None:
        async with bench() as node:
            story = Story(node)
            await story.append("a/x", b"one", b"two", producer=Producer("p", 0, 0))
            await node.lake.flush()
            await story.append("a/x", b"three")
            await story.fork("b/z", "a/x", 7)
            wanted = [name for name in SCHEMA.names if name in columns]
            rows = await found(await plan(node, story.everything(), columns))
            assert rows == [{name: row[name] for name in wanted} for row in story.all_rows()]
            assert [list(row) for row in rows] == [wanted] * 6

    run(test)


def test_payloads_that_are_not_wanted_are_not_read() -> None:
    async def test() -> None:
        store = CountingStore()
        async with bench(store) as node:
            story = Story(node)
            for _ in range(4):
                await story.append("a/x", story.random.randbytes(250_000))
            await node.lake.flush()
            store.bytes_read = 0
            rows = await found(await plan(node, story.everything(), ["offset", "next_offset", "position"]))
            assert [row["next_offset"] - row["offset"] for row in rows] == [250_000] * 4
            assert 0 < store.bytes_read < 100_000
            assert len(await found(await plan(node, story.everything()))) == 4
            assert store.bytes_read > 1_000_000

    run(test)


def test_rows_are_chosen_by_when_they_were_committed() -> None:
    async def test() -> None:
        store = CountingStore()
        async with bench(store) as node:
            story = Story(node)
            for number in range(9):
                await story.append("a/x", b"%d" % number, b"more")
                await story.append("a/y", b"%d" % number)
                if number in (2, 5):
                    await node.lake.flush()
            times = sorted({row["committed_at"] for row in story.all_rows()})
            low, middle, high = times[0], times[len(times) // 2], times[-1]
            for since, until in ((low, low), (low, middle), (middle, high), (0, high + 1), (middle, middle + 1)):
                for columns in (None, ["offset"]):
                    rows = await found(await plan(node, story.everything(), columns, Times(since, until)))
                    expected = [row for row in story.all_rows() if since <= row["committed_at"] < until]
                    assert rows == (expected if columns is None else [{"offset": row["offset"]} for row in expected])
            store.bytes_read = 0
            late = await found(await plan(node, story.everything(), None, Times(high)))
            assert late == [row for row in story.all_rows() if row["committed_at"] == high]
            assert store.bytes_read == 0, "what is known to be older is not read"

    run(test)


# -- What cannot be read ---------------------------------------------------------------------------------------------


def test_every_range_that_cannot_be_read_is_named() -> None:
    async def test() -> None:
        async with bench() as node:
            story = Story(node)
            for name in ("a/good", "a/trimmed", "a/source", "a/again"):
                await story.append(name, b"one")
                await story.append(name, b"two")
            good, trimmed, source, again = (story.life(name) for name in sorted(story.rows, key=story.life))
            await story.trim("a/trimmed", story.rows["a/trimmed"][0])
            await story.fork("a/fork", "a/source", 4)
            await story.delete("a/source")
            await story.delete("a/again")
            await story.append("a/again", b"anew")
            ranges = [
                Range("a/good", good, 0, 3),
                Range("a/nothing", 1, 0, 3),
                Range("a/trimmed", trimmed, 3, 6),
                Range("a/trimmed", trimmed, 2, 6),
                Range("a/source", source, 0, 3),
                Range("a/again", again, 0, 3),
                Range("a/good", good + 1, 3, 6),
                Range("a/trimmed", trimmed, 0, 0),
            ]
            refusal = await node.node.only.scans.plan(ranges, None, Times())
            assert isinstance(refusal, Refusal)
            assert refusal.code is Code.RANGES_UNAVAILABLE
            assert refusal.detail == "5 of 8 ranges cannot be read; `problems` says which and why."
            assert refusal.problems == (
                Problem(1, Code.STREAM_NOT_FOUND),
                Problem(3, Code.OFFSET_TRIMMED, 3),
                Problem(4, Code.STREAM_GONE),
                Problem(5, Code.INCARNATION_CHANGED),
                Problem(6, Code.INCARNATION_CHANGED),
            )
            assert not node.state.observers
            rows = await found(await plan(node, [ranges[0], ranges[2], ranges[7]]))
            assert [row["payload"] for row in rows] == [b"one", b"two"]

    run(test)


def test_a_range_ends_at_the_tail_and_may_be_empty_or_after_it() -> None:
    async def test() -> None:
        async with bench() as node:
            story = Story(node)
            await story.append("a/x", b"one")
            await story.create("a/y")
            x, y = story.life("a/x"), story.life("a/y")
            assert await found(await plan(node, [Range("a/x", x, 0, 2**63 - 1)])) == story.all_rows()
            nothing = [Range("a/x", x, 3, 9), Range("a/x", x, 7, 9), Range("a/x", x, 1, 3), Range("a/y", y, 0, 9)]
            assert await found(await plan(node, nothing)) == []
            assert await found(await plan(node, [])) == []

    run(test)


@pytest.mark.parametrize("fault", [Fault.FAIL_BEFORE, Fault.FLIP, Fault.TRUNCATE])
@pytest.mark.parametrize("columns", [None, ["record"]])
def test_a_store_that_fails_or_lies_breaks_the_scan_off(fault: Fault, columns: list[str] | None) -> None:
    async def test() -> None:
        async with bench() as node:
            story = Story(node)
            await story.append("a/x", b"one", b"two")
            await node.lake.flush()
            node.store.plan["read"] = fault
            scan = await plan(node, story.everything(), columns)
            with pytest.raises(LakeUnreadable):
                await everything(scan.parts())
            scan.close()
            with pytest.raises(LakeUnreadable):
                await node.node.only.scans.locate([ordinal for ordinal, _ in story.ordinals()])
            assert not +node.lake.reads.in_use
            assert node.lake.reads.failures == 2
            node.store.heal()
            assert await found(await plan(node, story.everything())) == story.all_rows()

    run(test)


# -- What is held and released ---------------------------------------------------------------------------------------


def test_a_replaced_segment_is_kept_for_as_long_as_a_scan_may_read_it() -> None:
    async def test() -> None:
        async with bench(history_seconds=0.0, flush=NEVER._replace(segment_bytes=1)) as node:
            story = Story(node)
            for number in range(4):
                await story.append("a/x", b"%d" % number)
                await node.lake.flush()
            expected, before = story.all_rows(), set(node.segments())
            scan = await plan(node, story.everything())
            await story.delete("a/x")
            while await node.housekeeping.compactor.compact_once():
                pass
            await node.housekeeping.cataloger.write()
            await node.housekeeping.sweeper.sweep_retired()
            assert before <= set(node.segments())
            assert await found(scan) == expected
            await node.housekeeping.sweeper.sweep_retired()
            assert not before & set(node.segments())

    run(test)


def test_an_abandoned_scan_releases_everything() -> None:
    async def test() -> None:
        async with bench() as node:
            story = Story(node)
            await story.append("a/x", b"one")
            await node.lake.flush()
            unread = await plan(node, story.everything())
            begun = await plan(node, story.everything())
            async with aclosing(begun.parts()) as parts:
                await anext(parts)
                await anext(parts)
            assert +node.lake.reads.in_use
            unread.close()
            assert +node.lake.reads.in_use
            begun.close()
            begun.close()
            assert not +node.lake.reads.in_use
            planning = asyncio.create_task(plan(node, story.everything() * 100_000))
            await asyncio.sleep(0)
            assert node.state.observers
            planning.cancel()
            await asyncio.gather(planning, return_exceptions=True)
            assert not node.state.observers
            assert not +node.lake.reads.in_use

    run(test)


def test_a_row_group_is_decoded_once_however_many_ranges_it_has() -> None:
    async def test() -> None:
        async with bench() as node:
            names = [f"a/{number:03}" for number in range(300)]
            for name in names:
                await node.ask(Create(name, TEXT, payload=b"first" + name.encode(), ends=pack((5, 10))))
            await node.lake.flush()
            for name in names:
                await node.append(name, b"second")
            await node.lake.flush()
            before = node.lake.reads.reads
            ranges = [Range(name, node.state.streams[name].incarnation, 0, 99) for name in names]
            rows = await found(await plan(node, ranges))
            assert [row["payload"] for row in rows[:3]] == [b"first", b"a/000", b"second"]
            assert len(rows) == 900
            assert node.lake.reads.reads - before == 4, "a footer and a row group of each of two segments"

    run(test)


def test_a_scan_renews_a_sliding_lifetime_and_nothing_else_does() -> None:
    async def test() -> None:
        async with bench() as node:
            story = Story(node)
            await story.append("a/x", b"one")
            touched: list[str] = []
            scans_of = scans.Scans(
                node.state, node.node.now, lambda stream: touched.append(stream.name), node.lake.reads
            )
            lifetime = type(node.state.streams["a/x"].lifetime)(ttl_seconds=60)
            await node.ask(Create("a/ttl", TEXT, lifetime, payload=b"one"))
            ranges = [Range(name, story.life(name), 0, 3) for name in ("a/ttl", "a/x")]
            await scans_of.locate([ordinal for ordinal, _ in story.ordinals()])
            assert touched == []
            scan = await scans_of.plan(ranges, None, Times())
            assert isinstance(scan, Scan)
            scan.close()
            assert touched == ["a/ttl"]
            scans_of.stop()

    run(test)


async def everything(parts: AsyncGenerator[bytes, None]) -> bytes:
    return b"".join([part async for part in parts])


class CountingStore(FaultyStore):
    """Counts the bytes that are read."""

    bytes_read = 0

    def read(self, key: str, start: int = 0, size: int | None = None) -> bytes:
        data = super().read(key, start, size)
        self.bytes_read += len(data)
        return data
