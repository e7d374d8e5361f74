"""Small tables: one data file, written whole whenever its rows have changed."""

from collections.abc import Callable, Collection

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from crc32c import crc32c

from headwater.lake.damage import LakeDamaged
from headwater.lake.iceberg.commits import Commits, Leftover
from headwater.lake.iceberg.manifests import (
    Content,
    FileEntry,
    Manifest,
    Place,
    Status,
    described,
    files_manifest,
    unpack,
)
from headwater.lake.iceberg.reading import manifests_of
from headwater.storage.store import KeyMissing, Store


class SmallTable:
    """A table of one file; for one thread at a time."""

    def __init__(
        self,
        store: Store,
        place: Place,
        name: str,
        log_id: str,
        *,
        history_ms: int,
        now_ms: Callable[[], int],
    ) -> None:
        self._store, self._name, self._log_id = store, name, log_id
        self._place = place
        self._commits = Commits(store, name, self._place, log_id, history_ms=history_ms, now_ms=now_ms)
        self._current: tuple[Manifest, FileEntry] | None = None
        self._loaded = False

    def _load(self) -> None:
        self._current = None
        self._commits.load()
        if self._commits.table is not None:
            try:
                [manifest] = manifests_of(self._store, self._commits.table.current)
                entries = unpack(self._store.read(manifest.key), manifest.crc, FileEntry)
                [entry] = [entry for entry in entries if entry.status != Status.REMOVED]
                self._current = manifest, entry
            except (LakeDamaged, KeyMissing, ValueError):
                # It is written anew.
                self._current = None

    def commit(self, rows: pa.Table, position: int) -> str:
        """Make these rows the content of the table, unless they are; the key and the CRC-32C of its file."""
        if not self._loaded:
            self._load()
        self._loaded = False
        data = parquet(rows.cast(self._place.schema))
        if self._current is None or self._current[1].crc != crc32c(data):
            self._commit(data, len(rows), position)
        self._loaded = True
        assert self._current is not None
        entry = self._current[1]
        return f"{entry.key} {entry.crc}"

    def _commit(self, data: bytes, rows: int, position: int) -> None:
        commits, before = self._commits, self._current
        stamp = commits.new_stamp()
        key = f"{self._name}/data/{stamp.sequence:010}-{stamp.snapshot_id:016x}.parquet"
        commits.put(key, data)
        entry = FileEntry(Status.ADDED, *stamp, key, len(data), crc32c(data), rows)
        entries = [entry]
        if before is not None:
            old = before[1]
            entries.append(msgspec.structs.replace(old, status=int(Status.REMOVED), snapshot_id=stamp.snapshot_id))
        content, manifest_key = files_manifest(entries, self._place), commits.new_key("data")
        commits.put(manifest_key, content)
        manifest = described(manifest_key, content, Content.DATA, entries, stamp)
        summary = {
            "operation": "append" if before is None else "overwrite",
            "total-records": str(rows),
            "total-data-files": "1",
            "headwater.position": str(position),
            "headwater.log-id": self._log_id,
        }
        commits.commit(stamp, [manifest], summary)
        self._current = manifest, entry
        if before is not None:
            commits.leave(Leftover(old.key, old.sequence, stamp.sequence) for old in before)

    def tidy(self, needed: Collection[str]) -> None:
        """Drop the snapshots whose time has come, and delete what only they needed, except for these files."""
        if self._loaded:
            self._commits.expire()
            self._commits.find_leftovers(self._files_in)
            self._commits.sweep(needed)

    def _files_in(self, manifest: Manifest) -> list[str]:
        return [entry.key for entry in unpack(self._store.read(manifest.key), manifest.crc, FileEntry)]


def parquet(rows: pa.Table) -> bytes:
    """The rows as a Parquet file, equal for equal rows."""
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, compression="zstd", write_page_checksum=True, store_schema=False)
    return bytes(sink.getvalue())
