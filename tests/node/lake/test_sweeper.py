"""The sweeper: what it deletes, and how little of the lake it looks at."""

import asyncio

from headwater.lake.format import segment_key
from headwater.streams.cold import Retired

from .histories import Counted, with_history
from .lakes import bench


def test_a_search_for_orphans_does_not_look_at_the_segments_of_the_state() -> None:
    async def run() -> None:
        state = with_history(0, 5_000)
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
