"""Delta tables: every batch is one transaction of the table, which remembers the export and the batch."""

import os
import time
from collections.abc import Iterator

import pyarrow as pa

from headwater.spark.jobs.export.files import FileRules
from headwater.spark.jobs.export.ledger import staged_stem
from headwater.spark.jobs.export.shape import PARTITIONS
from headwater.spark.jobs.export.tables import DataFile, TableFile, TableOptions, Written, check_mark, file_schema
from headwater.spark.jobs.places import Place
from headwater.spark.jobs.report import JobFailed
from headwater.storage.s3 import ENDPOINTS

try:
    from deltalake import DeltaTable, Schema
    from deltalake.exceptions import CommitFailedError, TableNotFoundError
    from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction
except ImportError:
    raise JobFailed("Delta tables need the package deltalake: pip install 'headwater[tables]'.") from None

DATA = "data/"
EXPORT = "headwater.export"


class DeltaExport:
    """A table of the Delta protocol, at the place itself."""

    def __init__(self, place: Place, options: TableOptions) -> None:
        self._place, self._options = place, options
        arrow = file_schema(options.columns, without=())
        self._schema = Schema.from_arrow(arrow.append(pa.field("day", pa.date32())))

    def rules(self, batch: int, attempt: str) -> FileRules:
        return FileRules(
            self._place.url,
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
        mark = self._options.mark
        table = self._open() or self._create()
        # Other runs of this export may have decided since `has` was asked. The table refuses the same transaction twice
        # only from there on where it was opened: so it is asked, and written, as it was opened here.
        if self._holds(table, written.batch):
            return
        position = table.transaction_version(_position_of(mark)) or 0
        remembered = CommitProperties(
            custom_metadata={EXPORT: mark, "headwater.batch": written.batch},
            app_transactions=[
                Transaction(mark, written.batch),
                Transaction(_position_of(mark), max(written.position, position)),
            ],
        )
        actions: list[AddAction | RemoveAction] = [_added(file) for file in written.files]
        try:
            table.create_write_transaction(
                actions, "append", self._schema, list(PARTITIONS), commit_properties=remembered
            )
        except CommitFailedError:
            # Another run of this export may have decided on the same batch in this moment.
            if not self.has(written.batch):
                raise

    def files(self) -> Iterator[TableFile]:
        table = self._open()
        if table is None:
            return
        if len(pa.table(table.deletion_vectors())):
            raise JobFailed(f"Rows of the table at {self._place.url} were deleted in place; compact it first.")
        for action in pa.table(table.get_add_actions(flatten=True)).to_pylist():
            yield TableFile(action["path"], action["partition.bucket"])

    @property
    def position(self) -> int | None:
        table = self._open()
        return None if table is None else table.transaction_version(_position_of(self._options.mark))

    def _holds(self, table: DeltaTable, batch: int) -> bool:
        last = table.transaction_version(self._options.mark)
        return last is not None and last >= batch

    def _open(self) -> DeltaTable | None:
        try:
            table = DeltaTable(self._place.url, storage_options=storage_options())
        except TableNotFoundError:
            return None
        self._check(table)
        return table

    def _create(self) -> DeltaTable:
        table = DeltaTable.create(
            self._place.url,
            self._schema,
            mode="ignore",
            partition_by=list(PARTITIONS),
            name=self._options.mark,
            configuration={EXPORT: self._options.mark},
            raise_if_key_not_exists=False,
            storage_options=storage_options(),
        )
        # Somebody else may have been faster.
        self._check(table)
        return table

    def _check(self, table: DeltaTable) -> None:
        found = table.metadata().configuration.get(EXPORT)
        check_mark(f"Delta table at {self._place.url}", found, self._options.mark)


def _position_of(mark: str) -> str:
    """Under which name a table remembers up to which position it has everything."""
    return f"{mark}/position"


def _added(file: DataFile) -> AddAction:
    now_ms = int(time.time() * 1000)
    return AddAction(file.key, file.size, {"day": file.day, "bucket": file.bucket}, now_ms, True, file.stats)


def storage_options() -> dict[str, str]:
    """What the library does not find in the environment by itself."""
    endpoint = next((os.environ[name] for name in ENDPOINTS if os.environ.get(name)), "")
    if not endpoint:
        return {}
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ALLOW_HTTP": str(endpoint.startswith("http://")).lower(),
        "AWS_CONDITIONAL_PUT": "etag",
    }
