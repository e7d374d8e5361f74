"""Tiering: how publishing a segment and swapping segments change the state.

A publication names lives, each with its rows. Rows of a life that has ended are dead. All other rows must be the next
whole appends after what the lake has of that life, or the publication has no effect at all. A swap replaces segments:
for every life with rows in the old ones, the new rows must cover the same bytes.
"""

from bisect import bisect_left
from operator import attrgetter

import msgspec

from headwater.streams.cold import ALL
from headwater.streams.commands.lake import ForgetSegments, Publication, PublishSegment, SwapSegments
from headwater.streams.handling import handles
from headwater.streams.hot import Hot
from headwater.streams.replies import Done, Misplaced, Placed, Reply
from headwater.streams.segments import DeadRows, Extent, Rows
from headwater.streams.state import State, Stream

_END = attrgetter("end")


class _Move(msgspec.Struct, frozen=True, gc=False):
    """What the rows of one life replace: the extents `first` to `stop`, and the first `appends` hot appends."""

    stream: Stream
    rows: Rows
    first: int
    stop: int
    appends: int


def _life(state: State, rows: Rows) -> Stream | None:
    """The life that rows belong to, if they can still be read."""
    stream = state.streams.get(rows.name)
    if stream is None or stream.incarnation != rows.incarnation or rows.end <= stream.floor:
        return None
    return stream


def _names_a_life_twice(publication: Publication) -> bool:
    return len({rows.incarnation for rows in publication.rows}) < len(publication.rows)


# -- Publishing -------------------------------------------------------------------------------------------------------


@handles(PublishSegment)
def publish(state: State, command: PublishSegment) -> Reply:
    """Move rows from the hot appends to a segment."""
    segment = command.publication.segment
    if state.now > command.deadline:
        return Misplaced(f"Segment {segment.id} was published after its deadline.")
    keeper = state.cluster.keeper
    if command.epoch is not None and (keeper is None or keeper.epoch != command.epoch):
        return Misplaced(f"Segment {segment.id} was published after another node had taken over the chores.")
    if _names_a_life_twice(command.publication):
        return Misplaced(f"Segment {segment.id} names an incarnation twice.")
    if segment.id in state.cold.withdrawn:
        return Misplaced(f"Segment {segment.id} was withdrawn.")
    moves = []
    for rows in command.publication.rows:
        stream = _life(state, rows)
        if stream is not None:
            move = _flushed(stream, rows)
            if move is None:
                return Misplaced(f"Segment {segment.id} does not continue what the lake has of {rows.name!r}.")
            moves.append(move)
    _place(state, command.publication, moves)
    state.cold.flushed = max(state.cold.flushed, command.flushed)
    state.cold.changed_at = state.position
    return Placed()


def _flushed(stream: Stream, rows: Rows) -> _Move | None:
    appends: list[Hot] = stream.hot or []
    last = bisect_left(appends, rows.end, key=_END)
    if last == len(appends) or appends[last].end != rows.end:
        return None
    extents = stream.extents
    fits = extents[-1].end == rows.start if extents else rows.start <= appends[0].offset
    return _Move(stream, rows, len(extents), len(extents), last + 1) if fits else None


def _place(state: State, publication: Publication, moves: list[_Move]) -> None:
    """Add a segment, and let every life with live rows in it refer to it."""
    cold = state.cold
    number = cold.hold(publication.segment, sum(move.rows.rows for move in moves))
    living = set()
    for move in moves:
        stream, rows = move.stream, move.rows
        living.add(rows.incarnation)
        state.before_change(stream)
        extent = Extent(number, rows.row, rows.rows, rows.start, rows.end, rows.record)
        stream.extents = (*stream.extents[: move.first], extent, *stream.extents[move.stop :])
        if move.appends:
            state.cool(stream, move.appends)
        if stream.deleted:
            cold.hide(stream.name, stream.incarnation, ALL, [extent.dead])
        elif rows.start < stream.start:
            state.trim(stream)
    for rows in publication.rows:
        if rows.incarnation not in living:
            dead = DeadRows(number, rows.row, rows.rows)
            cold.hide(rows.name, rows.incarnation, _dead_below(state, rows), [dead])


def _dead_below(state: State, rows: Rows) -> int:
    """The offset below which unneeded rows are dead: the start of a life that is alive, otherwise all of them."""
    stream = state.streams.get(rows.name)
    gone = stream is None or stream.incarnation != rows.incarnation or stream.deleted
    return ALL if stream is None or gone else stream.start


# -- Swapping ---------------------------------------------------------------------------------------------------------


@handles(SwapSegments)
def swap(state: State, command: SwapSegments) -> Reply:
    """Replace segments by new ones."""
    refusal = _judge_swap(state, command)
    if refusal is not None:
        return refusal
    replaced = frozenset(command.replaced)
    moved: set[int] = set()
    placed: list[tuple[Publication, list[_Move]]] = []
    rows_left = {number: state.cold.segments[number].live_rows for number in replaced}
    for publication in command.publications:
        moves = []
        for rows in publication.rows:
            stream = _life(state, rows)
            if stream is None:
                continue
            move = _rewritten(stream, rows, replaced)
            if move is None or rows.incarnation in moved:
                return Misplaced(f"The rewritten rows of {rows.name!r} differ from those in the lake.")
            moved.add(rows.incarnation)
            for extent in stream.extents[move.first : move.stop]:
                rows_left[extent.segment] -= extent.rows
            moves.append(move)
        placed.append((publication, moves))
    if any(rows_left.values()):
        return Misplaced("The rewrite omits rows that are still needed.")
    for publication, moves in placed:
        _place(state, publication, moves)
    for number in command.replaced:
        state.cold.take_out(number, state.position)
    state.cold.dropped = max(state.cold.dropped, command.dropped)
    state.cold.changed_at = state.position
    return Placed()


def _judge_swap(state: State, command: SwapSegments) -> Misplaced | None:
    if state.now > command.deadline:
        return Misplaced("The rewrite was submitted after its deadline.")
    missing = [number for number in command.replaced if number not in state.cold.segments]
    if missing or len(set(command.replaced)) != len(command.replaced):
        return Misplaced(
            f"Segments {missing or command.replaced} cannot be replaced: each must be live and be named once."
        )
    if any(_names_a_life_twice(publication) for publication in command.publications):
        return Misplaced("A segment of the rewrite names an incarnation twice.")
    if any(publication.segment.id in state.cold.withdrawn for publication in command.publications):
        return Misplaced("A segment of the rewrite was withdrawn.")
    if command.dropped > state.cold.lowest_consumer(state.now):
        return Misplaced("The rewrite drops rows that a consumer has not read yet.")
    return None


def _rewritten(stream: Stream, rows: Rows, replaced: frozenset[int]) -> _Move | None:
    extents = stream.extents
    first = next((index for index, extent in enumerate(extents) if extent.segment in replaced), len(extents))
    stop = first
    while stop < len(extents) and extents[stop].segment in replaced:
        stop += 1
    if first == stop or any(extent.segment in replaced for extent in extents[stop:]):
        return None
    # Only dead rows precede the first extent, and those may be kept; any other extent follows its neighbour's rows.
    begins = rows.start == extents[first].start or (first == 0 and rows.start < extents[0].start)
    fits = begins and rows.end == extents[stop - 1].end
    return _Move(stream, rows, first, stop, 0) if fits else None


@handles(ForgetSegments)
def forget(state: State, command: ForgetSegments) -> Reply:
    """The objects were deleted from the store."""
    for segment_id in command.ids:
        state.cold.retired.pop(segment_id, None)
    return Done()
