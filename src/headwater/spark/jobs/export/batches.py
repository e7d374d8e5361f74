"""One batch of an export: the tasks store it, the driver commits it."""

import secrets
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from headwater.spark.jobs.export.audit import AUDIT, merged
from headwater.spark.jobs.export.files import FACTS_DDL, FileRules, encoded, write_files
from headwater.spark.jobs.export.ledger import (
    Columns,
    audit_key,
    change_columns,
    check_query,
    create_once,
    settle,
    staged_stem,
)
from headwater.spark.jobs.export.tables import DataFile, Table, Written
from headwater.storage.opening import open_table_store
from headwater.storage.store import TableStore

QUERY_PROPERTY = "sql.streaming.queryId"
"""The local property with the query's id, which is the same for all runs from one checkpoint."""


class Counts(NamedTuple):
    """The totals of a run."""

    batches: int = 0
    repeated: int = 0
    """Batches that an earlier run had committed before it was killed."""
    rows: int = 0
    bytes: int = 0
    files: int = 0
    streams: int = 0


class Widening(NamedTuple):
    """New columns of a table, to be recorded with the first batch that has them."""

    number: int
    shape: dict[str, Any]


class Stopped(Exception):
    """The export was asked to stop before this batch began."""


class Exporter:
    """Writes batches to a table, one after another."""

    def __init__(
        self,
        store: TableStore,
        table: Table,
        widening: Widening | None = None,
        stop: threading.Event | None = None,
    ) -> None:
        self._store, self._table, self._widening = store, table, widening
        self._stop = stop or threading.Event()
        self.counts = Counts()
        self.batches: list[int] = []
        self.failure: Exception | None = None
        """The failure of a batch, before Spark wraps it into an exception of its own."""

    def __call__(self, rows: DataFrame, batch: int) -> None:
        """Export a batch unless the table has it."""
        try:
            if self._stop.is_set():
                # Spark must not record the batch as done; the next run repeats it.
                raise Stopped
            query = rows.sparkSession.sparkContext.getLocalProperty(QUERY_PROPERTY)
            check_query(self._store, str(query), batch)
            self._export(rows, batch)
        except Exception as failure:
            self.failure = failure
            raise

    def _export(self, rows: DataFrame, batch: int) -> None:
        if self._table.has(batch):
            settle(self._store, batch)
            self.counts = self.counts._replace(repeated=self.counts.repeated + 1)
            return
        attempt = secrets.token_hex(4)
        rules = self._table.rules(batch, attempt)
        written = write_batch(rows, rules, f"{staged_stem(batch, attempt)}.audit")
        if written.files:
            self._record_columns(batch)
            self._table.commit(written)
            settle(self._store, batch)
        self._count(written)

    def _record_columns(self, batch: int) -> None:
        """Before the commit, so that every later run has these columns, even if this one is killed now."""
        if self._widening is not None:
            change_columns(self._store, self._widening.number, Columns(batch, self._widening.shape))
            self._widening = None

    def _count(self, written: Written) -> None:
        before = self.counts
        self.counts = Counts(
            before.batches + 1,
            before.repeated,
            before.rows + written.rows,
            before.bytes + written.bytes,
            before.files + len(written.files),
            # The distinct streams of several batches are counted from their audits.
            written.streams,
        )
        if written.files:
            self.batches.append(written.batch)

    def count_streams(self, spark: SparkSession) -> int:
        """The number of distinct streams in the batches of this run."""
        if len(self.batches) < 2:
            return self.counts.streams if self.batches else 0
        audits = merged(spark, self._store.location, [audit_key(batch) for batch in self.batches])
        return audits.select("bucket", "stream").distinct().count()


def write_batch(rows: DataFrame, rules: FileRules, audit: str) -> Written:
    """Let the tasks store the files of a batch, and its audit under a key."""
    facts = rows.mapInArrow(partial(write_files, rules), FACTS_DDL).toArrow().to_pylist()
    files = [
        DataFile(**{name: fact[name] for name in DataFile._fields})
        for fact in sorted(facts, key=lambda fact: str(fact["key"]))
        if fact["kind"] == "data"
    ]
    parts = {fact["key"]: fact["rows"] for fact in facts if fact["kind"] == "part"}
    if not files:
        return Written(rules.batch, [], 0)
    if len(parts) > 1:
        return Written(rules.batch, files, write_audit(rows.sparkSession, rules.location, sorted(parts), audit))
    ((part, streams),) = parts.items()
    open_table_store(rules.location).move(part, audit)
    return Written(rules.batch, files, streams)


def write_audit(spark: SparkSession, location: str, parts: list[str], audit: str) -> int:
    """Merge the parts that tasks have stored into one audit; return its number of streams."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        table = pa.Table.from_batches(batches, AUDIT)
        # A retried task may find the audit of its first attempt.
        create_once(open_table_store(location), audit, encoded(table))
        yield pa.RecordBatch.from_pydict({"streams": [len(table)]})

    ordered = merged(spark, location, parts).coalesce(1).sortWithinPartitions("bucket", "stream", "incarnation")
    return sum(row["streams"] for row in ordered.mapInArrow(write, "streams long").collect())
