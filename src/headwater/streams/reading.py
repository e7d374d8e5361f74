"""Reads: which slices of which appends make up a page; never the bytes themselves.

A fork's bytes below its fork point are its source's, and so on up the chain; `source_of` finds the life that an origin
names, in whatever shard it is. In JSON streams only borders between messages are offsets; elsewhere any byte is.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import NamedTuple

from headwater.protocol.commands import Origin
from headwater.protocol.content_types import is_json
from headwater.protocol.queries import Anchor
from headwater.protocol.refusals import Code, Refusal
from headwater.protocol.replies import Anchored
from headwater.streams.state import Hot, Stream

SourceOf = Callable[[Origin], Stream]

_OFFSET = attrgetter("offset")


class Slice(NamedTuple):
    """The bytes `lo` to `hi` of one append's payload."""

    hot: Hot
    lo: int
    hi: int


class Plan(NamedTuple):
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
    first = next(slices_from(stream, offset, source_of))
    if first.lo == 0 or first.lo in (first.hot.ends or ()):
        return None
    return Refusal(
        Code.OFFSET_UNALIGNED,
        f"The offset lies inside a message of {stream.name!r}; read from an offset that the server gave you.",
        incarnation=stream.incarnation,
        next_offset=stream.tail,
    )


def plan(stream: Stream, offset: int, bytes_max: int, source_of: SourceOf) -> Plan:
    """A page from `offset` on, which has been judged: whole messages up to `bytes_max`, and at least one."""
    taken: list[Slice] = []
    room, position = bytes_max, offset
    for piece in slices_from(stream, offset, source_of):
        size = piece.hi - piece.lo
        if size > room:
            cut = _cut(piece, room, at_least_one=not taken)
            if cut > piece.lo:
                taken.append(piece._replace(hi=cut))
                position += cut - piece.lo
            break
        taken.append(piece)
        position += size
        room -= size
    return Plan(taken, position)


def slices_from(stream: Stream, offset: int, source_of: SourceOf) -> Iterator[Slice]:
    """Every slice from `offset` to the tail, the sources' before the stream's own."""
    upto = stream.tail
    owners: list[tuple[Stream, int]] = []
    while stream.origin is not None and offset < stream.origin.to:
        owners.append((stream, upto))
        upto = min(upto, stream.origin.to)
        stream = source_of(stream.origin)
    owners.append((stream, upto))
    for owner, limit in reversed(owners):
        for piece in _own_slices(owner, offset, limit):
            yield piece
            offset = piece.hot.offset + piece.hi


def _own_slices(stream: Stream, offset: int, limit: int) -> Iterator[Slice]:
    appends = stream.hot or []
    index = max(bisect_right(appends, offset, key=_OFFSET) - 1, 0)
    while index < len(appends):
        hot = appends[index]
        if hot.offset >= limit:
            return
        lo, hi = max(offset - hot.offset, 0), min(len(hot.payload), limit - hot.offset)
        if lo < hi:
            yield Slice(hot, lo, hi)
        index += 1


def _cut(piece: Slice, room: int, *, at_least_one: bool) -> int:
    """Where to cut a slice that does not fit: after the last message that does, or after the first if one is owed."""
    ends = piece.hot.ends or (len(piece.hot.payload),)
    fitting = bisect_right(ends, piece.lo + room) - 1
    if fitting >= 0 and ends[fitting] > piece.lo:
        return ends[fitting]
    first = ends[bisect_right(ends, piece.lo)]
    return min(first, piece.hi) if at_least_one else piece.lo


def anchor(stream: Stream, query: Anchor, source_of: SourceOf) -> Anchored | Refusal:
    """The byte position of a fork point: at most to the end of the append that the anchor lies in."""
    offset, steps = query.offset, query.sub_offset
    refusal = judge(stream, offset, source_of)
    if refusal is not None:
        return refusal
    piece = next(slices_from(stream, offset, source_of), None)
    if piece is None:
        if steps == 0:
            return Anchored(stream.incarnation, offset, stream.record_next)
        return _overshoot(stream, steps)
    if is_json(stream.content_type):
        ends = piece.hot.ends or (len(piece.hot.payload),)
        index = bisect_right(ends, piece.lo) + steps
        if index > bisect_right(ends, piece.hi):
            return _overshoot(stream, steps)
        to = piece.hot.offset + (ends[index - 1] if index else 0)
        return Anchored(stream.incarnation, to, piece.hot.record + index)
    if piece.lo + steps > piece.hi:
        return _overshoot(stream, steps)
    to = offset + steps
    return Anchored(stream.incarnation, to, piece.hot.record + (1 if to > piece.hot.offset else 0))


def _overshoot(stream: Stream, steps: int) -> Refusal:
    return Refusal(
        Code.INVALID_OFFSET,
        f"Stream-Fork-Sub-Offset {steps} goes past the append of {stream.name!r} that the fork offset lies in.",
        incarnation=stream.incarnation,
        next_offset=stream.tail,
    )
