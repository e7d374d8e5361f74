"""The catalog: the contents of a lake as of one snapshot of the table `messages`, for our own readers.

Everything comes from the table's manifests: the segments, and for each of them at most one file of deleted rows. The
forks that belong to the snapshot are in the file of the table `forks` that its summary names.
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import NamedTuple, TypeVar, cast

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from crc32c import crc32c

from headwater.lake.damage import LakeDamaged
from headwater.lake.format import name_of, split_name
from headwater.lake.iceberg.deletes import DeadLife, dead_lives
from headwater.lake.iceberg.manifests import Content, Coverage, DeletesEntry, Manifest, SegmentEntry
from headwater.lake.iceberg.messages import NAME
from headwater.lake.iceberg.metadata import Table, metadata_key
from headwater.lake.iceberg.reading import (
    deletes_in,
    manifests_of,
    newest_table,
    of_content,
    segments_in,
)
from headwater.storage.store import KeyMissing, Store, check_key
from headwater.streams.segments import Segment

TOMBSTONES = pa.schema(
    [
        pa.field("incarnation", pa.int64(), nullable=False),
        pa.field("below", pa.int64(), nullable=False),
    ]
)
"""Rows of this life with an offset below `below` are dead."""

FORKS = pa.schema(
    [
        pa.field("bucket", pa.string(), nullable=False),
        pa.field("stream", pa.string(), nullable=False),
        pa.field("incarnation", pa.int64(), nullable=False),
        pa.field("deleted", pa.bool_(), nullable=False),
        pa.field("source_bucket", pa.string(), nullable=False),
        pa.field("source_stream", pa.string(), nullable=False),
        pa.field("source_incarnation", pa.int64(), nullable=False),
        pa.field("from", pa.int64(), nullable=False),
        pa.field("to", pa.int64(), nullable=False),
    ]
)
"""The fork inherits its bytes from `from` up to `to` from one life of its source, which may be a fork itself. A deleted
fork is no longer a stream; it is listed for its own forks."""

READS = 8
"""How many objects are read at the same time."""

MANIFESTS_CACHED_MAX = 64
"""How many manifests a reader keeps decoded: about 16 MiB."""

A = TypeVar("A")
B = TypeVar("B")
E = TypeVar("E", SegmentEntry, DeletesEntry)


class ForkRow(NamedTuple):
    """A row of the forks."""

    name: str
    incarnation: int
    deleted: bool
    source: str
    source_incarnation: int
    start: int
    to: int
    record_start: int = 0
    record_to: int = 0
    """The same in record numbers, which only the server knows: they are not in the table."""


class Deletes(msgspec.Struct, frozen=True, gc=False):
    """The file of the deleted rows of a segment."""

    key: str
    size: int
    crc: int
    rows: int


class ListedSegment(msgspec.Struct, frozen=True):
    """A segment as a catalog lists it: enough to plan a scan and to verify every byte."""

    key: str
    number: int
    live_rows: int
    """How many rows a stream or a fork needs."""
    segment: Segment
    deletes: Deletes | None = None


class Catalog(msgspec.Struct, frozen=True):
    """The contents of a lake as of one snapshot."""

    key: str
    """The key of the metadata file."""
    snapshot_id: int
    shard: int
    log_id: str
    position: int
    """The position of the state that it describes."""
    flushed: int
    """Every live row up to this position is in one of the segments."""
    dropped: int
    """The highest position of any row that was ever dropped from the lake."""
    at: int
    """The shard's time."""
    segments: list[ListedSegment] = []
    forks_key: str = ""
    forks_crc: int = 0
    pinned_id: int = 0
    """The snapshot of the table `pinned` that belongs to it."""


def read_catalog(store: Store) -> Catalog | None:
    """The catalog in force, None if the lake has none. LakeDamaged if it cannot be decoded."""
    return CatalogReader(store).read()


MayHold = Callable[[Segment | Coverage], bool]
"""Whether a segment, or some of those that a manifest lists, can have rows that matter."""


