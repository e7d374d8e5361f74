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

from headwater.protocol.content_types import is_json
from headwater.protocol.refusals import Code, Refusal
from headwater.streams.commands import Origin
from headwater.streams.queries import Anchor
from headwater.streams.replies import Anchored
from headwater.streams.state import Hot, Stream

SourceOf = Callable[[Origin], Stream]

_OFFSET = attrgetter("offset")
_RECORD = attrgetter("record")
_END = attrgetter("end")


class Run(msgspec.Struct, frozen=True, gc=False):
    """Consecutive messages of one stream, fetched from the lake; whole appends only."""

    offset: int
    payload: bytes
    ends: tuple[int, ...]
    record: int
    appends: tuple[int, ...]
    """For each message, the offset at which its append began."""

    @property
    def end(self) -> int:
        return self.offset + len(self.payload)


Piece = Hot | Run


class NotFetched(Exception):
    """A query needs bytes of a life that are in the lake: a range, or the message with a record number."""

    def __init__(self, stream: Stream, start: int, end: int, record: int | None = None) -> None:
        super().__init__(stream.name, start, end, record)
        self.stream, self.start, self.end, self.record = stream, start, end, record


class Fetched:
    """The runs fetched for one query, by life."""

    def __init__(self) -> None:
        # A fork and its source may be in two shards, and each shard has its own incarnation numbers.
        self._runs: dict[tuple[str, int], list[Run]] = {}

    def _known(self, stream: Stream) -> list[Run]:
        return self._runs.get((stream.name, stream.incarnation), [])

    def add(self, stream: Stream, runs: Sequence[Run]) -> None:
        """Add consecutive runs; known runs that overlap them came from an older segment and are dropped."""
        if runs:
            start, end = runs[0].offset, runs[-1].end
            known = self._known(stream)
            before = [run for run in known if run.end <= start]
            after = [run for run in known if run.offset >= end]
            self._runs[stream.name, stream.incarnation] = [*before, *runs, *after]

    def covering(self, stream: Stream, start: int, end: int) -> list[Run]:
        """Consecutive runs that cover a whole range."""
        known = self._known(stream)
        first = stop = max(bisect_right(known, start, key=_OFFSET) - 1, 0)
        reached = start
        while stop < len(known) and known[stop].offset <= reached < end:
            reached = known[stop].end
            stop += 1
        if reached < end:
            raise NotFetched(stream, max(reached, start), end)
        return known[first:stop]

    def around(self, stream: Stream, offset: int) -> Run:
        """A run that contains the byte at an offset, or ends there."""
        known = self._known(stream)
        at = bisect_left(known, offset, key=_END)
        if at == len(known) or known[at].offset > offset:
            raise NotFetched(stream, offset, offset + 1)
        return known[at]

    def with_record(self, stream: Stream, record: int) -> Run:
        """The run that contains the message with this record number."""
        known = self._known(stream)
        at = bisect_right(known, record, key=_RECORD) - 1
        if at < 0 or record >= known[at].record + len(known[at].ends):
            raise NotFetched(stream, 0, 0, record)
        return known[at]


NOTHING_FETCHED = Fetched()


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


def plan(stream: Stream, offset: int, bytes_max: int, source_of: SourceOf, fetched: Fetched = NOTHING_FETCHED) -> Plan:
    """A page from `offset`, which has been judged: whole messages up to `bytes_max`, and at least one.

    Costs a binary search or two in the list of appends, however many of them the page spans.
    """
    slices: list[Slice] = []
    position, until = offset, offset + bytes_max
    for pieces_of, limit in _stretches(stream, offset, source_of, fetched):
        if position < limit:
            pieces = pieces_of(position, max(min(until, limit), position + 1))
            first = bisect_right(pieces, position, key=_OFFSET) - 1
            end = limit if until >= limit else _boundary_before(pieces, until)
            if end <= position and not slices:
                end = min(_boundary_after(pieces[first], position), limit)
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
    return Slice(appends, first, bisect_left(appends, end, key=_OFFSET), start, end)


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
    ends = piece.ends or (len(piece.payload),)
    index = bisect_right(ends, position - piece.offset)
    return piece.offset + (ends[index - 1] if index else 0)


def _boundary_after(piece: Piece, position: int) -> int:
    """The next message boundary after a position in a piece."""
    ends = piece.ends or (len(piece.payload),)
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
    ends = piece.ends or (len(piece.payload),)
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
    return piece.offset + ((piece.ends or ())[index - 1] if index else 0)


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
    ends, within = piece.ends or (len(piece.payload),), offset - piece.offset
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


def _append_end(piece: Piece, ends: tuple[int, ...], message: int) -> int:
    """Where the append ends that contains this message of a piece."""
    if isinstance(piece, Hot):
        return piece.end
    return piece.offset + ends[bisect_right(piece.appends, piece.appends[message]) - 1]


def _overshoot(stream: Stream, steps: int) -> Refusal:
    return Refusal(
        Code.INVALID_OFFSET,
        f"Stream-Fork-Sub-Offset {steps} is beyond the append of {stream.name!r} that contains the fork offset.",
        incarnation=stream.incarnation,
        next_offset=stream.tail,
    )
