"""The audit of an export: which batch has which offsets of which stream."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater.storage.opening import open_table_store

FOLD_ROWS = 100_000
"""Rows that a tally collects before it aggregates them."""
LIFE = ("batch", "bucket", "stream", "incarnation")
COUNTS = (
    ("first_offset", "min"),
    ("last_offset", "max"),
    ("next_offset", "max"),
    ("last_position", "max"),
    ("rows", "sum"),
    ("bytes", "sum"),
)
"""The columns about a life's rows, each with the function that aggregates it."""

AUDIT = pa.schema(
    [
        pa.field("batch", pa.int64()),
        pa.field("bucket", pa.string()),
        pa.field("stream", pa.string()),
        pa.field("incarnation", pa.int64()),
        *(pa.field(name, pa.int64()) for name, _ in COUNTS),
    ]
)
AUDIT_DDL = "batch long, bucket string, stream string, incarnation long, " + ", ".join(
    f"{name} long" for name, _ in COUNTS
)


class AuditTally:
    """Counts rows by stream and incarnation."""

    def __init__(self, batch: int, fold_rows: int = FOLD_ROWS) -> None:
        self._batch, self._fold_rows = batch, fold_rows
        self._tables: list[pa.Table] = []
        self._rows = 0

    def add(self, rows: pa.Table) -> None:
        batch, ones = (pa.array([value] * len(rows), pa.int64()) for value in (self._batch, 1))
        life = [batch, *(rows[name] for name in LIFE[1:])]
        ends = [rows["offset"], rows["offset"], rows["next_offset"], rows["position"]]
        counted = pa.table([*life, *ends, ones, pc.binary_length(rows["payload"]).cast(pa.int64())], schema=AUDIT)
        self._tables.append(aggregated(counted))
        self._rows += len(self._tables[-1])
        if self._rows > self._fold_rows:
            self._tables = [self.result()]
            # Even if aggregation saved nothing, the next one waits for as many rows again.
            self._rows = 0

    def result(self) -> pa.Table:
        """One row for each life so far."""
        return aggregated(pa.concat_tables(self._tables)) if self._tables else AUDIT.empty_table()


def aggregated(counted: pa.Table) -> pa.Table:
    """One row for each life."""
    found = counted.group_by(list(LIFE), use_threads=False).aggregate(list(COUNTS))
    return pa.table([*(found[name] for name in LIFE), *(found[f"{name}_{how}"] for name, how in COUNTS)], schema=AUDIT)


def merged(spark: SparkSession, location: str, keys: Sequence[str]) -> DataFrame:
    """The audits that tasks have stored under these keys, aggregated to one row for each life."""
    named = spark.createDataFrame([(key,) for key in keys], "key string").repartition(min(len(keys), 64))

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        store = open_table_store(location)
        for batch in batches:
            for key in batch["key"].to_pylist():
                yield from pq.read_table(pa.BufferReader(store.read(key))).to_batches()

    hows = {"min": F.min, "max": F.max, "sum": F.sum}
    counts = [hows[how](name).alias(name) for name, how in COUNTS]
    return named.mapInArrow(read, AUDIT_DDL).groupBy(*LIFE).agg(*counts)
