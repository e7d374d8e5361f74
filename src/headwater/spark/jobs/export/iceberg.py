"""Iceberg tables: every batch is one snapshot, and a property of the table records the last batch.

Snapshots expire, and another writer's may follow ours, so the batch is read from the properties, which change in the
same transaction. After a conflict the properties are checked before the commit is retried.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from headwater.spark.jobs.export.files import FileRules
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
            try:
                with table.transaction() as transaction:
                    transaction.add_files(paths, snapshot_properties=properties)
                    transaction.set_properties({**properties, POSITION: str(position)})
            except CommitFailedException:
                if attempt + 1 == ATTEMPTS_MAX:
                    raise
            else:
                return

    def files(self) -> Iterator[TableFile]:
        table = self._open()
        if table is None:
            return
        for task in table.scan().plan_files():
            if task.delete_files:
                raise JobFailed(f"The table {self._table} has delete files; rewrite it first.")
            yield TableFile(task.file.file_path.removeprefix(f"{self._store.location}/"), None)

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
            properties={EXPORT: self._options.export_id, "commit.retry.num-retries": "0"},
        )
        table = self._open()
        assert table is not None
        return table


def open_catalog(store: TableStore, uri: str | None) -> Catalog:
    """The catalog at a URI, or in a SQLite file next to the data."""
    if uri is None:
        if not isinstance(store, FolderStore):
            raise JobFailed(f"An Iceberg table at {store.location} needs a catalog; pass its URI as --catalog.")
        store.folder.mkdir(parents=True, exist_ok=True)
        uri = f"sqlite:///{Path(store.folder, CATALOG_FILE)}"
    return load_catalog(NAMESPACE, uri=uri, warehouse=store.location, **iceberg_options())
