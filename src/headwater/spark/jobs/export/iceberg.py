"""Iceberg tables: every batch is one snapshot, and a property of the table records the last batch.

Snapshots expire, and another writer's may follow ours, so the batch is read from the properties, which change in the
same transaction. After a conflict the properties are checked before the commit is retried.

A commit rewrites the table's metadata, with all snapshots, and the list of manifests of its snapshot. So that it costs
the same however many batches there were, old snapshots and metadata files are deleted, and small manifests are merged.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from headwater.protocol.limits import MIB
from headwater.spark.jobs.export.files import FileRules, day_of
from headwater.spark.jobs.export.ledger import staged_stem
from headwater.spark.jobs.export.tables import TableFile, TableOptions, Written, check_export_id, file_schema
from headwater.spark.jobs.report import JobFailed
from headwater.storage.folder import FolderStore
from headwater.storage.s3 import iceberg_options
from headwater.storage.store import TableStore

try:
    from pyiceberg.catalog import Catalog, load_catalog
    from pyiceberg.exceptions import CommitFailedException, NoSuchNamespaceError, NoSuchTableError
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot
    from pyiceberg.table.update.snapshot import ExpireSnapshots
    from pyiceberg.transforms import DayTransform
except ImportError:
    raise JobFailed(
        "Iceberg tables need the package pyiceberg; install it with `pip install 'headwater[tables]'`."
    ) from None

DATA = "data/"
NAMESPACE = "headwater"
BATCH = "headwater.batch"
EXPORT = "headwater.export"
POSITION = "headwater.position"
ATTEMPTS_MAX = 10
"""Attempts at a commit that conflicts with other writers of the table."""
SNAPSHOTS_KEPT = 20
SNAPSHOTS_EXPIRED_AT_ONCE = 10
"""Deleting the files of snapshots means reading what the others need, so it is done for several at a time."""
METADATA_FILES_KEPT = 10
MANIFESTS_TO_MERGE = 20
MANIFEST_BYTES = MIB
"""Manifests are merged when there are this many, up to this size: some thousand files."""
CATALOG_FILE = "catalog.db"

_PLAIN = re.compile(r"[^a-z0-9_]+")


class IcebergExport:
    """A table of an Iceberg catalog, with its data at a location."""

    def __init__(self, store: TableStore, options: TableOptions) -> None:
        self._store, self._options = store, options
        self._schema = file_schema(options.columns, without=(), wide=True)
        self._catalog = open_catalog(store, options.catalog)
        last = _PLAIN.sub("_", store.location.rstrip("/").rpartition("/")[2].lower()).strip("_")
        self._table = options.table or f"{NAMESPACE}.{last or 'streams'}"

    def rules(self, batch: int, attempt: str) -> FileRules:
        stem = f"{DATA}batch-{batch:010}-{attempt}"
        return FileRules(self._store.location, batch, stem, ".parquet", staged_stem(batch, attempt), self._schema)

    def has(self, batch: int) -> bool:
        table = self._open()
        return table is not None and int(table.properties.get(BATCH, -1)) >= batch

    def commit(self, written: Written) -> None:
        properties = {EXPORT: self._options.export_id, BATCH: str(written.batch)}
        paths = [f"{self._store.location}/{file.key}" for file in written.files]
        for attempt in range(ATTEMPTS_MAX):
            table = self._open() or self._create()
            if int(table.properties.get(BATCH, -1)) >= written.batch:
                return
            position = max(written.position, int(table.properties.get(POSITION, 0)))
            expired = expired_snapshots(table)
            try:
                with table.transaction() as transaction:
                    with transaction.update_schema() as update:
                        # Adds columns and widens numbers; without new ones it changes nothing.
                        update.union_by_name(self._schema)
                    # The names of files are unique, so there is no need to look for them among all files.
                    transaction.add_files(paths, snapshot_properties=properties, check_duplicate_files=False)
                    transaction.set_properties({**properties, POSITION: str(position)})
                    if expired:
                        ids = [snapshot.snapshot_id for snapshot in expired]
                        ExpireSnapshots(transaction).by_ids(ids).commit()
            except CommitFailedException:
                if attempt + 1 == ATTEMPTS_MAX:
                    raise
            else:
                delete_metadata(table, expired)
                return

    def files(self) -> Iterator[TableFile]:
        table = self._open()
        if table is None:
            return
        for task in table.scan().plan_files():
            if task.delete_files:
                raise JobFailed(f"The table {self._table} has delete files; rewrite it first.")
            day, bucket = task.file.partition[0], task.file.partition[1]
            key = task.file.file_path.removeprefix(f"{self._store.location}/")
            yield TableFile(key, str(day_of(day)), bucket)

    @property
    def position(self) -> int | None:
        table = self._open()
        found = None if table is None else table.properties.get(POSITION)
        return None if found is None else int(found)

    def _open(self) -> Table | None:
        try:
            table = self._catalog.load_table(self._table)
        except (NoSuchTableError, NoSuchNamespaceError):
            return None
        check_export_id(f"Iceberg table {self._table}", table.properties.get(EXPORT), self._options.export_id)
        if table.spec().is_unpartitioned():
            # An earlier run was killed between creating the table and partitioning it.
            with table.update_spec() as update:
                update.add_field("committed_at", DayTransform(), "day")
                update.add_identity("bucket")
        return table

    def _create(self) -> Table:
        self._catalog.create_namespace_if_not_exists(self._table.rpartition(".")[0])
        self._catalog.create_table_if_not_exists(
            self._table,
            self._schema,
            location=self._store.location,
            properties={
                EXPORT: self._options.export_id,
                "commit.retry.num-retries": "0",
                "commit.manifest-merge.enabled": "true",
                "commit.manifest.min-count-to-merge": str(MANIFESTS_TO_MERGE),
                "commit.manifest.target-size-bytes": str(MANIFEST_BYTES),
                "write.metadata.delete-after-commit.enabled": "true",
                "write.metadata.previous-versions-max": str(METADATA_FILES_KEPT),
            },
        )
        table = self._open()
        assert table is not None
        return table


def expired_snapshots(table: Table) -> list[Snapshot]:
    """The oldest snapshots, if there are many more than are kept; none that a branch or a tag names."""
    named = {reference.snapshot_id for reference in table.refs().values()}
    found = sorted(table.snapshots(), key=lambda snapshot: snapshot.timestamp_ms)
    count = len(found) - SNAPSHOTS_KEPT
    if count < SNAPSHOTS_EXPIRED_AT_ONCE:
        return []
    return [snapshot for snapshot in found[:count] if snapshot.snapshot_id not in named]


def delete_metadata(table: Table, expired: Sequence[Snapshot]) -> None:
    """Delete the metadata of expired snapshots that the table's current ones do not need. Data is never deleted."""
    if not expired:
        return
    needed = {manifest.manifest_path for one in table.snapshots() for manifest in one.manifests(table.io)}
    known = {manifest.manifest_path for one in expired for manifest in one.manifests(table.io)}
    known.update(map(_first_manifest, expired))
    for path in sorted(known - needed | {one.manifest_list for one in expired}):
        with suppress(FileNotFoundError):
            table.io.delete(path)


def _first_manifest(snapshot: Snapshot) -> str:
    """The manifest that pyiceberg wrote first for a snapshot, to which nothing refers if it was merged at once."""
    folder, _, name = snapshot.manifest_list.rpartition("/")
    commit = "-".join(name.removesuffix(".avro").split("-")[-5:])
    return f"{folder}/{commit}-m0.avro"


def open_catalog(store: TableStore, uri: str | None) -> Catalog:
    """The catalog at a URI, or in a SQLite file next to the data."""
    if uri is None:
        if not isinstance(store, FolderStore):
            raise JobFailed(f"An Iceberg table at {store.location} needs a catalog; pass its URI as --catalog.")
        store.folder.mkdir(parents=True, exist_ok=True)
        uri = f"sqlite:///{Path(store.folder, CATALOG_FILE)}"
    return load_catalog(NAMESPACE, uri=uri, warehouse=store.location, **iceberg_options())
