"""Reads: which slices of which appends make up a page; never the bytes themselves.

A fork's bytes below its fork point belong to its source, and so on up the chain; `source_of` finds the life that an
origin names, whichever shard it is in. In JSON streams only message boundaries are valid offsets; elsewhere every byte
is one.

Cold bytes come as runs, which the caller fetches from the lake: a query that needs a run that has not been fetched
raises `NotFetched` and is repeated from the start once the run is there. The state may have changed in the meantime.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import attrgetter

import msgspec

from headwater.protocol.content_types import is_json, is_text
from headwater.protocol.limits import PAGE_MESSAGES_MAX
from headwater.protocol.refusals import Code, Refusal
from headwater.streams.commands.forks import Origin
from headwater.streams.cuts import cut
from headwater.streams.fetched import NOTHING_FETCHED, Fetched, Piece
from headwater.streams.hot import Hot
from headwater.streams.queries import Anchor
from headwater.streams.replies import Anchored
from headwater.streams.state import Stream

SourceOf = Callable[[Origin], Stream]

_OFFSET = attrgetter("offset")
_RECORD = attrgetter("record")
_END = attrgetter("end")


class Slice(msgspec.Struct, frozen=True, gc=False):
    """The bytes from offset `start` to `end`, within the pieces `first` to `stop` of one stream."""

    pieces: Sequence[Piece]
    first: int
    stop: int
    start: int
    end: int

    def parts(self) -> Iterator[tuple[Piece, int, int]]:
        """Each piece, and which bytes of its payload belong to the slice."""
        for piece in self.pieces[self.first : self.stop]:
            yield piece, max(self.start - piece.offset, 0), min(self.end - piece.offset, len(piece.payload))


class Plan(msgspec.Struct, frozen=True, gc=False):
    """The slices of a page, and where the next page begins."""

    slices: list[Slice]
    next_offset: int


def judge(stream: Stream, offset: int, source_of: SourceOf, fetched: Fetched = NOTHING_FETCHED) -> Refusal | None:
    """Why a read cannot begin at `offset`, or None."""
    if offset > stream.tail:
        return Refusal(
            Code.OFFSET_BEYOND_TAIL,
            f"The offset is beyond the tail of {stream.name!r}; use an offset that the server returned.",
            incarnation=stream.incarnation,
            next_offset=stream.tail,
        )
    if offset < stream.start:
        return Refusal(
            Code.OFFSET_TRIMMED,
            f"Stream {stream.name!r} no longer has data that old; it was trimmed.",
            incarnation=stream.incarnation,
            earliest_offset=stream.start,
        )
    if not is_json(stream.content_type) or record_at(stream, offset, source_of, fetched) is not None:
        return None
    return Refusal(
        Code.OFFSET_UNALIGNED,
        f"The offset is inside a message of {stream.name!r}; use an offset that the server returned.",
        incarnation=stream.incarnation,
        next_offset=stream.tail,
    )


def plan(
    stream: Stream,
    offset: int,
    bytes_max: int,
    source_of: SourceOf,
    fetched: Fetched = NOTHING_FETCHED,
    *,
    messages_max: int = PAGE_MESSAGES_MAX,
) -> Plan:
    """A page from `offset`, which has been judged: whole messages up to both limits, or a longer one, whole if JSON.

    Costs a binary search or two in the list of appends, however many of them the page spans.
    """
    slices: list[Slice] = []
    position, until, record_until = offset, offset + bytes_max, 0
    # A message has at least a byte, so a short range does not have too many.
    may_be_many = min(bytes_max, stream.tail - offset) > messages_max
    for pieces_of, limit in _stretches(stream, offset, source_of, fetched):
        if position < limit:
            pieces = pieces_of(position, max(min(until, limit), position + 1))
            first = bisect_right(pieces, position, key=_OFFSET) - 1
            if may_be_many:
                record_until = record_until or _record_from(pieces[first], position) + messages_max
                until = min(until, _offset_from(pieces, record_until, until))
            end = limit if until >= limit else _boundary_before(pieces, until)
            if end <= position and not slices:
                end = min(_end_within(pieces[first], stream.content_type, position, until), limit)
            if end > position:
                slices.append(Slice(pieces, first, bisect_left(pieces, end, key=_OFFSET), position, end))
                position = end
            if end < limit or end >= until:
                break
    return Plan(slices, position)


def slice_of(stream: Stream, start: int, end: int) -> Slice:
    """A range of a stream's own bytes that is entirely in memory."""
    appends: list[Hot] = stream.hot or []
    first = bisect_right(appends, start, key=_OFFSET) - 1
    stop = len(appends) if end == stream.tail else bisect_left(appends, end, key=_OFFSET)
    return Slice(appends, first, stop, start, end)


PiecesOf = Callable[[int, int], Sequence[Piece]]


def _stretches(
    stream: Stream, offset: int, source_of: SourceOf, fetched: Fetched = NOTHING_FETCHED
) -> Iterator[tuple[PiecesOf, int]]:
    """Where the bytes from `offset` come from, and up to which offset: oldest source first, lake before memory."""
    for owner, limit in owners(stream, offset, source_of):
        if owner.extents:
            yield partial(fetched.covering, owner), min(owner.hot_start, limit)
        yield partial(_in_memory, owner.hot or []), limit


def _in_memory(appends: list[Hot], _start: int, _end: int) -> list[Hot]:
    return appends


