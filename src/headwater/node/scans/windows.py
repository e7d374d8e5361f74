"""Windows: cuts ranges of streams into parts, in memory and in the lake, and gathers about a batch of them at a time.

A message belongs to the part in which it begins, so a part may be cut at any byte without losing or doubling one.
Everything here works on the streams of one instant, and may run in a thread.
"""

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator
from math import ceil
from operator import attrgetter
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from headwater.lake.format import split_name
from headwater.lake.relabeling import StreamRange
from headwater.lake.segments.selection import RowRange
from headwater.node.scans.instants import Instant
from headwater.protocol.limits import KIB
from headwater.streams.cold import ALL
from headwater.streams.hot import Hot
from headwater.streams.reading import owners
from headwater.streams.segments import Extent, Segment
from headwater.streams.state import Stream

CUT_BYTES_MIN = 64 * KIB
"""A smaller piece of an extent is not worth its own part."""

_OFFSET = attrgetter("offset")
_RECORD = attrgetter("record")
_START = attrgetter("start")
_END = attrgetter("end")


class OffsetRange(msgspec.Struct, frozen=True, gc=False):
    """Messages of a stream that begin between two offsets."""

    stream: Stream
    start: int
    until: int


class Times(NamedTuple):
    """A range of commit times in microseconds since 1970: from `since` on and before `until`."""

    since: int = 0
    until: int = ALL

    def meet(self, segment: Segment) -> bool:
        """Whether a segment can have rows of these times."""
        return segment.last_at >= self.since and segment.first_at < self.until


class HotPart(msgspec.Struct, frozen=True, gc=False):
    """Messages in memory that begin between two offsets, among the appends `first` to `stop`."""

    range: StreamRange
    content_type: str
    appends: list[Hot]
    first: int
    stop: int
    start: int
    until: int
    rows: int
    """The number of messages in its appends, inside the offsets or not."""

    @property
    def span(self) -> RowRange:
        """Which of these messages are inside the offsets."""
        first, last = self.appends[self.first], self.appends[self.stop - 1]
        skipped = _begun_before(first, self.start)
        beyond = 0 if last.end <= self.until else last.messages - _begun_before(last, self.until)
        return RowRange(skipped, self.rows - skipped - beyond)


class ColdPart(msgspec.Struct, frozen=True, gc=False):
    """Messages in the lake that begin between two offsets, all of one extent."""

    range: StreamRange
    incarnation: int
    """The incarnation of the life whose rows they are."""
    segment: Segment
    extent: Extent
    start: int
    until: int


Part = HotPart | ColdPart


class Limits(NamedTuple):
    """The approximate size of a window."""

    rows: int
    bytes: int


def _begun_before(append: Hot, offset: int) -> int:
    """The number of messages of an append that begin before an offset."""
    within = offset - append.offset
    if within <= 0:
        return 0
    return 1 + bisect_left(append.message_ends, within, hi=append.messages - 1)


# -- Parts -------------------------------------------------------------------------------------------------------------


def parts(wanted: OffsetRange, instant: Instant, times: Times) -> Iterator[Part]:
    """The parts that hold the wanted messages, in order; those committed at other times may be left out."""
    stream, start, stop = wanted.stream, wanted.start, min(wanted.until, wanted.stream.tail)
    bucket, name = split_name(stream.name)
    for owner, limit in owners(stream, start, instant.source_of):
        end = min(stop, limit)
        if start < end:
            # A stream's own messages end by its tail; one of a source may extend past the fork point.
            listed_as = StreamRange(bucket, name, stream.incarnation, 0, ALL if owner is stream else limit)
            boundary = min(owner.hot_start, end)
            for extent in _between(owner.extents, start, boundary):
                segment = instant.segments[extent.segment]
                if times.meet(segment):
                    lowest, highest = max(start, extent.start), min(boundary, extent.end)
                    yield ColdPart(listed_as, owner.incarnation, segment, extent, lowest, highest)
            start = max(start, boundary)
            if start < end:
                yield _hot(owner, listed_as, start, end)
        start = max(start, limit)


def _hot(owner: Stream, listed_as: StreamRange, start: int, end: int) -> HotPart:
    appends: list[Hot] = owner.hot or []
    # Most often the range covers all of them.
    first = 0 if start == appends[0].offset else bisect_right(appends, start, key=_OFFSET) - 1
    stop = len(appends) if appends[-1].offset < end else bisect_left(appends, end, key=_OFFSET)
    last = appends[stop - 1]
    rows = last.record + last.messages - appends[first].record
    return HotPart(listed_as, owner.content_type, appends, first, stop, start, end, rows)


def _between(extents: tuple[Extent, ...], start: int, end: int) -> tuple[Extent, ...]:
    if start >= end:
        return ()
    return extents[bisect_right(extents, start, key=_END) : bisect_left(extents, end, key=_START)]


# -- Windows -----------------------------------------------------------------------------------------------------------


def windows(ranges: deque[OffsetRange], instant: Instant, times: Times, limits: Limits) -> Iterator[list[Part]]:
    """The parts of all ranges, about one window at a time; finished ranges are released."""
    window: list[Part] = []
    rows_left, bytes_left = limits
    while ranges:
        for part in parts(ranges.popleft(), instant, times):
            rest: Part | None = part
            while rest is not None:
                cut = _hot_cut if isinstance(rest, HotPart) else _cold_cut
                taken, rest, rows = cut(rest, rows_left, bytes_left)  # type: ignore[arg-type]
                window.append(taken)
                rows_left -= rows
                bytes_left -= taken.until - taken.start
                if rows_left <= 0 or bytes_left <= 0:
                    yield window
                    window = []
                    rows_left, bytes_left = limits
    if window:
        yield window


def _hot_cut(part: HotPart, rows_left: int, bytes_left: int) -> tuple[HotPart, HotPart | None, int]:
    """Take as many appends as fit, at least one: the part taken, the rest, and the number of rows taken."""
    appends, first, rows = part.appends, part.first, part.rows
    if rows > rows_left or part.until - part.start > bytes_left:
        by_bytes = bisect_right(appends, part.start + bytes_left, first, part.stop, key=_OFFSET) - 1
        by_rows = bisect_right(appends, appends[first].record + rows_left, first, part.stop, key=_RECORD) - 1
        cut = max(min(by_bytes, by_rows), first + 1)
        if cut < part.stop:
            boundary = appends[cut].offset
            taken = appends[cut].record - appends[first].record
            rest = replace(part, first=cut, start=boundary, rows=rows - taken)
            return replace(part, stop=cut, until=boundary, rows=taken), rest, taken
    return part, None, rows


def _cold_cut(part: ColdPart, rows_left: int, bytes_left: int) -> tuple[ColdPart, ColdPart | None, int]:
    """The same for rows in the lake, of which only the average size is known."""
    extent, size = part.extent, part.until - part.start
    row_bytes = (extent.end - extent.start) / extent.rows
    fitting = max(min(bytes_left, int(rows_left * row_bytes)), CUT_BYTES_MIN)
    if size <= fitting:
        return part, None, ceil(size / row_bytes)
    boundary = part.start + fitting
    return replace(part, until=boundary), replace(part, start=boundary), ceil(fitting / row_bytes)
