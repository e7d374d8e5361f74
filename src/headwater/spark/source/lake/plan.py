"""Planning a read of the lake: which segments to read, cut and packed into partitions.

The driver reads only the manifests that can list such segments, and the forks where streams are selected by name. It
reads no footers, no files of deleted rows and nothing else that grows with the number of streams; executors open the
segments themselves.
"""

from collections.abc import Iterable
from typing import NamedTuple

from headwater.lake.catalog import TOMBSTONES, CatalogReader, ForkRow, ListedSegment, read_forks
from headwater.lake.damage import LakeDamaged
from headwater.lake.scanning import EVER, RowFilter, live_rows
from headwater.spark.options.source import Selection, SourceOptions
from headwater.spark.source.filters import NO_CONDITIONS, Bounds, Conditions
from headwater.spark.source.lake.catalogs import LakeUnusable, matching
from headwater.spark.source.packing import capacity_bytes, pack, parts_needed
from headwater.storage.store import Store, StoreFailed
from headwater.streams.segments import Segment

OPEN_BYTES = 256 * 1024
ROW_BYTES = 64
"""The costs of opening a segment, and of a row in addition to its payload, in bytes of payload."""


class SegmentSlice(NamedTuple):
    """Part number `part`, counted from 0, of a segment whose row groups are cut into `of` parts."""

    listed: ListedSegment
    part: int
    of: int


class ForksFile(NamedTuple):
    """The file of the forks that belong to a catalog."""

    key: str
    crc: int


class LakePartition(NamedTuple):
    """What one task reads."""

    url: str
    forks: ForksFile
    row_filter: RowFilter
    slices: tuple[SegmentSlice, ...]
    live_only: bool
    """Whether dead rows are left out."""
    inherits: bool
    """Whether forks also return the rows that they inherit, under their own names."""
    lease: str | None = None
    """The lease that keeps the objects; a stream has a registered consumer instead."""


# -- Which rows --------------------------------------------------------------------------------------------------------


def row_filter_for(
    selection: Selection, since: int | None, until: int | None, pushed: Conditions = NO_CONDITIONS
) -> RowFilter:
    """The part of a query that a plan can use; tasks apply the rest to each row."""
    positions = pushed.bounds_of("position")
    times = pushed.bounds_of("committed_at").within(Bounds(since or 0, EVER if until is None else until - 1))
    return RowFilter(
        names=selection.names,
        prefix=_extended(selection.prefix, pushed),
        after=max(positions.low - 1, -1),
        up_to=positions.high,
        since=times.low,
        until=min(times.high, EVER - 1) + 1,
    )


def _extended(prefix: str, pushed: Conditions) -> str:
    """A prefix of full names, made longer by conditions on the bucket and the stream."""
    buckets = [next(iter(values)) for column, values in pushed.strings if column == "bucket" and len(values) == 1]
    streams = [beginning for column, beginning in pushed.prefixes if column == "stream"]
    streams += [next(iter(values)) for column, values in pushed.strings if column == "stream" and len(values) == 1]
    longer = f"{buckets[0]}/{max(streams, key=len, default='')}" if buckets else prefix
    return longer if longer.startswith(prefix) else prefix


# -- Which segments ----------------------------------------------------------------------------------------------------


class LakePlanner:
    """Plans reads from the current catalog of a lake."""

    def __init__(
        self,
        options: SourceOptions,
        store: Store,
        catalogs: CatalogReader,
        *,
        open_bytes: int = OPEN_BYTES,
        row_bytes: int = ROW_BYTES,
    ) -> None:
        """`catalogs` has read the heading of the catalog."""
        assert catalogs.current is not None
        self._options, self._store, self._catalogs, self._heading = options, store, catalogs, catalogs.current
        self._open_bytes, self._row_bytes = open_bytes, row_bytes

    def batch(self, row_filter: RowFilter, pushed: Conditions = NO_CONDITIONS) -> list[LakePartition]:
        """Partitions for every live row that the filter selects."""
        forks: list[ForkRow] = []
        if row_filter.names is not None:
            try:
                forks = read_forks(self._store, self._heading)
            except (LakeDamaged, StoreFailed) as problem:
                raise LakeUnusable(str(problem)) from problem
        tombstones = TOMBSTONES.empty_table()
        planned = live_rows(matching(self._catalogs, row_filter, forks), tombstones, forks, row_filter)
        # Rows that forks inherit are in their sources' buckets, but match under the forks' own names.
        segments = [listed for listed in planned.segments if forks or _may_match(listed.segment, pushed)]
        return self._packed(row_filter, segments, live_only=True, inherits=bool(forks))

    def stream(self, row_filter: RowFilter) -> list[LakePartition]:
        """Partitions for every row that the filter selects, dead or alive, under the name it was written under."""
        planned = live_rows(matching(self._catalogs, row_filter), None, (), row_filter)
        return self._packed(row_filter, planned.segments, live_only=False, inherits=False)

    def _packed(
        self, row_filter: RowFilter, segments: Iterable[ListedSegment], *, live_only: bool, inherits: bool
    ) -> list[LakePartition]:
        # In the order of positions, so that the rows of a stream are in order within a partition.
        ordered = sorted(segments, key=lambda listed: (listed.segment.first_position, listed.segment.first_name))
        total = sum(map(self._weigh, ordered))
        capacity = capacity_bytes(total, self._options.partition_bytes, self._options.partitions_min)
        slices = [
            SegmentSlice(listed, part, parts)
            for listed in ordered
            for parts in [parts_needed(self._weigh(listed), capacity)]
            for part in range(parts)
        ]
        forks = ForksFile(self._heading.forks_key, self._heading.forks_crc)
        return [
            LakePartition(self._store.url, forks, row_filter, tuple(some), live_only, inherits)
            for some in pack(slices, lambda one: self._weigh(one.listed) // one.of, capacity)
        ]

    def _weigh(self, listed: ListedSegment) -> int:
        """The approximate cost of reading a segment, in bytes of payload."""
        return listed.segment.payload_bytes + listed.segment.rows * self._row_bytes + self._open_bytes


def _may_match(segment: Segment, pushed: Conditions) -> bool:
    """Whether a segment can have rows that match a condition on the bucket."""
    first, last = (name.partition("/")[0] for name in (segment.first_name, segment.last_name))
    # Segments are sorted by full name, and `a-b/x` sorts before `a/x`. So only a segment that begins and ends in the
    # same bucket is known to have no other.
    return first != last or pushed.may_match("bucket", first)
