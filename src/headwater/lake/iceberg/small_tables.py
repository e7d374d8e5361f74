"""Tables that are written whole: their rows are in one file, or in a few if there are many rows.

A rewrite begins, adds files, and finishes with a commit. A file that equals one of the current snapshot is not stored
again, and if all of them do, there is nothing to commit.
"""

from collections.abc import Callable, Collection

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from crc32c import crc32c

from headwater.lake.damage import LakeDamaged
from headwater.lake.iceberg.bounds import NameBounds
from headwater.lake.iceberg.commits import Commits, Leftover
from headwater.lake.iceberg.manifests import (
    Content,
    FileEntry,
    Manifest,
    Stamp,
    Status,
    TableLocation,
    described,
    files_manifest,
    unpack,
)
from headwater.lake.iceberg.metadata import Snapshot
from headwater.lake.iceberg.reading import manifests_of
from headwater.storage.store import KeyMissing, Store


class SmallTable:
    """A table of few files; for one thread at a time."""

    def __init__(
        self,
        store: Store,
        location: TableLocation,
        name: str,
        log_id: str,
        *,
        history_ms: int,
        now_ms: Callable[[], int],
    ) -> None:
        self._store, self._name, self._log_id = store, name, log_id
        self._location = location
        self._commits = Commits(store, name, self._location, log_id, history_ms=history_ms, now_ms=now_ms)
        self._manifest: Manifest | None = None
        self._files: list[FileEntry] = []
        """What the current snapshot lists."""
        self._loaded = False
        self._stamp = Stamp(0, 0)
        self._added: list[FileEntry] = []
        """The files of the rewrite that has begun."""

    def load(self) -> None:
        """Find the newest commit in the store, unless it is known."""
        if self._loaded:
            return
        self._manifest, self._files = None, []
        self._commits.load()
        if self._commits.table is not None:
            try:
                [self._manifest] = manifests_of(self._store, self._commits.table.current)
                self._files = files_in(self._store, self._manifest)
            except (LakeDamaged, ValueError):
                # It is written anew.
                self._manifest = None
        self._loaded = True

    @property
    def updated_ms(self) -> int | None:
        """When the last commit was made; None before the first, or if its files are not known."""
        table = self._commits.table
        return None if table is None or self._manifest is None else table.current.at_ms

    @property
    def position(self) -> int:
        """The log position that the last commit names; 0 before the first."""
        return 0 if self._commits.table is None else self._commits.table.current.position

    # -- Rewriting ----------------------------------------------------------------------------------------------------

    def commit(self, rows: pa.Table, position: int) -> str:
        """Make these rows the content of the table, unless they are; the key and the CRC-32C of its file."""
        self.begin()
        self.add(rows)
        self.finish(position)
        [entry] = self._files
        return f"{entry.key} {entry.crc}"

    def begin(self) -> None:
        """Begin a rewrite; one that was not finished is forgotten."""
        self.load()
        self._stamp, self._added = self._commits.new_stamp(), []

    def add(self, rows: pa.Table, names: NameBounds | None = None) -> None:
        """Add a file with these rows."""
        data = parquet(rows.cast(self._location.schema))
        crc = crc32c(data)
        known = next((entry for entry in self._files if (entry.crc, entry.size) == (crc, len(data))), None)
        if known is not None and all(entry.key != known.key for entry in self._added):
            self._added.append(msgspec.structs.replace(known, status=int(Status.EXISTING)))
            return
        self._loaded = False
        part = f"-{len(self._added)}" if self._added else ""
        key = f"{self._name}/data/{self._stamp.sequence:010}-{self._stamp.snapshot_id:016x}{part}.parquet"
        self._commits.put(key, data)
        self._added.append(FileEntry(Status.ADDED, *self._stamp, key, len(data), crc, len(rows), names))
        self._loaded = True

    def finish(self, position: int) -> bool:
        """Commit the files that were added; return whether they differ from the previous ones."""
        kept = {entry.key for entry in self._added}
        gone = [entry for entry in self._files if entry.key not in kept]
        if self._manifest is not None and not gone and len(kept) == len(self._files):
            return False
        self._loaded = False
        self._commit(gone, position)
        self._loaded = True
        return True

    def _commit(self, gone: list[FileEntry], position: int) -> None:
        commits, before, stamp = self._commits, self._manifest, self._stamp
        removed = [
            msgspec.structs.replace(entry, status=int(Status.REMOVED), snapshot_id=stamp.snapshot_id) for entry in gone
        ]
        entries = [*self._added, *removed]
        content, key = files_manifest(entries, self._location), commits.new_key("data")
        commits.put(key, content)
        manifest = described(key, content, Content.DATA, entries, stamp)
        summary = {
            "operation": "append" if before is None else "overwrite",
            "total-records": str(sum(entry.rows for entry in self._added)),
            "total-data-files": str(len(self._added)),
            "headwater.position": str(position),
            "headwater.log-id": self._log_id,
        }
        commits.commit(stamp, [manifest], summary)
        self._manifest, self._files = manifest, self._added
        if before is not None:
            commits.leave([Leftover(before.key, before.sequence, stamp.sequence)])
            commits.leave(Leftover(old.key, old.sequence, stamp.sequence) for old in gone)

    # -- Old snapshots ------------------------------------------------------------------------------------------------

    def tidy(self, needed: Collection[str] = ()) -> None:
        """Drop the snapshots whose time has come, and delete what only they needed, except for these files."""
        if self._loaded:
            self._commits.expire()
            self._commits.find_leftovers(lambda one: [entry.key for entry in files_in(self._store, one)])
            self._commits.sweep(needed)

    def forget_history(self, needed: Collection[str] = ()) -> None:
        """Keep one snapshot alone, without entries that say what was removed, and delete what only others needed."""
        assert self._loaded, "only right after a commit"
        self._loaded = False
        self._stamp = self._commits.new_stamp()
        self._added = [msgspec.structs.replace(entry, status=int(Status.EXISTING)) for entry in self._files]
        self._commit([], self.position)
        self._commits.expire_all()
        self._loaded = True
        self.tidy(needed)


