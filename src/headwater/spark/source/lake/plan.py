"""Planning a read of the lake: which segments to read, cut and packed into partitions.

The driver reads only the manifests that can list such segments, and the forks where streams are selected by name. It
reads no footers, no files of deleted rows and nothing else that grows with the number of streams; executors open the
segments themselves.
"""

import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from headwater.lake.catalog import TOMBSTONES, Catalog, CatalogReader, ForkRow, ListedSegment, read_forks
from headwater.lake.damage import LakeDamaged
from headwater.lake.scanning import EVER, RowFilter, live_rows, segments_for
from headwater.spark.link import Link, Log
from headwater.spark.options.source import Selection, SourceOptions
from headwater.spark.positions import position_in
from headwater.spark.source.filters import NO_CONDITIONS, Bounds, Conditions
from headwater.spark.source.portions import capacity_bytes, pack, parts_needed
from headwater.storage.opening import open_store
from headwater.storage.store import KeyMissing, Store, StoreFailed
from headwater.streams.segments import Segment

# -- Opening a lake, and reading a catalog that is recent enough -------------------------------------------------------


CATALOG_READS_MAX = 10
CATALOG_PAUSE_SECONDS = 0.2
"""How often to retry, and how long to wait between tries, for a catalog that must exist."""


class LakeUnusable(Exception):
    """The lake cannot be read as requested; the message is one sentence that says why, and what to do."""


def lake_url(options: SourceOptions, link: Link) -> str:
    """The URL from the options, or else the one that the server reports; LakeUnusable if it reports none."""
    return options.lake or lake_of(link.log(), link)


def lake_of(log: Log, link: Link) -> str:
    """The URL of a log's lake; LakeUnusable if there is none, or none for this client."""
    if log.lake_url is not None:
        return log.lake_url
    server = f"The server at {link.settings.url}"
    if log.has_lake:
        raise LakeUnusable(f"{server} shows its lake only to those with the grant 'pipeline *'; use via=live.")
    raise LakeUnusable(f"{server} has no lake, because it runs in memory only; use via=live.")


def open_lake(url: str) -> Store:
    """The store at a URL; LakeUnusable if this machine cannot reach it."""
    folder = _folder(url)
    if url == "memory:" or (folder is not None and not folder.is_dir()):
        raise LakeUnusable(f"The lake at {url} cannot be reached from this machine.")
    try:
        store = open_store(url)
        next(iter(store.items("messages/")), None)
    except (ValueError, StoreFailed) as problem:
        raise LakeUnusable(f"The lake at {url} cannot be reached from this machine: {problem}") from problem
    return store


def _folder(url: str) -> Path | None:
    if ":" not in url:
        return Path(url)
    parts = urlsplit(url)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


def newest_heading(store: Store, catalogs: CatalogReader) -> Catalog | None:
    """The current catalog without its segments; None if the lake has none yet."""
    for _ in range(CATALOG_READS_MAX):
        try:
            return catalogs.heading()
        except KeyMissing:
            # Between two reads, the metadata was replaced and deleted.
            time.sleep(CATALOG_PAUSE_SECONDS)
        except (LakeDamaged, StoreFailed) as problem:
            raise LakeUnusable(str(problem)) from problem
    raise LakeUnusable(f"The newest catalog of the lake at {store.url} is listed but cannot be read; try again later.")


def matching(catalogs: CatalogReader, row_filter: RowFilter, forks: Iterable[ForkRow] = ()) -> Catalog:
    """The current catalog with the segments that can have rows of a filter; no other manifests are read."""
    try:
        return catalogs.matching(segments_for(row_filter, forks))
    except (LakeDamaged, StoreFailed) as problem:
        raise LakeUnusable(str(problem)) from problem


def heading_up_to(link: Link, store: Store, position: int, catalogs: CatalogReader) -> Catalog | None:
    """The heading of a catalog that covers all rows up to a position; None if nothing was written and position is 0.

    A catalog may claim to cover less than an earlier one did, although the rows are in the lake. A flush then writes a
    catalog that covers them.
    """
    for _ in range(CATALOG_READS_MAX):
        catalog = newest_heading(store, catalogs)
        flushed = 0 if catalog is None else catalog.flushed
        if flushed >= position:
            return catalog
        if position_in(link.flush()) < position:
            break
    raise LakeUnusable(
        f"The lake at {store.url} has rows up to position {flushed}, not up to {position}; check that it belongs to "
        f"the server at {link.settings.url}, and that the query read from this server before."
    )


# -- Work for tasks ----------------------------------------------------------------------------------------------------


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
