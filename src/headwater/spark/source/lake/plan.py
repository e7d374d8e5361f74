"""Planning a read of the lake: which segments, cut and packed into partitions, from a catalog alone.

The driver reads the catalog, and the forks where streams are asked for by name: no footers, no tombstones, and nothing
that grows with the number of streams. Executors look into the segments themselves.
"""

import logging
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from headwater.lake.catalog import TOMBSTONES, Catalog, ForkRow, ListedSegment
from headwater.lake.scanning import EVER, LakeDamaged, RowFilter, live_rows, read_catalog, read_forks
from headwater.spark.link import Link
from headwater.spark.options.reading import Selection, SourceOptions
from headwater.spark.source.filters import ANY, Bounds, Conditions
from headwater.spark.source.packing import pack, parts_of, room_bytes
from headwater.storage.opening import open_store
from headwater.storage.store import KeyMissing, Store, StoreFailed
from headwater.streams.segments import Segment

SHARD = "0"
"""There is one; positions are told per shard all the same."""
OPEN_BYTES = 256 * 1024
ROW_BYTES = 64
"""What opening a segment, and a row beside its payload, weigh."""
CATALOG_READS_MAX = 10
CATALOG_PAUSE_SECONDS = 0.2
"""How often one looks again for a catalog that was there, or must be."""

log = logging.getLogger(__name__)


class LakeUnusable(Exception):
    """The lake cannot be read as asked; the message is one sentence that says why, and what to do."""


class Slice(NamedTuple):
    """A part of a segment's row groups: the one with this number, from 0, of so many."""

    listed: ListedSegment
    part: int
    of: int


class Tables(NamedTuple):
    """The two tables beside a catalog."""

    tombstones_key: str
    tombstones_crc: int
    forks_key: str
    forks_crc: int

    @property
    def catalog(self) -> Catalog:
        """A catalog that has nothing but these."""
        return Catalog(0, "", 0, 0, 0, 0, [], *self)


class LakeWork(NamedTuple):
    """What one task reads."""

    url: str
    tables: Tables
    wanted: RowFilter
    slices: tuple[Slice, ...]
    live_only: bool
    """Whether dead rows are left out."""
    inherits: bool
    """Whether forks have their inherited rows under their own names too."""


# -- Where the lake is -------------------------------------------------------------------------------------------------


def find_lake(options: SourceOptions, link: Link) -> str | None:
    """The URL of the server's lake, or the one that was given; None if the server has none."""
    if options.lake is not None:
        return options.lake
    url: str | None = (link.status().get("lake") or {}).get("url")
    return url


def reach(url: str) -> Store:
    """The store at a URL; LakeUnusable if it cannot be reached from here."""
    folder = _folder(url)
    if url == "memory:" or (folder is not None and not folder.is_dir()):
        raise LakeUnusable(f"The lake at {url} cannot be reached from this machine.")
    try:
        store = open_store(url)
        next(iter(store.items("catalog/")), None)
    except (ValueError, StoreFailed) as problem:
        raise LakeUnusable(f"The lake at {url} cannot be reached from this machine: {problem}") from problem
    return store


def _folder(url: str) -> Path | None:
    if ":" not in url:
        return Path(url)
    parts = urlsplit(url)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


def newest_catalog(store: Store) -> Catalog | None:
    """The catalog in force; None if the lake has none yet."""
    for _ in range(CATALOG_READS_MAX):
        try:
            return read_catalog(store)
        except KeyMissing:
            # It was replaced, and long enough ago to be deleted, between its listing and its reading.
            time.sleep(CATALOG_PAUSE_SECONDS)
        except (LakeDamaged, StoreFailed) as problem:
            raise LakeUnusable(str(problem)) from problem
    raise LakeUnusable(f"The newest catalog of the lake at {store.url} is listed and cannot be read.")


def catalog_up_to(link: Link, store: Store, position: int) -> Catalog | None:
    """A catalog that has all rows up to a position; None if nothing was ever written and nothing is asked for.

    What a catalog says of this may be less than what one before it said, though the rows are there: then a flush makes
    another one.
    """
    for _ in range(CATALOG_READS_MAX):
        catalog = newest_catalog(store)
        flushed = 0 if catalog is None else catalog.flushed
        if flushed >= position:
            return catalog
        reached = position_of(link.flush())
        if reached < position:
            break
    raise LakeUnusable(
        f"The lake at {store.url} has rows up to position {flushed}, not up to {position}: is it that of the server at "
        f"{link.settings.url}, and is that the one which was read before?"
    )


