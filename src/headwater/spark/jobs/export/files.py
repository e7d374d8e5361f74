"""The files of an export: each task writes one or more for every day and bucket in its rows.

A file is built in memory and stored as a whole, so no engine sees half of one; its name is unique to the attempt.
"""

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater.lake.format import WORDS
from headwater.protocol.limits import MIB
from headwater.spark.schemas import schema_of, spark_schema
from headwater.storage.opening import open_table_store

# -- The audit: which batch has which offsets of which stream ----------------------------------------------------------


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
    return named.mapInArrow(read, spark_schema(AUDIT)).groupBy(*LIFE).agg(*counts)


# -- Files -------------------------------------------------------------------------------------------------------------


DAY_US = 86_400_000_000
SPARK_COLUMNS = "org.apache.spark.sql.parquet.row.metadata"
"""The metadata from which Spark reads types that Parquet does not have, such as VARIANT."""


class DataFile(NamedTuple):
    """A file that a task has stored."""

    key: str
    day: str
    bucket: str
    rows: int
    bytes: int
    size: int
    position: int
    stats: str


FACTS = schema_of(DataFile).insert(0, pa.field("kind", pa.string()))
"""What tasks report to the driver: each file (kind `data`), and the task's part of the audit (kind `part`)."""


class FileLimits(NamedTuple):
    """Sizes at which a task encodes rows and finishes files."""

    group_bytes: int = 16 * MIB
    """Approximate size of a row group before encoding; a reader holds one or two in memory."""
    file_bytes: int = 128 * MIB
    """The encoded size at which a file is finished, usual for files of a table."""
    open_bytes_max: int = 256 * MIB
    """Memory for all unfinished files of a task; above it the largest is finished."""


class FileRules(NamedTuple):
    """How the tasks of a batch write their files; small enough to send to executors."""

    location: str
    batch: int
    stem: str
    """The prefix of the keys of this attempt's files."""
    ending: str
    audit_stem: str
    schema: pa.Schema
    """The columns of a file, in order."""
    spark_columns: str | None = None
    """The same in Spark's notation, as JSON, if they include a VARIANT."""
    limits: FileLimits = FileLimits()


