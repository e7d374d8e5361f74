"""Rewrites as made outside the server: from the objects in the store and what a catalog says about them."""

from collections.abc import Iterable
from itertools import count
from typing import NamedTuple

from headwater.lake.compaction.rewriting import Cuts, Keep, Rewritten, rewrite
from headwater.lake.format import new_segment_id, segment_key
from headwater.lake.segments.reader import Read
from headwater.lake.segments.writer import Written
from headwater.node.lake.swaps import SwapRequest
from headwater.protocol.limits import MINUTE_US
from headwater.storage.store import Store
from headwater.streams.cold import ALL, Cold
from headwater.streams.segments import Segment
from headwater.streams.state import State

_ids = count()
CUTS = Cuts(1 << 30, 10_000)


class Rewrite(NamedTuple):
    """New segments that are not stored yet."""

    written: list[Written]
    result: Rewritten


def key_of(segment: Segment) -> str:
    return segment_key(0, segment.first_position, segment.last_position, segment.id)


def dead_by(state: State) -> Keep:
    """Keep what any life still needs, and drop the rest."""

    def dead_below(name: str, incarnation: int) -> int:
        stream = state.streams.get(name)
        if stream is None or stream.incarnation != incarnation or not stream.extents:
            return ALL
        return stream.extents[0].start

    return Keep(dead_below, ALL)


KEEP_ALL = Keep(lambda name, incarnation: 0, ALL)


def rewritten(store: Store, cold: Cold, numbers: Iterable[int], deadline: int, keep: Keep = KEEP_ALL) -> Rewrite:
    """The rows of some segments as new ones."""

    def read_of(segment: Segment) -> Read:
        return lambda start, size: store.read(key_of(segment), start, size)

    written: list[Written] = []
    result = rewrite(
        read_of,
        [cold.segments[number].segment for number in numbers],
        keep,
        CUTS,
        new_id=lambda: new_segment_id(deadline, f"w{next(_ids)}"),
        put=written.append,
    )
    return Rewrite(written, result)


def put(store: Store, written: Iterable[Written]) -> list[str]:
    """Store new segments, and return their keys."""
    keys = []
    for one in written:
        keys.append(key_of(one.segment))
        store.create(keys[-1], one.data)
    return keys


def hand_in(
    state: State, store: Store, now: int, keep: Keep = KEEP_ALL, numbers: Iterable[int] | None = None
) -> SwapRequest:
    """Rewrite segments (by default all), store the new ones, and return the request to swap them."""
    numbers = list(state.cold.segments if numbers is None else numbers)
    deadline = now + MINUTE_US
    made = rewritten(store, state.cold, numbers, deadline, keep)
    return SwapRequest(0, numbers, put(store, made.written), made.result.dropped, deadline)