# -- Which segments ----------------------------------------------------------------------------------------------------


def wanted_of(selection: Selection, since: int | None, until: int | None, given: Conditions = ANY) -> RowFilter:
    """What a plan can make use of, of what is asked for; the rest is for whoever reads the rows."""
    positions = given.bounds_of("position")
    times = given.bounds_of("committed_at").within(Bounds(since or 0, EVER if until is None else until - 1))
    return RowFilter(
        names=selection.names,
        prefix=_longer(selection.prefix, given),
        after=max(positions.low - 1, -1),
        up_to=positions.high,
        since=times.low,
        until=min(times.high, EVER - 1) + 1,
    )


def _longer(prefix: str, given: Conditions) -> str:
    """A prefix of whole names, made longer by a condition on the bucket and one on the stream, where there are such."""
    buckets = [next(iter(values)) for column, values in given.words if column == "bucket" and len(values) == 1]
    streams = [beginning for column, beginning in given.beginnings if column == "stream"]
    streams += [next(iter(values)) for column, values in given.words if column == "stream" and len(values) == 1]
    longer = f"{buckets[0]}/{max(streams, key=len, default='')}" if buckets else prefix
    return longer if longer.startswith(prefix) else prefix


def plan_batch(
    options: SourceOptions, store: Store, catalog: Catalog, wanted: RowFilter, given: Conditions = ANY
) -> list[LakeWork]:
    """Partitions for every live row that is asked for, as of one catalog."""
    inherits = wanted.names is not None
    forks: list[ForkRow] = []
    if inherits:
        try:
            forks = read_forks(store, catalog)
        except (LakeDamaged, StoreFailed) as problem:
            raise LakeUnusable(str(problem)) from problem
    planned = live_rows(catalog, TOMBSTONES.empty_table(), forks, wanted, inherited=inherits)
    # What forks have of their sources is in the buckets of those, and counts under their own.
    segments = [listed for listed in planned.segments if forks or _may_meet(listed.segment, given)]
    return _packed(options, store, catalog, wanted, segments, live_only=True, inherits=inherits and bool(forks))


def plan_stream(options: SourceOptions, store: Store, catalog: Catalog, wanted: RowFilter) -> list[LakeWork]:
    """Partitions for every row between two positions, dead or alive, each under the name it was written under."""
    planned = live_rows(catalog, None, (), wanted, inherited=False)
    return _packed(options, store, catalog, wanted, planned.segments, live_only=False, inherits=False)


def _may_meet(segment: Segment, given: Conditions) -> bool:
    """Whether a segment can have rows with a bucket that is asked for."""
    first, last = (name.partition("/")[0] for name in (segment.first_name, segment.last_name))
    # By whole names `a-b/x` stands before `a/x`; the buckets of a segment that begins and ends in one are that one.
    return first != last or given.may_have("bucket", first)


def _packed(
    options: SourceOptions,
    store: Store,
    catalog: Catalog,
    wanted: RowFilter,
    segments: Iterable[ListedSegment],
    *,
    live_only: bool,
    inherits: bool,
) -> list[LakeWork]:
    # In the order of positions, so that rows of one stream come in order within a partition.
    ordered = sorted(segments, key=lambda listed: (listed.segment.first_position, listed.segment.first_name))
    room = room_bytes(sum(map(weight_of, ordered)), options.partition_bytes, options.partitions_min)
    slices = [
        Slice(listed, part, parts)
        for listed in ordered
        for parts in [parts_of(weight_of(listed), room)]
        for part in range(parts)
    ]
    tables = Tables(catalog.tombstones_key, catalog.tombstones_crc, catalog.forks_key, catalog.forks_crc)
    return [
        LakeWork(store.url, tables, wanted, tuple(some), live_only, inherits)
        for some in pack(slices, lambda one: weight_of(one.listed) // one.of, room)
    ]


def weight_of(listed: ListedSegment) -> int:
    """What reading a segment costs, in bytes, about."""
    return listed.segment.payload_bytes + listed.segment.rows * ROW_BYTES + OPEN_BYTES


def position_of(shards: Mapping[str, int]) -> int:
    """The position of the only shard."""
    if set(shards) != {SHARD}:
        raise LakeUnusable(f"Positions are told for the shards {sorted(shards)}, but there is only shard {SHARD}.")
    return shards[SHARD]