class CatalogReader:
    """Reads the catalog of one lake again and again: only what has changed since the last time.

    While nothing changes, a read is one request for an object that does not exist yet: the next version. Of a large
    lake `heading` and `matching` read only the manifests that a query needs.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._table: Table | None = None
        self.current: Catalog | None = None
        """The last heading."""
        self._manifests: list[Manifest] | None = None
        self._entries: dict[str, list[SegmentEntry] | list[DeletesEntry]] = {}
        """Of the manifests that were read last, the latest of them last."""
        self._lock = Lock()

    def read(self) -> Catalog | None:
        """As `read_catalog`."""
        return None if self.heading() is None else self.matching(lambda _: True)

    def heading(self) -> Catalog | None:
        """The catalog in force without its segments."""
        if self._table is None or self._has_changed(self._table):
            table = newest_table(self._store, NAME)
            self.current = None if table is None else _heading(table)
            self._table, self._manifests = table, None
        return self.current

    def _has_changed(self, table: Table) -> bool:
        try:
            self._store.read(metadata_key(table.name, table.version + 1, table.log_id), 0, 1)
        except KeyMissing:
            return False
        return True

    def matching(self, may_hold: MayHold) -> Catalog:
        """The catalog of the last heading, with the segments that can have rows that matter."""
        heading = self.current
        assert self._table is not None and heading is not None, "there is a catalog"
        if self._manifests is None:
            self._manifests = manifests_of(self._store, self._table.current)
            listed = {one.key for one in self._manifests}
            self._entries = {key: entries for key, entries in self._entries.items() if key in listed}
        data = [one for one in of_content(self._manifests, Content.DATA) if one.covers is None or may_hold(one.covers)]

        def segments(manifest: Manifest) -> list[SegmentEntry]:
            entries = self._cached(manifest, segments_in)
            return [entry for entry in entries if may_hold(entry.segment)]

        found = [entry for some in _each(segments, data) for entry in some]
        numbers = sorted(entry.number for entry in found)
        deletes = [
            one
            for one in of_content(self._manifests, Content.DELETES)
            if one.covers is None or one.covers.has_any(numbers)
        ]
        wanted = set(numbers)

        def deleted(manifest: Manifest) -> list[DeletesEntry]:
            return [entry for entry in self._cached(manifest, deletes_in) if entry.number in wanted]

        dead = {entry.number: entry for some in _each(deleted, deletes) for entry in some}
        try:
            listed_segments = [_listed(entry, heading.shard, dead.get(entry.number)) for entry in found]
        except ValueError as problem:
            raise LakeDamaged(heading.key, f"its newest snapshot cannot be understood ({problem})") from problem
        return msgspec.structs.replace(heading, segments=listed_segments)

    def _cached(self, manifest: Manifest, read: Callable[[Store, Manifest], list[E]]) -> list[E]:
        """The entries of a manifest; those of the last few are kept, because the next read often needs them too."""
        with self._lock:
            found = cast("list[E] | None", self._entries.pop(manifest.key, None))
        if found is None:
            found = read(self._store, manifest)
        with self._lock:
            self._entries[manifest.key] = found
            if len(self._entries) > MANIFESTS_CACHED_MAX:
                del self._entries[next(iter(self._entries))]
        return found


def _heading(table: Table) -> Catalog:
    """The catalog of a table's current snapshot, without its segments."""
    snapshot, summary = table.current, table.current.summary
    try:
        forks_key, forks_crc = summary["headwater.forks"].split(" ")
        check_key(forks_key)
        shard, position, flushed, dropped, at = (
            int(summary[f"headwater.{name}"]) for name in ("shard", "position", "flushed", "dropped", "at")
        )
        head = Catalog(table.key, snapshot.id, shard, table.log_id, position, flushed, dropped, at)
        forks = {"forks_key": forks_key, "forks_crc": int(forks_crc)}
        return msgspec.structs.replace(head, **forks, pinned_id=int(summary["headwater.pinned"]))
    except (KeyError, ValueError) as problem:
        raise LakeDamaged(table.key, f"its newest snapshot cannot be understood ({problem})") from problem


