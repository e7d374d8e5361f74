"""Compaction on a real state: no reader notices a rewrite, whatever else happens and whatever fails."""

import asyncio
from collections.abc import Iterator
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.lake.compaction.planning import Rewrite
from headwater.node.lake import compactor
from headwater.node.lake.compactor import Compactor
from headwater.node.lake.parts import LakeIntervals
from headwater.protocol.limits import MINUTE_US, SECOND_US
from headwater.protocol.refusals import Code, Refusal
from headwater.storage.store import KeyMissing
from headwater.streams.commands.consumers import DropConsumer, RegisterConsumer
from headwater.streams.commands.lake import SwapSegments
from headwater.streams.commands.streams import Delete
from headwater.streams.images import image_of
from headwater.streams.replies import Placed

from ...doubles.faulty_store import POSSIBLE, Call, Fault
from .small_lake import LIMITS, Chance, Lake, Row, key_of


@pytest.fixture
def lake() -> Iterator[Lake]:
    lake = Lake()
    yield lake
    asyncio.run(lake.compactor.stop())


def keys(lake: Lake) -> list[str]:
    return [key_of(held.segment) for held in lake.state.cold.segments.values()]


def four_flushes(lake: Lake) -> None:
    for number in range(4):
        lake.append("a/x", b"x%d" % number)
        lake.append("a/y", b"y%d" % number, b"z")
        lake.flush()


# -- At random -------------------------------------------------------------------------------------------------------


AVOID_US = int(LakeIntervals().compact_avoid_seconds * SECOND_US)
SEEDS = st.integers(0, 2**32)


@settings(deadline=None, max_examples=25)
@given(SEEDS, st.sampled_from([2, 64]), st.booleans())
def test_no_reader_notices_a_rewrite(seed: int, extents_max: int, meanwhile: bool) -> None:
    lake = Lake(LIMITS._replace(extents_max=extents_max))
    chance = Chance(lake, seed)
    after: dict[int, list[Row]] = {}

    def note(swap: SwapSegments) -> None:
        nonlocal after
        for _ in range(5 if meanwhile else 0):
            chance.act()
        after = lake.seen()

    lake.before_swap = note
    for _ in range(6):
        for _ in range(chance.random.randint(0, 40)):
            chance.act()
        lowest, before = lake.state.cold.lowest_consumer(lake.now), lake.in_files()
        after = lake.seen()
        swaps = lake.compact(1 if meanwhile else 100)
        assert lake.seen() == after
        lake.check()
        if not meanwhile:
            assert swaps < 100
            assert {row for row in before if row[1].position > lowest} <= set(lake.in_files())
    for stream in lake.state.streams.values():
        rows = lake.rows(stream)
        if rows:
            held = b"".join(row.payload for row in rows)
            assert held == chance.written[stream.incarnation][rows[0].offset :]
    lowered = [reply for reply in lake.replies if reply != Placed()]
    assert all("a consumer has not read" in str(reply) for reply in lowered), lowered
    assert meanwhile or not lowered
    assert lake.compactor.failures == len(lowered)
    assert not lake.in_use
    asyncio.run(lake.compactor.stop())


def test_what_chance_does_makes_rewrites_of_every_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    carry_out = Compactor._carry_out

    async def note(compactor: Compactor, planned: Rewrite) -> None:
        done.append(planned.why)
        await carry_out(compactor, planned)

    monkeypatch.setattr(Compactor, "_carry_out", note)
    for seed in range(10):
        lake = Lake(LIMITS._replace(extents_max=2))
        chance = Chance(lake, seed)
        for _ in range(5):
            for _ in range(30):
                chance.act()
            lake.compact()
        asyncio.run(lake.compactor.stop())
    assert set(done) == {"dead", "sparse", "crowded", "small"}
    assert len(done) > 50


# -- What it does ----------------------------------------------------------------------------------------------------


def test_small_segments_become_one_and_streams_have_one_extent(lake: Lake) -> None:
    four_flushes(lake)
    before = lake.seen()
    assert lake.compact() == 1
    assert len(lake.state.cold.segments) == 1
    assert [len(stream.extents) for stream in lake.state.streams.values()] == [1, 1]
    assert lake.seen() == before
    assert len(lake.state.cold.retired) == 4
    assert (lake.compactor.rewrites, lake.compactor.failures) == (1, 0)
    assert lake.compactor.bytes_read == sum(one.segment.size for one in lake.state.cold.retired.values())
    assert lake.compactor.bytes_written == sum(held.segment.size for held in lake.state.cold.segments.values())