def write_files(rules: FileRules, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Store the rows of one task, and report the files."""
    context = TaskContext.get()
    task = f"{context.partitionId():05}-{context.taskAttemptId()}" if context else "00000-0"
    files, audit = TaskFiles(rules, task), AuditTally(rules.batch)
    for batch in batches:
        if len(batch):
            table = pa.Table.from_batches([batch])
            audit.add(table)
            files.add(table)
    facts = files.finish()
    if facts:
        part = audit.result()
        key = f"{rules.audit_stem}-{task}.part"
        open_table_store(rules.location).create(key, encoded(part))
        facts.append({"kind": "part", "key": key, "rows": len(part)})
    yield pa.RecordBatch.from_pylist(facts, schema=FACTS)


class TaskFiles:
    """The files that one task is writing."""

    def __init__(self, rules: FileRules, task: str) -> None:
        self._rules, self._task = rules, task
        self._store = open_table_store(rules.location)
        self._open: dict[tuple[int, str], OpenFile] = {}
        self._facts: list[dict[str, object]] = []

    def add(self, table: pa.Table) -> None:
        """Add rows to the files of their days and buckets."""
        for day, bucket, rows in by_day_and_bucket(table):
            file = self._open.get((day, bucket))
            if file is None:
                file = self._open[day, bucket] = OpenFile(self._rules)
            file.add(rows)
            if file.encoded_bytes >= self._rules.limits.file_bytes:
                self._finish(day, bucket)
            while sum(one.held_bytes for one in self._open.values()) > self._rules.limits.open_bytes_max:
                self._finish(*max(self._open, key=lambda one: self._open[one].held_bytes))

    def finish(self) -> list[dict[str, object]]:
        """Store the open files, and return the facts of all files."""
        for day, bucket in sorted(self._open):
            self._finish(day, bucket)
        return self._facts

    def _finish(self, day: int, bucket: str) -> None:
        file = self._open.pop((day, bucket))
        key = f"{self._rules.stem}-{self._task}-{len(self._facts):04}{self._rules.ending}"
        data, facts = file.finish()
        self._store.create(key, data)
        named = {"kind": "data", "key": key, "day": str(day_of(day)), "bucket": bucket, "size": len(data)}
        self._facts.append({**named, **facts})


class OpenFile:
    """A file that is being built."""

    def __init__(self, rules: FileRules) -> None:
        self._rules = rules
        self._sink = pa.BufferOutputStream()
        self._writer = parquet_writer(self._sink, rules.schema)
        self._waiting: list[pa.Table] = []
        self._waiting_bytes = self._rows = self._payload_bytes = 0
        self._ranges: dict[str, tuple[int, int]] = {}

    @property
    def encoded_bytes(self) -> int:
        return int(self._sink.tell())

    @property
    def held_bytes(self) -> int:
        """The memory that the file uses."""
        return self.encoded_bytes + self._waiting_bytes

    def add(self, rows: pa.Table) -> None:
        self._rows += len(rows)
        self._payload_bytes += pc.sum(pc.binary_length(rows["payload"])).as_py()
        for name in ("incarnation", "offset", "position", "committed_at"):
            found = pc.min_max(rows[name].cast(pa.int64())).as_py()
            low, high = self._ranges.get(name, (found["min"], found["max"]))
            self._ranges[name] = min(low, found["min"]), max(high, found["max"])
        made = fitted(rows, self._rules.schema)
        self._waiting.append(made)
        self._waiting_bytes += made.nbytes
        if self._waiting_bytes >= self._rules.limits.group_bytes:
            self._encode()

    def _encode(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.concat_tables(self._waiting).combine_chunks())
        self._waiting, self._waiting_bytes = [], 0

    def finish(self) -> tuple[bytes, dict[str, object]]:
        """The bytes of the file, and its facts."""
        self._encode()
        if self._rules.spark_columns is not None:
            self._writer.add_key_value_metadata({SPARK_COLUMNS: self._rules.spark_columns})
        self._writer.close()
        facts = {
            "rows": self._rows,
            "bytes": self._payload_bytes,
            "position": self._ranges["position"][1],
            "stats": statistics(self._rows, self._ranges),
        }
        return self._sink.getvalue().to_pybytes(), facts


def parquet_writer(sink: pa.NativeFile, schema: pa.Schema) -> pq.ParquetWriter:
    """A Parquet writer with the settings of all our files."""
    words = [name for name in schema.names if name in WORDS]
    return pq.ParquetWriter(sink, schema, compression="zstd", use_dictionary=words, write_page_checksum=True)


def encoded(table: pa.Table) -> bytes:
    """A small table as a Parquet file."""
    sink = pa.BufferOutputStream()
    with parquet_writer(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def fitted(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows with exactly the columns and types of a file."""
    return pa.table([_fitted(rows[field.name], field.type) for field in schema], schema=schema)


def _fitted(column: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray:
    if column.type == wanted:
        return column
    if pa.types.is_struct(wanted) and {one.name for one in wanted} == {"metadata", "value"}:
        # A VARIANT: Spark and Parquet order its fields differently, and in Parquet the fields of a null are not null.
        whole = column.combine_chunks()
        parts = [pc.fill_null(whole.field(one.name), b"") for one in wanted]
        return pa.chunked_array([pa.StructArray.from_arrays(parts, fields=list(wanted), mask=whole.is_null())])
    return column.cast(wanted)


def by_day_and_bucket(table: pa.Table) -> Iterator[tuple[int, str, pa.Table]]:
    """The rows of each day (counted from 1970, in UTC) and bucket, in their original order."""
    days = table["committed_at"].cast(pa.int64()).combine_chunks().to_numpy(zero_copy_only=False) // DAY_US
    buckets = table["bucket"].combine_chunks().dictionary_encode()
    codes = buckets.indices.to_numpy(zero_copy_only=False)
    order = np.lexsort((codes, days))
    changes = np.flatnonzero(np.diff(days[order]) | np.diff(codes[order])) + 1
    ends = [0, *changes.tolist(), len(table)]
    if len(ends) > 2:
        table = table.take(pa.array(order))
    for first, end in pairwise(ends):
        at = order[first]
        yield int(days[at]), buckets.dictionary[int(codes[at])].as_py(), table.slice(first, end - first)


def day_of(day: int) -> date:
    """A day counted from 1970."""
    return date(1970, 1, 1) + timedelta(days=day)


def statistics(rows: int, ranges: dict[str, tuple[int, int]]) -> str:
    """The statistics of a file with which Delta skips files that a query does not need.

    >>> statistics(2, {"committed_at": (1_500, 2_500)})
    '{"numRecords":2,"minValues":{"committed_at":"1970-01-01T00:00:00.001Z"},\
"maxValues":{"committed_at":"1970-01-01T00:00:00.003Z"}}'
    """
    low = {name: found[0] for name, found in ranges.items() if name != "committed_at"}
    high = {name: found[1] for name, found in ranges.items() if name != "committed_at"}
    first_us, last_us = ranges["committed_at"]
    # Times have milliseconds here. The minimum is rounded down and the maximum up, so that no row is outside.
    times = {"committed_at": _time(first_us // 1000)}, {"committed_at": _time(-(-last_us // 1000))}
    found = {"numRecords": rows, "minValues": {**low, **times[0]}, "maxValues": {**high, **times[1]}}
    return json.dumps(found, separators=(",", ":"))


def _time(milliseconds: int) -> str:
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)
    return at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{milliseconds % 1000:03}Z"
