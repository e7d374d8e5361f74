"""Locations: the offsets at which records of many streams begin, as of one instant."""

from bisect import bisect_right
from collections.abc import Sequence
from operator import attrgetter

import msgspec

from headwater.lake.segments.columns import view
from headwater.lake.segments.reader import SegmentDamaged
from headwater.node.reads.cold import ColdReads
from headwater.node.scans.instants import LOOKUPS_PER_STEP, Instant
from headwater.node.scans.pace import Pace
from headwater.protocol.refusals import Refusal
from headwater.storage.store import KeyMissing, StoreFailed
from headwater.streams import reading
from headwater.streams.fetched import NotFetched
from headwater.streams.queries import Ordinal
from headwater.streams.segments import Segment
from headwater.streams.state import Stream

COLUMNS = ("incarnation", "offset")

_RECORD = attrgetter("record")


class _Sought(msgspec.Struct, frozen=True, gc=False):
    """A record that is in the lake: the index of its answer, and its row in the segment."""

    answer: int
    incarnation: int
    row: int


async def locate(instant: Instant, reads: ColdReads | None, ordinals: Sequence[Ordinal]) -> list[int | None]:
    """The offset at which each record begins: the tail for the next one, None if the life or the record is missing."""
    offsets: list[int | None] = [None] * len(ordinals)
    pace = Pace()
    cold: dict[str, tuple[Segment, list[_Sought]]] = {}
    for first in range(0, len(ordinals), LOOKUPS_PER_STEP):
        for index, ordinal in enumerate(ordinals[first : first + LOOKUPS_PER_STEP], first):
            try:
                offsets[index] = _offset(instant, ordinal)
            except NotFetched as need:
                segment, sought = _place(instant, need.stream, ordinal.record, index)
                cold.setdefault(segment.id, (segment, []))[1].append(sought)
        await pace.rest()
    instant.end_lookups()
    for segment, several in cold.values():
        assert reads is not None, "only a server with a lake has bytes in it"
        for first in range(0, len(several), LOOKUPS_PER_STEP):
            await _read(reads, segment, several[first : first + LOOKUPS_PER_STEP], offsets)
            await pace.rest()
    return offsets


def _offset(instant: Instant, ordinal: Ordinal) -> int | None:
    stream, record = instant.find(ordinal.name), ordinal.record
    if isinstance(stream, Refusal) or stream.incarnation != ordinal.incarnation:
        return None
    if not stream.record_start <= record <= stream.record_next:
        return None
    return stream.start if record == stream.record_start else reading.offset_of(stream, record, instant.source_of)


def _place(instant: Instant, owner: Stream, record: int, index: int) -> tuple[Segment, _Sought]:
    extent = owner.extents[bisect_right(owner.extents, record, key=_RECORD) - 1]
    return instant.segments[extent.segment], _Sought(index, owner.incarnation, extent.row + record - extent.record)


async def _read(reads: ColdReads, segment: Segment, several: list[_Sought], offsets: list[int | None]) -> None:
    """Fill in the offsets of records in one segment, row group by row group."""
    try:
        footer = await reads.footer(segment)
        by_group: dict[int, list[_Sought]] = {}
        for sought in several:
            [group] = footer.groups_of(sought.row, 1)
            by_group.setdefault(group, []).append(sought)
        for group, those in by_group.items():
            table = await reads.table(footer, group, COLUMNS)
            incarnation, offset = (view(table[name].chunk(0)) for name in COLUMNS)
            for sought in those:
                row = sought.row - footer.groups[group].row
                if incarnation[row] != sought.incarnation:
                    raise SegmentDamaged(f"Row {sought.row} of segment {segment.id!r} belongs to another life.")
                offsets[sought.answer] = offset[row]
    except (StoreFailed, KeyMissing, SegmentDamaged) as error:
        raise reads.unreadable(error) from error
