"""Reads: which slices of which appends make up a page; never the bytes themselves.

A fork's bytes below its fork point are its source's, and so on up the chain; `source_of` finds the life that an origin
names, in whatever shard it is. In JSON streams only borders between messages are offsets; elsewhere any byte is.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from operator import attrgetter

import msgspec

from headwater.protocol.commands import Origin
from headwater.protocol.content_types import is_json
from headwater.protocol.queries import Anchor
from headwater.protocol.refusals import Code, Refusal
from headwater.protocol.replies import Anchored
from headwater.streams.state import Hot, Stream

SourceOf = Callable[[Origin], Stream]

_OFFSET = attrgetter("offset")
_RECORD = attrgetter("record")


class Run(msgspec.Struct, frozen=True, gc=False):
    """Neighbouring messages of one stream that came from the lake; whole appends only."""

    offset: int
    payload: bytes
    ends: tuple[int, ...]
    record: int
    appends: tuple[int, ...]
    """For each message the offset at which the append that brought it began."""

    @property
    def end(self) -> int:
        return self.offset + len(self.payload)


class Slice(msgspec.Struct, frozen=True, gc=False):
    """The bytes from position `start` to `end`, within the appends `first` to `stop` of one stream's own."""

    appends: list[Hot]
    first: int
    stop: int
    start: int
    end: int

    def parts(self) -> Iterator[tuple[Hot, int, int]]:
        """Each append, and which bytes of its payload are meant."""
        for hot in self.appends[self.first : self.stop]:
            yield hot, max(self.start - hot.offset, 0), min(self.end - hot.offset, len(hot.payload))


class Plan(msgspec.Struct, frozen=True, gc=False):
    """The slices of a page, and where the next one begins."""

    slices: list[Slice]
    next_offset: int


def judge(stream: Stream, offset: int, source_of: SourceOf) -> Refusal | None:
    """Why a read cannot begin at `offset`, or None."""
    if offset > stream.tail:
        return Refusal(
            Code.OFFSET_BEYOND_TAIL,
            f"The offset lies beyond the tail of {stream.name!r}; read from an offset that the server gave you.",
            incarnation=stream.incarnation,
            next_offset=stream.tail,
        )
    if offset < stream.start:
        return Refusal(
            Code.OFFSET_TRIMMED,
            f"The stream {stream.name!r} no longer holds bytes that early.",
            incarnation=stream.incarnation,
            earliest_offset=stream.start,
        )
    if offset in (stream.tail, stream.start) or not is_json(stream.content_type):
        return None
    hot, _ = _append_at(stream, offset, source_of)
    within = offset - hot.offset
    if within == 0 or within in (hot.ends or ()):
        return None
    return Refusal(
        Code.OFFSET_UNALIGNED,
        f"The offset lies inside a message of {stream.name!r}; read from an offset that the server gave you.",
        incarnation=stream.incarnation,
        next_offset=stream.tail,
    )


def plan(stream: Stream, offset: int, bytes_max: int, source_of: SourceOf) -> Plan:
    """A page from `offset` on, which has been judged: whole messages up to `bytes_max`, and at least one.

    Costs a search or two in the list of appends, however many of them the page spans.
    """
    slices: list[Slice] = []
    position, until = offset, offset + bytes_max
    for appends, limit in _owners(stream, offset, source_of):
        if position < limit:
            first = bisect_right(appends, position, key=_OFFSET) - 1
            end = limit if until >= limit else _border_before(appends, until)
            if end <= position and not slices:
                end = min(_border_after(appends[first], position), limit)
            if end > position:
                slices.append(Slice(appends, first, bisect_left(appends, end, key=_OFFSET), position, end))
                position = end
            if end < limit or end >= until:
                break
    return Plan(slices, position)


def _owners(stream: Stream, offset: int, source_of: SourceOf) -> list[tuple[list[Hot], int]]:
    """Whose appends hold the bytes from `offset` on, each up to which position; the oldest source first."""
    owners = [(stream.hot or [], stream.tail)]
    while stream.origin is not None and offset < stream.origin.to:
        limit = min(stream.origin.to, owners[-1][1])
        stream = source_of(stream.origin)
        owners.append((stream.hot or [], limit))
    owners.reverse()
    return owners


def _append_at(stream: Stream, offset: int, source_of: SourceOf) -> tuple[Hot, int]:
    """The append that holds the byte at `offset`, and up to which position it is part of the stream."""
    appends, limit = _owners(stream, offset, source_of)[0]
    hot = appends[bisect_right(appends, offset, key=_OFFSET) - 1]
    return hot, min(hot.end, limit)


def _border_before(appends: list[Hot], position: int) -> int:
    """The last border between messages at or before a position."""
    hot = appends[bisect_right(appends, position, key=_OFFSET) - 1]
    ends = hot.ends or (len(hot.payload),)
    index = bisect_right(ends, position - hot.offset)
    return hot.offset + (ends[index - 1] if index else 0)


def _border_after(hot: Hot, position: int) -> int:
    """The next border between messages behind a position in an append."""
    ends = hot.ends or (len(hot.payload),)
    return hot.offset + ends[bisect_right(ends, position - hot.offset)]


def record_at(stream: Stream, offset: int, source_of: SourceOf) -> int | None:
    """How many messages end at or before an offset, if a border between messages is there; None within a message."""
    if offset == stream.tail:
        return stream.record_next
    hot, _ = _append_at(stream, offset, source_of)
    ends = hot.ends or (len(hot.payload),)
    within = offset - hot.offset
    index = bisect_right(ends, within)
    return hot.record + index if within == 0 or (index and ends[index - 1] == within) else None


def offset_of(stream: Stream, record: int, source_of: SourceOf) -> int:
    """The offset at which a retained record begins; the tail for the next one."""
    if record == stream.record_next:
        return stream.tail
    while stream.origin is not None and record < stream.origin.record_to:
        stream = source_of(stream.origin)
    appends = stream.hot or []
    hot = appends[bisect_right(appends, record, key=_RECORD) - 1]
    index = record - hot.record
    return hot.offset + ((hot.ends or ())[index - 1] if index else 0)


def anchor(stream: Stream, query: Anchor, source_of: SourceOf) -> Anchored | Refusal:
    """The byte position of a fork point: at most to the end of the append that the anchor lies in."""
    offset, steps = query.offset, query.sub_offset
    refusal = judge(stream, offset, source_of)
    if refusal is not None:
        return refusal
    if offset == stream.tail:
        return _overshoot(stream, steps) if steps else Anchored(stream.incarnation, offset, stream.record_next)
    hot, limit = _append_at(stream, offset, source_of)
    if is_json(stream.content_type):
        ends = hot.ends or (len(hot.payload),)
        index = bisect_right(ends, offset - hot.offset) + steps
        if index > bisect_right(ends, limit - hot.offset):
            return _overshoot(stream, steps)
        return Anchored(stream.incarnation, hot.offset + (ends[index - 1] if index else 0), hot.record + index)
    to = offset + steps
    if to > limit:
        return _overshoot(stream, steps)
    return Anchored(stream.incarnation, to, hot.record + (1 if to > hot.offset else 0))


def _overshoot(stream: Stream, steps: int) -> Refusal:
    return Refusal(
        Code.INVALID_OFFSET,
        f"Stream-Fork-Sub-Offset {steps} goes past the append of {stream.name!r} that the fork offset lies in.",
        incarnation=stream.incarnation,
        next_offset=stream.tail,
    )