def owners(stream: Stream, offset: int, source_of: SourceOf) -> list[tuple[Stream, int]]:
    """The streams that own the bytes from `offset`, and up to which offset; oldest source first."""
    found = [(stream, stream.tail)]
    while stream.origin is not None and offset < stream.origin.to:
        limit = min(stream.origin.to, found[-1][1])
        stream = source_of(stream.origin)
        found.append((stream, limit))
    found.reverse()
    return found


def _boundary_before(pieces: Sequence[Piece], position: int) -> int:
    """The last message boundary at or before a position."""
    piece = pieces[bisect_right(pieces, position, key=_OFFSET) - 1]
    ends = piece.message_ends
    index = bisect_right(ends, position - piece.offset)
    return piece.offset + (ends[index - 1] if index else 0)


def _end_within(piece: Piece, content_type: str, position: int, until: int) -> int:
    """Where a page ends whose first message does not fit: JSON stays whole, and so do the characters of text."""
    if is_json(content_type):
        return _boundary_after(piece, position)
    return cut(piece.payload, piece.offset, position, until) if is_text(content_type) else until


def _record_from(piece: Piece, position: int) -> int:
    """The number of the message at a position in a piece."""
    return piece.record + bisect_right(piece.message_ends, position - piece.offset)


def _offset_from(pieces: Sequence[Piece], record: int, otherwise: int) -> int:
    """Where the message with this number begins, if it is among the pieces."""
    piece = pieces[bisect_right(pieces, record, key=_RECORD) - 1]
    index = record - piece.record
    if index >= piece.messages:
        return otherwise
    return piece.offset + (piece.message_ends[index - 1] if index else 0)


def _boundary_after(piece: Piece, position: int) -> int:
    """The next message boundary after a position in a piece."""
    ends = piece.message_ends
    return piece.offset + ends[bisect_right(ends, position - piece.offset)]


def record_at(stream: Stream, offset: int, source_of: SourceOf, fetched: Fetched = NOTHING_FETCHED) -> int | None:
    """The number of messages before an offset; None if it is not a message boundary."""
    if offset == stream.tail:
        return stream.record_next
    if offset == stream.start:
        return stream.record_start
    while stream.origin is not None and offset <= stream.origin.to:
        if offset == stream.origin.to:
            return stream.origin.record_to
        stream = source_of(stream.origin)
    hot = stream.hot
    if hot and offset >= hot[0].offset:
        piece: Piece = hot[bisect_right(hot, offset, key=_OFFSET) - 1]
    else:
        piece = fetched.around(stream, offset)
    ends = piece.message_ends
    within = offset - piece.offset
    index = bisect_right(ends, within)
    return piece.record + index if within == 0 or (index and ends[index - 1] == within) else None


def offset_of(stream: Stream, record: int, source_of: SourceOf, fetched: Fetched = NOTHING_FETCHED) -> int:
    """The offset at which a retained record begins; the tail for the next record number."""
    if record == stream.record_next:
        return stream.tail
    while stream.origin is not None and record < stream.origin.record_to:
        stream = source_of(stream.origin)
    hot = stream.hot
    if hot and record >= hot[0].record:
        piece: Piece = hot[bisect_right(hot, record, key=_RECORD) - 1]
    else:
        piece = fetched.with_record(stream, record)
    index = record - piece.record
    return piece.offset + (piece.message_ends[index - 1] if index else 0)


def anchor(
    stream: Stream, query: Anchor, source_of: SourceOf, fetched: Fetched = NOTHING_FETCHED
) -> Anchored | Refusal:
    """The byte position of a fork point: at most the end of the append that contains the anchor."""
    offset, steps = query.offset, query.sub_offset
    refusal = judge(stream, offset, source_of, fetched)
    if refusal is not None:
        return refusal
    if offset == stream.tail:
        return _overshoot(stream, steps) if steps else Anchored(stream.incarnation, offset, stream.record_next)
    owner, limit = owners(stream, offset, source_of)[0]
    hot = owner.hot
    if hot and offset >= hot[0].offset:
        piece: Piece = hot[bisect_right(hot, offset, key=_OFFSET) - 1]
    else:
        piece = fetched.covering(owner, offset, offset + 1)[0]
    ends, within = piece.message_ends, offset - piece.offset
    message = bisect_right(ends, within)
    limit = min(_append_end(piece, ends, message), limit)
    if is_json(stream.content_type):
        index = message + steps
        if index > bisect_right(ends, limit - piece.offset):
            return _overshoot(stream, steps)
        return Anchored(stream.incarnation, piece.offset + (ends[index - 1] if index else 0), piece.record + index)
    to = offset + steps
    if to > limit:
        return _overshoot(stream, steps)
    begins = piece.offset + (ends[message - 1] if message else 0)
    return Anchored(stream.incarnation, to, piece.record + message + (1 if to > begins else 0))


def _append_end(piece: Piece, ends: Sequence[int], message: int) -> int:
    """Where the append ends that contains this message of a piece."""
    if isinstance(piece, Hot):
        return piece.end
    appends = memoryview(piece.appends).cast("q")
    return piece.offset + ends[bisect_right(appends, appends[message]) - 1]


def _overshoot(stream: Stream, steps: int) -> Refusal:
    return Refusal(
        Code.INVALID_OFFSET,
        f"Stream-Fork-Sub-Offset {steps} is beyond the append of {stream.name!r} that contains the fork offset.",
        incarnation=stream.incarnation,
        next_offset=stream.tail,
    )
