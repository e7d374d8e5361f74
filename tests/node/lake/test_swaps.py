"""Swaps: no reader notices a correct one, and an incorrect one changes nothing."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from datetime import UTC, datetime
from random import Random
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.lake.compaction.rewriting import Keep
from headwater.lake.format import SCHEMA, new_segment_id, segment_key
from headwater.lake.segments import writer
from headwater.lake.segments.reader import read_all
from headwater.lake.segments.writer import SegmentWriter
from headwater.node.lake import swaps
from headwater.node.lake.swaps import SwapRequest, Swaps
from headwater.protocol.limits import DAY_US, MINUTE_US, SECOND_US
from headwater.protocol.refusals import Code, Refusal
from headwater.streams.cold import ALL
from headwater.streams.commands.consumers import RegisterConsumer
from headwater.streams.commands.streams import Delete
from headwater.streams.hot import Hot

from ...doubles.faulty_store import Fault
from . import small_lake
from .handed_in import KEEP_ALL, dead_by, hand_in, key_of, put, rewritten
from .lakes import Bench, bench

replace = msgspec.structs.replace


def on_a_node(work: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        async with bench() as node:
            await work(node)

    asyncio.run(main())


async def three_flushes(node: Bench) -> None:
    for name in ("a/x", "a/y", "b/z"):
        await node.create(name)
    for number in range(3):
        for name in ("a/x", "a/y", "b/z"):
            await node.append(name, b"%d of %b;" % (number, name.encode()))
        await node.lake.flush()
    assert len(node.state.cold.segments) == 3


async def contents(node: Bench) -> dict[str, bytes]:
    return {name: await node.whole(name) for name in node.state.streams}


async def swap(node: Bench, handed: SwapRequest) -> int | Refusal:
    return await asyncio.wait_for(node.lake.swaps.swap(handed), 60)


def known(node: Bench) -> tuple[Any, ...]:
    """What the state knows about the lake."""
    cold = node.state.cold
    extents = {name: stream.extents for name, stream in node.state.streams.items()}
    return dict(cold.segments), dict(cold.tombstones), dict(cold.retired), cold.dropped, cold.flushed, extents


async def refused(node: Bench, handed: SwapRequest, reason: str) -> None:
    """Assert that a swap is refused and changes nothing."""
    before, read = known(node), await contents(node)
    outcome = await swap(node, handed)
    assert isinstance(outcome, Refusal), outcome
    assert outcome.code is Code.SWAP_REFUSED
    assert reason in outcome.detail, outcome.detail
    assert outcome.detail.endswith(".")
    assert known(node) == before
    assert await contents(node) == read
    assert not +node.lake.reads.in_use


# -- Rewrites that are right -----------------------------------------------------------------------------------------


def test_a_rewrite_takes_the_place_of_what_it_was_made_from() -> None:
    async def work(node: Bench) -> None:
        await three_flushes(node)
        await node.append("a/x", b"hot")
        before, old = await contents(node), dict(node.state.cold.segments)
        position = await swap(node, hand_in(node.state, node.store, node.node.now()))
        assert position == node.state.position == node.state.cold.changed_at
        assert list(node.state.cold.segments) == [4]
        assert node.state.cold.retired.keys() == {held.segment.id for held in old.values()}
        assert [len(stream.extents) for stream in node.state.streams.values()] == [1, 1, 1]
        assert node.state.cold.dropped == 0
        assert await contents(node) == before
        await node.lake.flush()
        assert await contents(node) == before

    on_a_node(work)


def test_what_is_published_is_what_the_writer_said() -> None:
    async def work(node: Bench) -> None:
        await three_flushes(node)
        deadline = node.node.now() + MINUTE_US
        made = rewritten(node.store, node.state.cold, (1, 2, 3), deadline)
        handed = SwapRequest(0, [1, 2, 3], put(node.store, made.written), 0, deadline)
        assert isinstance(await swap(node, handed), int)
        assert [held.segment for held in node.state.cold.segments.values()] == [made.written[0].segment]

    on_a_node(work)


def test_a_rewrite_may_drop_what_no_reader_needs() -> None:
    async def work(node: Bench) -> None:
        await three_flushes(node)
        await node.ask(Delete("a/y"))
        last = max(node.state.cold.segments[3].segment.last_position, 0)
        handed = hand_in(node.state, node.store, node.node.now(), dead_by(node.state))
        assert 0 < handed.dropped < last
        # A client that does not know it exactly may declare more, but not less.
        await refused(node, replace(handed, dropped=handed.dropped - 1), "dropped must be")
        assert isinstance(await swap(node, replace(handed, dropped=last)), int)
        assert (node.state.cold.dropped, dict(node.state.cold.tombstones)) == (last, {})
        assert (await contents(node)).keys() == {"a/x", "b/z"}

    on_a_node(work)


def test_segments_that_are_dead_may_go_without_any_in_their_place() -> None:
    async def work(node: Bench) -> None:
        await three_flushes(node)
        for name in ("a/x", "a/y", "b/z"):
            await node.ask(Delete(name))
        handed = hand_in(node.state, node.store, node.node.now(), dead_by(node.state))
        assert handed.keys == []
        await refused(node, replace(handed, dropped=0), "dropped must be")
        assert isinstance(await swap(node, handed), int)
        assert node.state.cold.segments == {}

    on_a_node(work)


def test_of_two_rewrites_of_the_same_segments_one_takes_place() -> None:
    async def work(node: Bench) -> None:
        await three_flushes(node)
        before = await contents(node)
        both = [hand_in(node.state, node.store, node.node.now()) for _ in range(2)]
        outcomes = await asyncio.gather(*(swap(node, handed) for handed in both))
        assert isinstance(outcomes[0], int)
        assert isinstance(outcomes[1], Refusal)
        assert "they may have been replaced" in outcomes[1].detail
        assert await contents(node) == before

    on_a_node(work)


# -- Rewrites that are not -------------------------------------------------------------------------------------------


def test_a_swap_for_which_the_log_has_no_room_is_refused_with_its_reason() -> None:
    async def work(node: Bench) -> None:
        await three_flushes(node)
        handed = hand_in(node.state, node.store, node.node.now())
        full = Refusal(Code.OVERLOADED, "The disk is full.")
        node.lake.swaps._submit = lambda command, done: done(full)
        assert await swap(node, handed) == full

    on_a_node(work)


def test_a_rewrite_whose_object_is_missing_is_refused() -> None:
    async def work(node: Bench) -> None:
        await three_flushes(node)
        handed = hand_in(node.state, node.store, node.node.now())
        node.store.store.delete(handed.keys[0])
        await refused(node, handed, "There is no object")

    on_a_node(work)


def test_a_rewrite_with_any_byte_changed_is_refused() -> None:
    async def work(node: Bench) -> None:
        await three_flushes(node)
        handed, random = hand_in(node.state, node.store, node.node.now()), Random(5)
        whole = node.store.read(handed.keys[0])
        for _ in range(60):
            data = bytearray(whole)
            data[random.randrange(len(data))] ^= 1 << random.randrange(8)
            node.store.store.delete(handed.keys[0])
            node.store.create(handed.keys[0], bytes(data))
            outcome = await swap(node, handed)
            assert isinstance(outcome, Refusal)
            assert outcome.code is Code.SWAP_REFUSED
        for part in (whole[:-1], whole[:100], b""):
            node.store.store.delete(handed.keys[0])
            node.store.create(handed.keys[0], part)
            await refused(node, handed, "segment")
        node.store.store.delete(handed.keys[0])
        node.store.create(handed.keys[0], whole)
        assert isinstance(await swap(node, handed), int)

    on_a_node(work)


def test_a_rewrite_of_a_damaged_segment_is_refused() -> None:
    async def work(node: Bench) -> None:
        await three_flushes(node)
        handed = hand_in(node.state, node.store, node.node.now())
        key = key_of(node.state.cold.segments[2].segment)
        data = bytearray(node.store.read(key))
        data[-20] ^= 1
        node.store.store.delete(key)
        node.store.create(key, bytes(data))
        outcome = await swap(node, handed)
        assert isinstance(outcome, Refusal)
        assert outcome.code is Code.SWAP_REFUSED

    on_a_node(work)


def test_a_rewrite_that_reads_could_not_find_their_way_in_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(node: Bench) -> None:
        await three_flushes(node)
        with monkeypatch.context() as patch:
            patch.setattr(writer, "_COUNTED", [])
            handed = hand_in(node.state, node.store, node.node.now())
        await refused(node, handed, "statistics")

    on_a_node(work)


def forged(node: Bench, name: str, incarnation: int, payload: bytes, offset: int = 0) -> str:
    """Store a segment with one row that was never written, and return its key."""
    segments = [held.segment for held in node.state.cold.segments.values()]
    first, last = min(one.first_position for one in segments), max(one.last_position for one in segments)
    segment = SegmentWriter(new_segment_id(node.node.now() + MINUTE_US, "forged"), first, last)
    segment.add(name, incarnation, "text/plain", [Hot(offset, payload, None, 0, last, SECOND_US, None)])
    [key] = put(node.store, [segment.finish()])
    return key


@pytest.mark.parametrize("name", ["a/x", "c/x"])
def test_rows_that_are_in_none_of_the_replaced_segments_are_refused(name: str) -> None:
    async def work(node: Bench) -> None:
        await three_flushes(node)
        handed = hand_in(node.state, node.store, node.node.now())
        key = forged(node, name, 2, b"never written")
        await refused(node, replace(handed, keys=[*handed.keys, key]), "that are not in the segments")

    on_a_node(work)


@pytest.mark.parametrize(
    "changes",
    [
        {"position": 8},
        {"committed_at": datetime(2100, 1, 1, tzinfo=UTC)},
        {"producer_id": "another", "producer_epoch": 0, "producer_seq": 0},
        {"content_type": "text/html"},
    ],
)
def test_a_rewrite_with_another_value_in_one_row_is_refused(changes: dict[str, Any]) -> None:
    async def work(node: Bench) -> None:
        await three_flushes(node)
        deadline = node.node.now() + MINUTE_US
        [old] = rewritten(node.store, node.state.cold, (1, 2, 3), deadline).written
        [table] = read_all(lambda start, size: old.data[start : start + size], old.segment)
        rows = table.to_pylist()
        assert (rows[2]["stream"], rows[2]["record"]) == ("x", 2)
        assert all(rows[2][name] != value for name, value in changes.items())
        rows[2] |= changes
        segment = SegmentWriter(old.segment.id, old.segment.first_position, old.segment.last_position)
        segment.add_table(pa.Table.from_pylist(rows, SCHEMA))
        handed = SwapRequest(0, [1, 2, 3], put(node.store, [segment.finish()]), 0, deadline)
        await refused(node, handed, "rows of 'a/x' that are not in the segments")

    on_a_node(work)


def test_the_bytes_of_payloads_are_taken_from_the_rewrite() -> None:
    async def work(node: Bench) -> None:
        await three_flushes(node)
        before, deadline = await contents(node), node.node.now() + MINUTE_US
        [old] = rewritten(node.store, node.state.cold, (1, 2, 3), deadline).written
        [table] = read_all(lambda start, size: old.data[start : start + size], old.segment)
        rows = [row | {"payload": row["payload"].upper()} for row in table.to_pylist()]
        segment = SegmentWriter(old.segment.id, old.segment.first_position, old.segment.last_position)
        segment.add_table(pa.Table.from_pylist(rows, SCHEMA))
        handed = SwapRequest(0, [1, 2, 3], put(node.store, [segment.finish()]), 0, deadline)
        assert isinstance(await swap(node, handed), int)
        # So the other tests read what was swapped in.
        assert await contents(node) == {name: body.upper() for name, body in before.items()}

    on_a_node(work)


def test_rows_of_other_segments_are_refused() -> None:
    async def work(node: Bench) -> None:
        await three_flushes(node)
        handed = hand_in(node.state, node.store, node.node.now())
        await refused(node, replace(handed, replaced=[1, 3]), "that are not in the segments")
        await refused(node, replace(handed, replaced=[1, 2]), "are outside of")

    on_a_node(work)


def test_a_rewrite_of_segments_with_another_between_them_is_refused() -> None:
    async def work(node: Bench) -> None:
        await three_flushes(node)
        deadline = node.node.now() + MINUTE_US
        parts = [rewritten(node.store, node.state.cold, [number], deadline).written for number in (1, 3)]
        handed = SwapRequest(0, [1, 3], [key for part in parts for key in put(node.store, part)], 0, deadline)
        await refused(node, handed, "differ from those in the lake")

    on_a_node(work)


def test_a_rewrite_without_rows_that_are_needed_is_refused() -> None:
    async def work(node: Bench) -> None:
        await three_flushes(node)
        keep = Keep(lambda name, incarnation: ALL if name == "a/y" else 0, ALL)
        await refused(node, hand_in(node.state, node.store, node.node.now(), keep), "omits rows that are still needed")
        keep = Keep(lambda name, incarnation: 5 if name == "a/y" else 0, ALL)
        partly = hand_in(node.state, node.store, node.node.now(), keep)
        assert partly.dropped == 0
        keep = Keep(lambda name, incarnation: 9 if name == "a/y" else 0, ALL)
        partly = hand_in(node.state, node.store, node.node.now(), keep)
        assert partly.dropped > 0
        await refused(node, partly, "differ from those in the lake")

    on_a_node(work)


def test_a_rewrite_that_drops_what_a_reader_has_not_read_is_refused() -> None:
    async def work(node: Bench) -> None:
        await three_flushes(node)
        await node.ask(RegisterConsumer("spark", node.state.cold.segments[1].segment.last_position))
        await node.ask(Delete("a/y"))
        handed = hand_in(node.state, node.store, node.node.now(), dead_by(node.state))
        await refused(node, handed, "a consumer has not read yet")
        await node.ask(RegisterConsumer("spark", node.state.position))
        assert isinstance(await swap(node, handed), int)

    on_a_node(work)


@pytest.mark.parametrize("change", [lambda handed: 1, lambda handed: 10**9])
def test_rows_are_not_said_to_be_dropped_where_none_was(change: Callable[[SwapRequest], int]) -> None:
    async def work(node: Bench) -> None:
        await three_flushes(node)
        handed = hand_in(node.state, node.store, node.node.now())
        await refused(node, replace(handed, dropped=change(handed)), "dropped must be 0")

    on_a_node(work)


def wrong(handed: SwapRequest, now: int) -> Iterator[tuple[SwapRequest, str]]:
    """Requests that are refused whatever the objects hold."""
    [key] = handed.keys
    yield replace(handed, shard=1), "Shard 1 does not exist"
    yield replace(handed, replaced=[]), "replaces 1 to"
    yield replace(handed, replaced=[1, 2, 3, 3]), "replaced twice"
    yield replace(handed, replaced=[1, 2, 3, 9]), "Segments [9] do not exist"
    yield replace(handed, replaced=list(range(swaps.SEGMENTS_MAX + 1))), "replaces 1 to"
    yield replace(handed, keys=[key] * (swaps.SEGMENTS_MAX + 1)), "replaces 1 to"
    yield replace(handed, keys=[key, key]), "named twice"
    yield replace(handed, keys=[key.replace("shard=0", "shard=1")]), "is not the key of a segment"
    yield replace(handed, keys=["../../etc/passwd"]), "is not the key of a segment"
    yield replace(handed, keys=[""]), "is not the key of a segment"
    yield replace(handed, deadline=now - SECOND_US), "has passed"
    yield replace(handed, deadline=now + 2 * DAY_US), "a day ahead"
    yield replace(handed, deadline=handed.deadline + SECOND_US), "is earlier than that of the swap"
    yield replace(handed, deadline=2**70), "a day ahead"
    id_ = key.rpartition("-")[2].removesuffix(".parquet")
    yield replace(handed, keys=[segment_key(0, 0, 5, id_)]), "are outside of"
    yield replace(handed, keys=[segment_key(0, 9, 8, id_)]), "are outside of"


def test_what_makes_no_sense_is_refused() -> None:
    async def work(node: Bench) -> None:
        await three_flushes(node)
        handed = hand_in(node.state, node.store, node.node.now())
        for changed, reason in wrong(handed, node.node.now()):
            await refused(node, changed, reason)
        assert isinstance(await swap(node, handed), int)
        for again, reason in (
            (handed, "they may have been replaced"),
            (replace(handed, replaced=[4]), "is already in use"),
        ):
            await refused(node, again, reason)

    on_a_node(work)


def test_a_key_that_lies_about_its_positions_is_refused() -> None:
    async def work(node: Bench) -> None:
        await three_flushes(node)
        handed = hand_in(node.state, node.store, node.node.now())
        [key] = handed.keys
        first = node.state.cold.segments[1].segment.first_position
        other = segment_key(0, first, first + 1, key.rpartition("-")[2].removesuffix(".parquet"))
        node.store.create(other, node.store.read(key))
        await refused(node, replace(handed, keys=[other]), "position is not within")

    on_a_node(work)


def test_a_swap_has_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(node: Bench) -> None:
        await three_flushes(node)
        handed = hand_in(node.state, node.store, node.node.now())
        for limit in ("STREAMS_PER_SEGMENT_MAX", "LIVES_MAX"):
            with monkeypatch.context() as patch:
                patch.setattr(swaps, limit, 2)
                await refused(node, handed, "applied in one step")

    on_a_node(work)


def test_while_the_store_is_away_a_swap_can_be_tried_again() -> None:
    async def work(node: Bench) -> None:
        await three_flushes(node)
        handed = hand_in(node.state, node.store, node.node.now())
        for call in ("read", "items"):
            node.store.plan[call] = Fault.FAIL_BEFORE
            outcome = await swap(node, handed)
            assert isinstance(outcome, Refusal)
            assert outcome.code is Code.OVERLOADED
            node.store.heal()
        assert isinstance(await swap(node, handed), int)

    on_a_node(work)


# -- At random -------------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 2**32))
def test_no_reader_notices_a_swap_whatever_is_requested(seed: int) -> None:
    lake = small_lake.Lake()
    chance = small_lake.Chance(lake, seed)
    handed_in = Swaps(lake.parts)
    random = chance.random
    for _ in range(6):
        for _ in range(random.randint(0, 30)):
            chance.act()
        numbers = sorted(random.sample(list(lake.state.cold.segments), min(len(lake.state.cold.segments), 4)))
        if numbers:
            lowest = lake.state.cold.lowest_consumer(lake.now)
            keep = random.choice([KEEP_ALL, dead_by(lake.state)._replace(lowest_consumer=lowest), dead_by(lake.state)])
            handed = hand_in(lake.state, lake.store, lake.now, keep, numbers)
            before = lake.seen()
            asyncio.run(handed_in.swap(handed))
            assert lake.seen() == before
            lake.check()
    asyncio.run(handed_in.stop())
    asyncio.run(lake.compactor.stop())


def placed(seed: int) -> bool:
    """Whether a rewrite of everything in a random lake is swapped."""
    lake = small_lake.Lake()
    chance = small_lake.Chance(lake, seed)
    handed_in = Swaps(lake.parts)
    while not lake.state.cold.segments or chance.random.random() < 0.98:
        chance.act()
    keep = dead_by(lake.state)._replace(lowest_consumer=lake.state.cold.lowest_consumer(lake.now))
    outcome = asyncio.run(handed_in.swap(hand_in(lake.state, lake.store, lake.now, keep)))
    asyncio.run(handed_in.stop())
    asyncio.run(lake.compactor.stop())
    return isinstance(outcome, int)


def test_what_is_handed_in_by_chance_is_often_right() -> None:
    assert sum(placed(seed) for seed in range(20)) > 10