def files_in(store: Store, manifest: Manifest) -> list[FileEntry]:
    """The files that a manifest lists, without those that it says were removed."""
    try:
        found = unpack(store.read(manifest.key), manifest.crc, FileEntry)
    except KeyMissing as problem:
        raise LakeDamaged(manifest.key, "it is missing") from problem
    except ValueError as problem:
        raise LakeDamaged(manifest.key, str(problem)) from problem
    return [entry for entry in found if entry.status != Status.REMOVED]


def files_of(store: Store, snapshot: Snapshot) -> list[FileEntry]:
    """The files of a snapshot."""
    return [entry for manifest in manifests_of(store, snapshot) for entry in files_in(store, manifest)]


def read_file(store: Store, entry: FileEntry, schema: pa.Schema) -> pa.Table:
    """The rows of a file. LakeDamaged if it is not what was stored, or does not have these columns."""
    try:
        data = store.read(entry.key)
        if crc32c(data) != entry.crc:
            raise LakeDamaged(entry.key, "its checksum does not match")
        table = pq.read_table(pa.BufferReader(data), use_threads=False)
    except KeyMissing as problem:
        raise LakeDamaged(entry.key, "it is missing") from problem
    except (pa.ArrowException, OSError, ValueError) as problem:
        raise LakeDamaged(entry.key, f"it cannot be decoded ({str(problem).rstrip('.')})") from problem
    if not table.schema.equals(schema):
        raise LakeDamaged(entry.key, f"its columns are {', '.join(table.schema.names)}, or not of the right types")
    return table


def parquet(rows: pa.Table) -> bytes:
    """The rows as a Parquet file, equal for equal rows."""
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, compression="zstd", write_page_checksum=True, store_schema=False)
    return bytes(sink.getvalue())
