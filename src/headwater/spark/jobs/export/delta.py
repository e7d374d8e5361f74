"""Delta tables: every batch is one transaction, which records the export and the batch."""

import time
from collections.abc import Iterator

import pyarrow as pa

from headwater.spark.jobs.export.files import DataFile, FileRules
from headwater.spark.jobs.export.ledger import staged_stem
from headwater.spark.jobs.export.shape import PARTITIONS
from headwater.spark.jobs.export.tables import TableFile, TableOptions, Written, check_export_id, file_schema
from headwater.spark.jobs.report import JobFailed
from headwater.storage.s3 import delta_options
from headwater.storage.store import TableStore

try:
    from deltalake import DeltaTable, Schema
    from deltalake.exceptions import CommitFailedError, TableNotFoundError
    from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction
except ImportError:
    raise JobFailed(
        "Delta tables need the package deltalake; install it with `pip install 'headwater[tables]'`."
    ) from None

DATA = "data/"
EXPORT = "headwater.export"


class DeltaExport:
    """A Delta table."""

    def __init__(self, store: TableStore, options: TableOptions) -> None:
        self._store, self._options = store, options
        arrow = file_schema(options.columns, without=())
        self._schema = Schema.from_arrow(arrow.append(pa.field("day", pa.date32())))

    def rules(self, batch: int, attempt: str) -> FileRules:
        return FileRules(
            self._store.location,
            batch,
            f"{DATA}batch-{batch:010}-{attempt}",
            ".parquet",
            staged_stem(batch, attempt),
            file_schema(self._options.columns),
        )

    def has(self, batch: int) -> bool:
        table = self._open()
        return table is not None and self._holds(table, batch)

    def commit(self, written: Written) -> None:
        export_id = self._options.export_id
        table = self._widened(self._open() or self._create())
        # Another run of this export may have committed the batch since `has` returned. The table rejects a repeated
        # transaction only if it was committed after the table was opened, so check and commit use the same open table.
        if self._holds(table, written.batch):
            return
        position = table.transaction_version(_position_id(export_id)) or 0
        properties = CommitProperties(
            custom_metadata={EXPORT: export_id, "headwater.batch": written.batch},
            app_transactions=[
                Transaction(export_id, written.batch),
                Transaction(_position_id(export_id), max(written.position, position)),
            ],
        )
        actions: list[AddAction | RemoveAction] = [_added(file) for file in written.files]
        try:
            table.create_write_transaction(
                actions, "append", table.schema(), list(PARTITIONS), commit_properties=properties
            )
        except CommitFailedError:
            # Another run of this export may have committed the same batch at the same time.
            if not self.has(written.batch):
                raise

    def files(self) -> Iterator[TableFile]:
        table = self._open()
        if table is None:
            return
        if len(pa.table(table.deletion_vectors())):
            raise JobFailed(f"The table at {self._store.location} has deletion vectors; compact it first.")
        for action in pa.table(table.get_add_actions(flatten=True)).to_pylist():
            yield TableFile(action["path"], str(action["partition.day"]), action["partition.bucket"])

    @property
    def position(self) -> int | None:
        table = self._open()
        return None if table is None else table.transaction_version(_position_id(self._options.export_id))

    def _holds(self, table: DeltaTable, batch: int) -> bool:
        last = table.transaction_version(self._options.export_id)
        return last is not None and last >= batch

    def _open(self) -> DeltaTable | None:
        try:
            table = DeltaTable(self._store.location, storage_options=delta_options())
        except TableNotFoundError:
            return None
        self._check(table)
        return table

    def _create(self) -> DeltaTable:
        table = DeltaTable.create(
            self._store.location,
            self._schema,
            mode="ignore",
            partition_by=list(PARTITIONS),
            name=self._options.export_id,
            configuration={EXPORT: self._options.export_id},
            raise_if_key_not_exists=False,
            storage_options=delta_options(),
        )
        # Another export may have created it first.
        self._check(table)
        return table

    def _widened(self, table: DeltaTable) -> DeltaTable:
        """The table with all columns of this run: a transaction of its own, which changes no rows."""
        found = {field.name: field.type for field in table.schema().fields}
        new = [field for field in self._schema.fields if found.get(field.name) != field.type]
        if not new:
            return table
        table.alter.add_columns(new)
        # Another run may have added them as well, or committed a batch.
        return self._open() or table

    def _check(self, table: DeltaTable) -> None:
        found = table.metadata().configuration.get(EXPORT)
        check_export_id(f"Delta table at {self._store.location}", found, self._options.export_id)


def _position_id(export_id: str) -> str:
    """The application id whose transaction version is the position up to which the table is complete."""
    return f"{export_id}/position"


def _added(file: DataFile) -> AddAction:
    now_ms = int(time.time() * 1000)
    return AddAction(file.key, file.size, {"day": file.day, "bucket": file.bucket}, now_ms, True, file.stats)