def _listed(entry: SegmentEntry, shard: int, dead: DeletesEntry | None) -> ListedSegment:
    key, segment = entry.key(shard), entry.segment
    check_key(key)
    if dead is None:
        return ListedSegment(key, entry.number, segment.rows, segment)
    deletes = Deletes(dead.key, dead.size, dead.crc, dead.rows)
    return ListedSegment(key, entry.number, dead.live_rows, segment, deletes)


def _each(work: Callable[[A], B], over: Sequence[A]) -> Iterable[B]:
    """Some work on each of these, several at a time: each waits for the store most of the time."""
    if len(over) < 3:
        return map(work, over)
    with ThreadPoolExecutor(READS, "catalog") as threads:
        return list(threads.map(work, over))


# -- Dead rows ---------------------------------------------------------------------------------------------------------


def read_tombstones(store: Store, catalog: Catalog) -> pa.Table:
    """The tombstones of all lives with dead rows in a lake, in the schema `TOMBSTONES`."""
    return tombstones_of(store, [listed.deletes for listed in catalog.segments if listed.deletes is not None])


def tombstones_of(store: Store, files: Sequence[Deletes]) -> pa.Table:
    """The tombstones of all lives in some files of deleted rows."""
    lives = [life for some in _each(lambda one: _dead_lives(store, one), files) for life in some]
    columns = [life.incarnation for life in lives], [life.below for life in lives]
    table = pa.table([pa.array(column, pa.int64()) for column in columns], TOMBSTONES)
    return table.group_by("incarnation").aggregate([("below", "max")]).rename_columns(TOMBSTONES.names).cast(TOMBSTONES)


def _dead_lives(store: Store, deletes: Deletes) -> list[DeadLife]:
    try:
        data = store.read(deletes.key)
        if crc32c(data) != deletes.crc:
            raise ValueError("its checksum does not match")
        return dead_lives(data)
    except KeyMissing as problem:
        raise LakeDamaged(deletes.key, "it is missing") from problem
    except ValueError as problem:
        raise LakeDamaged(deletes.key, str(problem)) from problem


# -- Forks -------------------------------------------------------------------------------------------------------------


def read_forks_table(store: Store, catalog: Catalog) -> pa.Table:
    """The forks of a catalog, in the schema `FORKS`."""
    return _forks_in(store, catalog.forks_key, catalog.forks_crc)


def read_forks(store: Store, catalog: Catalog) -> list[ForkRow]:
    """The forks of a catalog as values."""
    return forks_in(store, catalog.forks_key, catalog.forks_crc)


def _forks_in(store: Store, key: str, crc: int) -> pa.Table:
    try:
        data = store.read(key)
        if crc32c(data) != crc:
            raise LakeDamaged(key, "its checksum does not match")
        table = pq.read_table(pa.BufferReader(data), use_threads=False)
    except KeyMissing as problem:
        raise LakeDamaged(key, "it is missing") from problem
    except (pa.ArrowException, OSError, ValueError) as problem:
        raise LakeDamaged(key, f"it cannot be decoded ({str(problem).rstrip('.')})") from problem
    if not table.schema.equals(FORKS):
        raise LakeDamaged(key, f"its columns are {', '.join(table.schema.names)}, or not of the right types")
    return table.combine_chunks()


def forks_in(store: Store, key: str, crc: int) -> list[ForkRow]:
    """The forks in a file of the table `forks`, as values."""
    columns = [column.to_pylist() for column in _forks_in(store, key, crc).columns]
    return [
        ForkRow(name_of(bucket, stream), incarnation, deleted, name_of(source_bucket, source_stream), *rest)
        for bucket, stream, incarnation, deleted, source_bucket, source_stream, *rest in zip(*columns, strict=True)
    ]


def forks_table(forks: Iterable[ForkRow]) -> pa.Table:
    """Forks as a table."""
    rows = [
        (*split_name(row.name), row.incarnation, row.deleted, *split_name(row.source), *row[4:7])
        for row in sorted(forks, key=lambda row: row.incarnation)
    ]
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(FORKS)
    return pa.table([pa.array(column, field.type) for column, field in zip(columns, FORKS, strict=True)], FORKS)