def test_a_dead_segment_is_dropped_without_reading_it(lake: Lake) -> None:
    lake.append("a/x", b"x")
    lake.flush()
    lake.do(Delete("a/x"))
    lake.store.plan["read"] = Fault.FAIL_BEFORE
    assert lake.compact() == 1
    assert not lake.state.cold.segments
    assert lake.state.cold.dropped == lake.state.cold.flushed
    assert not lake.state.cold.tombstones


def test_a_dead_segment_stays_until_the_last_reader_has_come_past_it(lake: Lake) -> None:
    lake.append("a/x", b"x")
    lake.flush()
    flushed = lake.state.cold.flushed
    lake.do(Delete("a/x"))
    lake.do(RegisterConsumer("r", flushed - 1))
    assert lake.compact() == 0
    lake.do(RegisterConsumer("r", flushed))
    assert lake.compact() == 1


def test_a_mostly_dead_segment_keeps_only_what_is_alive(lake: Lake) -> None:
    for number in range(5):
        lake.append(f"a/{number}", b"x")
    lake.flush()
    for number in range(4):
        lake.do(Delete(f"a/{number}"))
    assert lake.compact() == 1
    [held] = lake.state.cold.segments.values()
    assert (held.segment.rows, held.live_rows) == (1, 1)
    assert not lake.state.cold.tombstones


def test_dead_rows_around_a_gap_stay_for_a_reader_and_are_marked_as_dead(lake: Lake) -> None:
    lake.do(RegisterConsumer("r", 0))
    for number in range(4):
        lake.append("a/x", b"flushed")
        lake.flush()
        lake.append("a/x", b"trimmed while it was hot")
        lake.trim("a/x", lake.state.streams["a/x"].tail, 2 * number + 2)
    lake.append("a/x", b"alive")
    lake.flush()
    rows = lake.in_files()
    assert len(rows) == 5
    assert lake.compact() == 1
    assert lake.in_files() == rows
    assert len(lake.state.cold.segments) == 5
    lake.check()
    lake.do(DropConsumer("r"))
    assert lake.compact() == 1
    assert [row.payload for _, row in lake.in_files()] == [b"alive"]
    assert not lake.state.cold.tombstones


def test_a_stream_in_many_pieces_is_joined_though_its_segments_are_large() -> None:
    lake = Lake(LIMITS._replace(extents_max=2))
    for _ in range(3):
        lake.append("a/x", b"x" * 40_000)
        lake.flush()
    lake.append("a/x", b"warm")
    assert lake.compact() == 1
    assert len(lake.state.streams["a/x"].extents) == 2


def test_segments_of_a_flush_in_progress_are_left_alone(lake: Lake) -> None:
    four_flushes(lake)
    lake.append("b/x", b"x")
    lake.append("b/y", b"y")
    lake.flush(appends_max=1, segments_max=1)
    assert lake.compact() == 1
    assert len(lake.state.cold.segments) == 2


