"""The sweeper: what it deletes, and how little of the lake it looks at."""

import asyncio

import pytest

from headwater.lake.format import new_segment_id, segment_key
from headwater.log.seam import Reached
from headwater.streams.cold import Retired
from headwater.streams.segments import Segment
from headwater.streams.state import State

from ...streams.shards import START_US
from .histories import Counted, with_history
from .lakes import bench


def test_a_search_for_orphans_does_not_look_at_the_segments_of_the_state() -> None:
    async def run() -> None:
        state = with_history(0, 5_000)
        state.now = 1_001
        held = [one.segment for one in state.cold.segments.values()]
        async with bench(state=state, history_seconds=0.0) as node:
            for segment in held:
                node.store.store.create(
                    segment_key(0, segment.first_position, segment.last_position, segment.id), b"named by the state"
                )
            node.store.store.create(segment_key(0, 1, 1, "00000000001orphan"), b"named by nothing")
            assert not await node.housekeeping.compactor.compact_once()
            segments = Counted(state.cold.segments)
            state.cold.segments = segments
            await node.housekeeping.sweeper.sweep_orphans()
            assert segments.seen == 0
            assert len(node.segments()) == len(held)

    asyncio.run(run())


def test_retired_segments_go_in_the_order_of_their_retirement_up_to_the_catalog_without_them() -> None:
    async def run() -> None:
        state = with_history(1, 3)
        cold = state.cold
        for number, position in ((1, 2), (2, 3), (3, state.position + 10)):
            cold.retired[cold.segments[number].segment.id] = Retired(cold.segments[number].segment, position)
        ids = list(cold.retired)
        async with bench(state=state, history_seconds=0.0) as node:
            await node.create("b/s", b"one")
            await node.lake.flush()
            assert node.catalog().position < cold.retired[ids[2]].position
            await node.housekeeping.sweeper.sweep_retired()
            assert list(cold.retired) == ids[2:]

    asyncio.run(run())


ORPHAN_ID = new_segment_id(START_US, "x")
ORPHAN = segment_key(0, 1, 1, ORPHAN_ID)
GRACE_US = 900_000_000


@pytest.mark.parametrize(("now", "goes"), [(START_US + GRACE_US, False), (START_US + GRACE_US + 1, True)])
def test_an_orphan_goes_when_the_time_of_the_log_says_so_and_not_when_the_clock_does(now: int, goes: bool) -> None:
    async def run() -> None:
        state = State("journal")
        state.now = now
        async with bench(state=state) as node:
            assert node.node.now() > START_US + 2 * GRACE_US, "by the clock it has long been time"
            node.store.store.create(ORPHAN, b"named by nothing")
            await node.housekeeping.sweeper.sweep_orphans()
            assert node.segments() == ([] if goes else [ORPHAN])

    asyncio.run(run())


def test_nothing_goes_while_the_barrier_is_not_reached() -> None:
    async def run() -> None:
        state = with_history(1, 3)
        state.now = START_US + 2 * GRACE_US
        for number in (1, 2):
            segment = state.cold.segments[number].segment
            state.cold.retired[segment.id] = Retired(segment, 0)
        async with bench(state=state, history_seconds=0.0) as node:
            sweeper = node.housekeeping.sweeper
            sweeper._barrier = lambda reached: reached(False)
            node.store.store.create(ORPHAN, b"named by nothing")
            await sweeper.sweep_orphans()
            await sweeper.sweep_retired()
            assert (node.segments(), len(state.cold.retired)) == ([ORPHAN], 2)

    asyncio.run(run())


def test_a_segment_that_was_published_before_the_barrier_is_no_orphan() -> None:
    """A node that lags behind learns of the publication before it deletes."""

    async def run() -> None:
        state = State("journal")
        async with bench(state=state) as node:
            sweeper = node.housekeeping.sweeper

            def catch_up(reached: Reached) -> None:
                segment = Segment(ORPHAN_ID, 1, 1, 0, 0, "b/a", "b/z", 9, 9, 99, 9, 9)
                state.cold.hold(segment, 1)
                state.now = START_US + 2 * GRACE_US
                reached(True)

            sweeper._barrier = catch_up
            node.store.store.create(ORPHAN, b"named by a state that this node has yet to reach")
            await sweeper.sweep_orphans()
            assert node.segments() == [ORPHAN]

    asyncio.run(run())
