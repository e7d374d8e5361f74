"""Reading the lake in a task: row groups are fetched from the store, verified, and filtered.

Statistics rule out row groups that cannot match. Neighbouring row groups are fetched together, and the next ones ahead.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache, partial

import pyarrow as pa

from headwater.lake.catalog import TOMBSTONES, Deletes, ListedSegment, forks_in, tombstones_of
from headwater.lake.damage import LakeDamaged
from headwater.lake.format import SCHEMA, name_of
from headwater.lake.scanning import EVER, Inherited, Plan, RowFilter, inheritance
from headwater.lake.segments.reader import Footer, Read, read_footer, read_groups
from headwater.spark.schemas import BATCH_BYTES, BATCH_ROWS
from headwater.spark.source.filters import Bounds, RowQuery, may_start_with
from headwater.spark.source.lake.plan import ForksFile, LakePartition, LakeUnusable, SegmentSlice
from headwater.spark.source.portions import read_ahead, share
from headwater.storage.opening import open_store
from headwater.storage.store import KeyMissing, Store
from headwater.streams.segments import Segment

# -- What a Python worker caches of a lake, because several of its tasks need it ---------------------------------------


STORES_MAX = 4
FOOTERS_MAX = 64
"""Parsed footers take up to a megabyte each."""
FORKS_MAX = 4


@lru_cache(STORES_MAX)
def cached_store(url: str) -> Store:
    """The store at a URL."""
    return open_store(url)


@lru_cache(FOOTERS_MAX)
def cached_footer(url: str, key: str, segment: Segment) -> Footer:
    """The parsed footer of a segment."""
    return read_footer(partial(cached_store(url).read, key), segment)


@lru_cache(FORKS_MAX)
def cached_inheritance(url: str, forks: ForksFile) -> tuple[Inherited, ...]:
    """The ranges that forks inherit from other streams."""
    return tuple(inheritance(forks_in(cached_store(url), *forks)))


def tombstones_in(url: str, listed: ListedSegment) -> pa.Table:
    """The tombstones of the lives with dead rows in a segment."""
    deletes = listed.deletes
    return TOMBSTONES.empty_table() if deletes is None else _cached_tombstones(url, deletes)


@lru_cache(FOOTERS_MAX)
def _cached_tombstones(url: str, deletes: Deletes) -> pa.Table:
    return tombstones_of(cached_store(url), [deletes])


# -- Reading -----------------------------------------------------------------------------------------------------------


FETCH_BYTES = 4 * 1024 * 1024
"""How much one request to the store fetches. Decoded it takes several times that, and as much again is read ahead."""


def read_lake(partition: LakePartition, query: RowQuery) -> Iterator[pa.Table]:
    """The rows of a partition, a few row groups at a time."""
    url, row_filter = partition.url, partition.row_filter
    store = cached_store(url)
    try:
        all_inherited = cached_inheritance(url, partition.forks) if partition.inherits else ()
        inherited = [one for one in all_inherited if row_filter.has(one.name)]
        for one in partition.slices:
            tombstones = tombstones_in(url, one.listed) if partition.live_only else None
            yield from SliceReader(store, one, row_filter, query, tombstones=tombstones, inherited=inherited).tables()
    except (KeyMissing, LakeDamaged) as problem:
        raise LakeUnusable(
            f"{problem} If no task ran for longer than the lake keeps snapshots (--lake-history-seconds), repeat the "
            "read."
        ) from problem


class SliceReader:
    """Reads a part of one segment."""

    def __init__(
        self,
        store: Store,
        one: SegmentSlice,
        row_filter: RowFilter,
        query: RowQuery,
        *,
        tombstones: pa.Table | None = None,
        inherited: Sequence[Inherited] = (),
    ) -> None:
        segment = one.listed.segment
        self._store, self._key, self._query = store, one.listed.key, query
        self._footer = cached_footer(store.url, one.listed.key, segment)
        self._row_filter = narrowed(row_filter, segment)
        self._sources = sorted({piece.source for piece in inherited})
        self._names = None if row_filter.names is None else sorted(row_filter.names)
        has_tombstones = tombstones is not None and len(tombstones) > 0
        self._plan = Plan([], tombstones if has_tombstones else None, inherited, self._row_filter)
        self._checks_names = query.selection.checks_names(segment.first_name, segment.last_name)
        # Rows that nothing is needed of are still counted, which takes some column.
        filtered_by = self._filtered_by(has_tombstones, bool(inherited))
        self._columns = query.columns_with(filtered_by) or ["offset"]
        self._groups = [
            index for index in share(range(len(self._footer.groups)), one.part, one.of) if self._may_match(index)
        ]

    def _filtered_by(self, has_tombstones: bool, inherits: bool) -> frozenset[str]:
        """The columns that decide which rows are returned."""
        row_filter = self._row_filter
        by_name = row_filter.names is not None or row_filter.prefix or self._checks_names
        needed = {
            "bucket": by_name or inherits,
            "stream": by_name or inherits,
            "incarnation": has_tombstones or inherits,
            "offset": has_tombstones or inherits,
            "next_offset": inherits,
            "position": row_filter.after >= 0 or row_filter.up_to < EVER,
            "committed_at": row_filter.since > 0 or row_filter.until < EVER,
        }
        return frozenset(column for column, is_needed in needed.items() if is_needed)

    def _may_match(self, index: int) -> bool:
        """Whether a row group can have a matching row, according to its statistics."""
        bounds = partial(_bounds, self._footer, index)
        row_filter, pushed = self._row_filter, self._query.conditions
        positions = Bounds(row_filter.after + 1, row_filter.up_to)
        times = Bounds(row_filter.since, row_filter.until - 1)
        if not positions.overlap(*bounds("position")) or not times.overlap(*bounds("committed_at")):
            return False
        bucket, last_bucket = _strings(self._footer, index, "bucket")
        if bucket != last_bucket:
            # Rows are sorted by full name, so the stream column's statistics say nothing across buckets.
            return True
        streams = _strings(self._footer, index, "stream")
        first, last = (name_of(bucket, stream) for stream in streams)
        if self._sources:
            # Conditions are on the forks' names and offsets, the statistics are on those of their sources.
            return _any_between(self._sources, first, last) or self._may_have_name(first, last)
        return (
            self._may_have_name(first, last)
            and pushed.may_match("bucket", bucket)
            and pushed.may_match_between("stream", *streams)
            and all(pushed.bounds_of(column).overlap(*bounds(column)) for column in ("offset", "record"))
        )

    def _may_have_name(self, first: str, last: str) -> bool:
        if self._names is not None:
            return _any_between(self._names, first, last)
        return may_start_with(self._row_filter.prefix, first, last)

    def tables(self) -> Iterator[pa.Table]:
        """The matching rows, a few row groups at a time."""
        for table in self._stored():
            own = self._plan.own(table)
            if self._checks_names:
                own = self._query.matching_names(own)
            inherited = list(self._plan.inherited(table))
            rows = pa.concat_tables([own, *inherited]) if inherited else own
            matching = self._query.conditions.matching(rows)
            if len(matching):
                yield matching

    def _stored(self) -> Iterator[pa.Table]:
        """The row groups as stored, verified; one fetch and one table are always ahead."""
        runs = _adjacent(self._footer, self._groups)
        fetches = map(self._fetched, runs)
        return read_ahead(self._decoded(fetches if len(runs) <= 1 else read_ahead(fetches)))

    def _fetched(self, run: Sequence[int]) -> tuple[Sequence[int], Read]:
        """Adjacent row groups in one read; without payloads one read each, because there are gaps in between."""
        read: Read = partial(self._store.read, self._key)
        if "payload" in self._columns:
            first, last = self._footer.groups[run[0]], self._footer.groups[run[-1]]
            read = _within(read(first.start, last.start + last.size - first.start), first.start)
        return run, read

    def _decoded(self, fetches: Iterable[tuple[Sequence[int], Read]]) -> Iterator[pa.Table]:
        """Tables of enough row groups for a batch, decoded together, because joining them later would copy every row.

        One at a time: what is decoded long before it is needed takes fresh memory, which costs as much as decoding.
        """
        for run, read in fetches:
            for some in self._decoded_together(run):
                yield read_groups(read, self._footer, some, self._columns)

    def _decoded_together(self, run: Sequence[int]) -> list[list[int]]:
        portions: list[list[int]] = []
        rows = size = 0
        for index in run:
            group = self._footer.metadata.row_group(index)
            if not portions or rows >= BATCH_ROWS or size >= BATCH_BYTES:
                portions.append([])
                rows = size = 0
            portions[-1].append(index)
            rows, size = rows + group.num_rows, size + group.total_byte_size
        return portions


def _within(data: bytes, begins_at: int) -> Read:
    """Reads from bytes that were fetched already."""
    view = memoryview(data)
    return lambda start, size: bytes(view[start - begins_at : start - begins_at + size])


def narrowed(row_filter: RowFilter, segment: Segment) -> RowFilter:
    """The filter without the conditions that all rows of a segment meet."""
    inside = segment.first_name.startswith(row_filter.prefix) and segment.last_name.startswith(row_filter.prefix)
    return RowFilter(
        names=row_filter.names,
        prefix="" if inside and row_filter.names is None else row_filter.prefix,
        after=-1 if segment.first_position > row_filter.after else row_filter.after,
        up_to=EVER if segment.last_position <= row_filter.up_to else row_filter.up_to,
        since=0 if segment.first_at >= row_filter.since else row_filter.since,
        until=EVER if segment.last_at < row_filter.until else row_filter.until,
    )


def _any_between(names: Sequence[str], first: str, last: str) -> bool:
    return bisect_left(names, first) < bisect_right(names, last)


def _bounds(footer: Footer, index: int, column: str) -> tuple[int, int]:
    """The lowest and the highest number of a column in a row group."""
    found = footer.metadata.row_group(index).column(SCHEMA.get_field_index(column)).statistics
    return found.min_raw, found.max_raw


def _strings(footer: Footer, index: int, column: str) -> tuple[str, str]:
    """The first and the last string of a column in a row group."""
    found = footer.metadata.row_group(index).column(SCHEMA.get_field_index(column)).statistics
    return found.min, found.max


def _adjacent(footer: Footer, groups: Sequence[int]) -> list[list[int]]:
    """Runs of adjacent row groups, each small enough for one fetch."""
    runs: list[list[int]] = []
    size = 0
    for index in groups:
        size += footer.groups[index].size
        if not runs or runs[-1][-1] != index - 1 or size > FETCH_BYTES:
            runs.append([])
            size = footer.groups[index].size
        runs[-1].append(index)
    return runs
