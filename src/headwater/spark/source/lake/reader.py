"""Reading the lake in a task: row groups straight from the store, checked, and of them the rows that count.

Row groups that cannot have a row that is asked for are not read; neighbouring ones are read together, and the next ones
ahead.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from headwater.lake.format import SCHEMA, name_of
from headwater.lake.reader import Footer, Read, read_group
from headwater.lake.scanning import EVER, Inherited, LakeDamaged, Plan, RowFilter
from headwater.spark.options.reading import Selection
from headwater.spark.source.filters import Bounds, Conditions
from headwater.spark.source.lake import kept as lake_kept
from headwater.spark.source.lake.plan import LakeUnusable, LakeWork, Slice
from headwater.spark.source.packing import share
from headwater.storage.store import KeyMissing, Store
from headwater.streams.segments import Segment

STRETCH_BYTES = 4 * 1024 * 1024
"""What is read from the store at once; several times that when it is decoded, and as much is read ahead."""


class Asked(NamedTuple):
    """Which rows and columns a reader wants, beside what the plan says."""

    columns: frozenset[str]
    selection: Selection
    conditions: Conditions


def read_work(work: LakeWork, asked: Asked) -> Iterator[pa.Table]:
    """The rows of a partition, a row group at a time."""
    store = lake_kept.store(work.url)
    try:
        pieces = lake_kept.pieces(work.url, work.tables) if work.inherits else ()
        mine = [piece for piece in pieces if work.wanted.has(piece.name)]
        for one in work.slices:
            tombstones = lake_kept.tombstones(work.url, work.tables).of(one.listed.segment) if work.live_only else None
            yield from SliceReader(store, one, work.wanted, asked, tombstones=tombstones, pieces=mine).tables()
    except (KeyMissing, LakeDamaged) as problem:
        raise LakeUnusable(
            f"{problem} Repeat the read if it took longer than the lake keeps what was replaced (--lake-grace-seconds)."
        ) from problem


class SliceReader:
    """Reads a part of one segment."""

    def __init__(
        self,
        store: Store,
        one: Slice,
        wanted: RowFilter,
        asked: Asked,
        *,
        tombstones: pa.Table | None,
        pieces: Sequence[Inherited],
    ) -> None:
        segment = one.listed.segment
        self._store, self._key, self._asked = store, one.listed.key, asked
        self._footer = lake_kept.footer(store.url, one.listed.key, segment)
        self._wanted = narrowed(wanted, segment)
        self._sources = sorted({piece.source for piece in pieces})
        self._names = None if wanted.names is None else sorted(wanted.names)
        has_tombstones = tombstones is not None and len(tombstones) > 0
        self._plan = Plan([], tombstones if has_tombstones else None, pieces, self._wanted)
        self._pattern = asked.selection.pattern is not None
        looked_at = self._looked_at(has_tombstones, bool(pieces))
        # Rows are counted by some column, if nothing else is asked of them.
        self._columns = (asked.columns | asked.conditions.columns | looked_at) or {"offset"}
        self._groups = [
            index for index in share(range(len(self._footer.groups)), one.part, one.of) if self._may_count(index)
        ]

    def _looked_at(self, has_tombstones: bool, has_pieces: bool) -> frozenset[str]:
        """The columns that decide which rows count."""
        wanted = self._wanted
        by_name = wanted.names is not None or wanted.prefix or self._pattern
        by_position = wanted.after >= 0 or wanted.up_to < EVER
        by_time = wanted.since > 0 or wanted.until < EVER
        needed = {
            "bucket": by_name or has_pieces,
            "stream": by_name or has_pieces,
            "incarnation": has_tombstones or has_pieces,
            "offset": has_tombstones or has_pieces,
            "next_offset": has_pieces,
            "position": by_position,
            "committed_at": by_time,
        }
        return frozenset(column for column, is_needed in needed.items() if is_needed)

    def _may_count(self, index: int) -> bool:
        """Whether a row group can have a row that is asked for, by its statistics."""
        bounds = partial(_bounds, self._footer, index)
        wanted, given = self._wanted, self._asked.conditions
        positions, times = Bounds(wanted.after + 1, wanted.up_to), Bounds(wanted.since, wanted.until - 1)
        if not positions.meet(*bounds("position")) or not times.meet(*bounds("committed_at")):
            return False
        first, last = _words(self._footer, index, "bucket")
        if first != last:
            # Names are sorted whole, so between two buckets anything may stand.
            return True
        streams = _words(self._footer, index, "stream")
        low, high = (name_of(first, stream) for stream in streams)
        if self._sources:
            # A source goes by a name and offsets of its own, and conditions are on those of its forks.
            return _any_between(self._sources, low, high) or self._may_have(low, high)
        return (
            self._may_have(low, high)
            and given.may_have("bucket", first)
            and given.may_have_between("stream", *streams)
            and all(given.bounds_of(column).meet(*bounds(column)) for column in ("offset", "record"))
        )

    def _may_have(self, first: str, last: str) -> bool:
        prefix = self._wanted.prefix
        if self._names is not None:
            return _any_between(self._names, first, last)
        return last >= prefix and (first <= prefix or first.startswith(prefix))

    def tables(self) -> Iterator[pa.Table]:
        """The rows that count, a row group at a time."""
        for table in self._stored([name for name in SCHEMA.names if name in self._columns]):
            found = self._plan.own(table)
            if self._pattern:
                found = matching(found, self._asked.selection)
            inherited = list(self._plan.inherited(table))
            rows = pa.concat_tables([found, *inherited]) if inherited else found
            met = self._asked.conditions.met_by(rows)
            if len(met):
                yield met

    def _stored(self, columns: list[str]) -> Iterator[pa.Table]:
        """The row groups, checked; the next ones are read while some are looked at."""
        stretches = _stretches(self._footer, self._groups)
        if len(stretches) <= 1:
            for stretch in stretches:
                yield from self._decoded(stretch, columns)
            return
        with ThreadPoolExecutor(1, "lake-ahead") as ahead:
            coming = (ahead.submit(self._decoded, stretch, columns) for stretch in stretches)
            under_way = list(islice(coming, 1))
            while under_way:
                under_way += islice(coming, 1)
                yield from under_way.pop(0).result()

    def _decoded(self, stretch: Sequence[int], columns: list[str]) -> list[pa.Table]:
        """Neighbouring row groups by one read; without their payloads each by a read of its own, as there are gaps."""
        read: Read = partial(self._store.read, self._key)
        if "payload" in columns:
            first, last = self._footer.groups[stretch[0]], self._footer.groups[stretch[-1]]
            read = _within(read(first.start, last.start + last.size - first.start), first.start)
        return [read_group(read, self._footer, index, columns) for index in stretch]


def _within(data: bytes, begins_at: int) -> Read:
    """Reads from what was read already."""
    view = memoryview(data)
    return lambda start, size: bytes(view[start - begins_at : start - begins_at + size])


def narrowed(wanted: RowFilter, segment: Segment) -> RowFilter:
    """What must still be asked of the rows of a segment: not what is true of all of them."""
    inside = segment.first_name.startswith(wanted.prefix) and segment.last_name.startswith(wanted.prefix)
    return RowFilter(
        names=wanted.names,
        prefix="" if inside and wanted.names is None else wanted.prefix,
        after=-1 if segment.first_position > wanted.after else wanted.after,
        up_to=EVER if segment.last_position <= wanted.up_to else wanted.up_to,
        since=0 if segment.first_at >= wanted.since else wanted.since,
        until=EVER if segment.last_at < wanted.until else wanted.until,
    )


def matching(table: pa.Table, selection: Selection) -> pa.Table:
    """The rows whose names match a pattern; each name is looked at once."""
    names = pc.binary_join_element_wise(table["bucket"], table["stream"], "/")
    known = [name for name in pc.unique(names).to_pylist() if selection.has(name)]
    return table.filter(pc.is_in(names, value_set=pa.array(known, pa.string())))


def _any_between(names: Sequence[str], first: str, last: str) -> bool:
    return bisect_left(names, first) < bisect_right(names, last)


def _bounds(footer: Footer, index: int, column: str) -> tuple[int, int]:
    """The lowest and the highest number of a column in a row group."""
    found = footer.metadata.row_group(index).column(SCHEMA.get_field_index(column)).statistics
    return found.min_raw, found.max_raw


def _words(footer: Footer, index: int, column: str) -> tuple[str, str]:
    """The first and the last word of a column in a row group."""
    found = footer.metadata.row_group(index).column(SCHEMA.get_field_index(column)).statistics
    return found.min, found.max


def _stretches(footer: Footer, groups: Sequence[int]) -> list[list[int]]:
    """Row groups that lie one behind the other, as many as are read at once."""
    found: list[list[int]] = []
    size = 0
    for index in groups:
        size += footer.groups[index].size
        if not found or found[-1][-1] != index - 1 or size > STRETCH_BYTES:
            found.append([])
            size = footer.groups[index].size
        found[-1].append(index)
    return found