def test_sources_are_marked_as_in_use_while_they_are_read_and_no_longer(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    four_flushes(lake)
    ids = {held.segment.id for held in lake.state.cold.segments.values()}
    used: list[set[str]] = []
    read = lake.store.read

    def note_and_read(key: str, start: int = 0, size: int | None = None) -> bytes:
        used.append(set(lake.in_use))
        return read(key, start, size)

    monkeypatch.setattr(lake.store, "read", note_and_read)
    assert lake.compact() == 1
    assert all(ids == names for names in used)
    assert used
    assert not lake.in_use


def test_a_lake_with_nothing_to_rewrite_is_planned_again_only_once_it_changes(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans = []
    monkeypatch.setattr(compactor, "plan", lambda *given, **named: plans.append(given))
    lake.append("a/x", b"x")
    lake.flush()
    assert [lake.compact(), lake.compact(), len(plans)] == [0, 0, 1]
    lake.append("a/x", b"x")
    lake.flush()
    assert [lake.compact(), len(plans)] == [0, 2]


# -- What goes wrong -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "fault"), [(call, fault) for call in ("create", "read") for fault in POSSIBLE[call]], ids=str
)
def test_a_store_that_fails_at_any_step_changes_nothing(lake: Lake, call: Call, fault: Fault) -> None:
    four_flushes(lake)
    image = image_of(lake.state)
    for step in count():
        lake.now += 10 * MINUTE_US
        lake.store.fail_at(call, step, fault)
        if lake.compact(1):
            break
        assert image_of(lake.state) == image
        assert not lake.in_use
    # Four footers, four row groups, and the new segment read back.
    assert lake.compactor.failures == step == (1 if call == "create" else 9)
    assert len(lake.state.cold.segments) == 1
    lake.check()


def test_a_refused_swap_changes_nothing_and_its_segments_are_left_alone_for_a_while(lake: Lake) -> None:
    four_flushes(lake)
    before, segments = lake.seen(), dict(lake.state.cold.segments)
    lake.before_swap = lambda swap: setattr(lake, "now", swap.deadline + 1)
    assert lake.compact() == 0
    assert (lake.seen(), lake.state.cold.segments) == (before, segments)
    lake.before_swap = lambda swap: None
    assert lake.compact() == 0
    lake.now += AVOID_US
    assert lake.compact() == 1
    assert lake.compactor.failures == 1


def test_a_swap_that_the_node_has_no_room_for_is_tried_again(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    four_flushes(lake)
    submit = lake.compactor._submit
    full = Refusal(Code.OVERLOADED, "full")
    monkeypatch.setattr(lake.compactor, "_submit", lambda command, done: done(full))
    assert lake.compact() == 0
    monkeypatch.setattr(lake.compactor, "_submit", submit)
    lake.now += AVOID_US
    assert lake.compact() == 1


def test_a_reader_that_registers_during_a_rewrite_keeps_its_rows(lake: Lake) -> None:
    for number in range(5):
        lake.append(f"a/{number}", b"x")
    lake.flush()
    for number in range(4):
        lake.do(Delete(f"a/{number}"))
    rows = lake.in_files()

    def register(_: SwapSegments) -> None:
        lake.do(RegisterConsumer("r", 1))

    lake.before_swap = register
    assert lake.compact() == 0
    assert lake.in_files() == rows


def test_one_damaged_segment_does_not_keep_the_others_from_being_rewritten(lake: Lake) -> None:
    four_flushes(lake)
    [bad, *_] = lake.state.cold.segments.values()
    lake.store.lose(key_of(bad.segment))
    with pytest.raises(KeyMissing):
        lake.seen()
    assert lake.compact() == 0
    lake.append("b/x", b"x")
    lake.flush()
    lake.do(Delete("b/x"))
    assert lake.compact() == 1


# -- By itself -------------------------------------------------------------------------------------------------------


def test_it_works_by_itself_until_it_is_stopped() -> None:
    lake = Lake(intervals=LakeIntervals(compact_check_seconds=0.001, compact_retry_seconds=0.001))

    async def main() -> None:
        lake.store.fail_next("read")
        lake.compactor.start()
        while not lake.compactor.failures:
            await asyncio.sleep(0.001)
        lake.now += AVOID_US
        while not lake.compactor.rewrites:
            await asyncio.sleep(0.001)
        await lake.compactor.stop()

    four_flushes(lake)
    asyncio.run(main())
    assert lake.compactor.failures == 1
    lake.check()


def test_it_rests_for_most_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    lake = Lake(LIMITS._replace(time_share=0.25))
    four_flushes(lake)
    seconds, rests = count(), list[float]()
    monkeypatch.setattr("headwater.node.lake.compactor.time.monotonic", lambda: float(next(seconds)))
    monkeypatch.setattr(lake.compactor._stopping, "wait", rests.append)
    # By this clock the work between two reads takes a second.
    for key in keys(lake):
        lake.compactor._read(key, 0, 1)
    assert rests[1:] == [3.0] * 3
    monkeypatch.undo()
    asyncio.run(lake.compactor.stop())


def test_stopping_breaks_a_rewrite_off_and_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    lake = Lake(LIMITS._replace(time_share=0.000_001))
    four_flushes(lake)
    image = image_of(lake.state)

    async def main() -> None:
        lake.compactor.start()
        while not lake.in_use:
            await asyncio.sleep(0.001)
        await lake.compactor.stop()
        assert not await lake.compactor.compact_once()

    asyncio.run(main())
    assert image_of(lake.state) == image
    assert (lake.compactor.rewrites, lake.compactor.failures) == (0, 0)
    assert not lake.in_use
