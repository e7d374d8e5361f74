"""The files of an export: what a task makes of its rows, one file or more for every day and bucket that it meets.

A file is made in memory and stored whole, so nobody ever sees half of one; its name is unique to the attempt.
"""

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark import TaskContext

from headwater.lake.format import WORDS
from headwater.spark.jobs.export.audit import AuditTally
from headwater.spark.jobs.places import open_place

MIB = 1024 * 1024
GROUP_BYTES = 16 * MIB
"""Rows of a row group before they are encoded, about; a reader holds one or two."""
FILE_BYTES_MAX = 128 * MIB
"""The usual size of a file in a table, encoded."""
OPEN_BYTES_MAX = 256 * MIB
"""What all files of a task that are not finished may hold together; beyond that the largest is finished."""

DAY_US = 86_400_000_000
SPARK_COLUMNS = "org.apache.spark.sql.parquet.row.metadata"
"""Where Spark looks for types that Parquet has no word for, such as VARIANT."""

FACTS = pa.schema(
    [
        pa.field("kind", pa.string()),
        pa.field("key", pa.string()),
        pa.field("day", pa.string()),
        pa.field("bucket", pa.string()),
        pa.field("rows", pa.int64()),
        pa.field("bytes", pa.int64()),
        pa.field("size", pa.int64()),
        pa.field("position", pa.int64()),
        pa.field("stats", pa.string()),
    ]
)
"""What tasks tell the driver: of every file (kind `data`) and of the part of the audit that is theirs (kind `part`)."""
FACTS_DDL = (
    "kind string, key string, day string, bucket string, rows long, bytes long, size long, position long, stats string"
)


class FileRules(NamedTuple):
    """What every task of a batch has to know; small, and safe to send to executors."""

    place: str
    batch: int
    stem: str
    """How the keys of this attempt's files begin."""
    ending: str
    audit_stem: str
    schema: pa.Schema
    """The columns of a file, in order."""
    spark_columns: str | None = None
    """The same for Spark, as JSON, if they include a VARIANT."""


def write_files(rules: FileRules, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Store the rows of one task, and tell of the files."""
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
        open_place(rules.place).create(key, encoded(part))
        facts.append({"kind": "part", "key": key, "rows": len(part)})
    yield pa.RecordBatch.from_pylist(facts, schema=FACTS)


class TaskFiles:
    """The files that one task is writing."""

    def __init__(self, rules: FileRules, task: str) -> None:
        self._rules, self._task = rules, task
        self._place = open_place(rules.place)
        self._open: dict[tuple[int, str], OpenFile] = {}
        self._facts: list[dict[str, object]] = []

    def add(self, table: pa.Table) -> None:
        """Put rows where they belong."""
        for day, bucket, rows in by_day_and_bucket(table):
            file = self._open.get((day, bucket))
            if file is None:
                file = self._open[day, bucket] = OpenFile(self._rules)
            file.add(rows)
            if file.encoded_bytes >= FILE_BYTES_MAX:
                self._finish(day, bucket)
            while sum(one.held_bytes for one in self._open.values()) > OPEN_BYTES_MAX:
                self._finish(*max(self._open, key=lambda one: self._open[one].held_bytes))

    def finish(self) -> list[dict[str, object]]:
        """Store what is still open: what there is to say of all files."""
        for day, bucket in sorted(self._open):
            self._finish(day, bucket)
        return self._facts

    def _finish(self, day: int, bucket: str) -> None:
        file = self._open.pop((day, bucket))
        key = f"{self._rules.stem}-{self._task}-{len(self._facts):04}{self._rules.ending}"
        data, facts = file.finish()
        if not self._place.create(key, data):
            raise FileExistsError(f"There is a file {key} in {self._place.url} already; start the export again.")
        named = {"kind": "data", "key": key, "day": str(day_of(day)), "bucket": bucket, "size": len(data)}
        self._facts.append({**named, **facts})


class OpenFile:
    """A file that is being made."""

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
        """What it takes of the memory."""
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
        if self._waiting_bytes >= GROUP_BYTES:
            self._encode()

    def _encode(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.concat_tables(self._waiting).combine_chunks())
        self._waiting, self._waiting_bytes = [], 0

    def finish(self) -> tuple[bytes, dict[str, object]]:
        """The bytes of the file, and what there is to say of it."""
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
    """A writer of Parquet as all files of ours are."""
    words = [name for name in schema.names if name in WORDS]
    return pq.ParquetWriter(sink, schema, compression="zstd", use_dictionary=words, write_page_checksum=True)


def encoded(table: pa.Table) -> bytes:
    """A small table as a file."""
    sink = pa.BufferOutputStream()
    with parquet_writer(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def fitted(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The columns of a file, of exactly the types that it has."""
    return pa.table([_fitted(rows[field.name], field.type) for field in schema], schema=schema)


def _fitted(column: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray:
    if column.type == wanted:
        return column
    if pa.types.is_struct(wanted) and {one.name for one in wanted} == {"metadata", "value"}:
        # A VARIANT: Spark hands its parts over in one order, Parquet wants the other, and parts of a null that are not.
        whole = column.combine_chunks()
        parts = [pc.fill_null(whole.field(one.name), b"") for one in wanted]
        return pa.chunked_array([pa.StructArray.from_arrays(parts, fields=list(wanted), mask=whole.is_null())])
    return column.cast(wanted)


def by_day_and_bucket(table: pa.Table) -> Iterator[tuple[int, str, pa.Table]]:
    """The rows of each day (counted from 1970, in UTC) and bucket, in the order in which they stand."""
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
    """What Delta wants to know of a file, to pass over those that a query does not need.

    >>> statistics(2, {"committed_at": (1_500, 2_500)})
    '{"numRecords":2,"minValues":{"committed_at":"1970-01-01T00:00:00.001Z"},\
"maxValues":{"committed_at":"1970-01-01T00:00:00.003Z"}}'
    """
    low = {name: found[0] for name, found in ranges.items() if name != "committed_at"}
    high = {name: found[1] for name, found in ranges.items() if name != "committed_at"}
    first_us, last_us = ranges["committed_at"]
    # Times have milliseconds here: the first is rounded down and the last up, so that no row lies outside.
    times = {"committed_at": _time(first_us // 1000)}, {"committed_at": _time(-(-last_us // 1000))}
    told = {"numRecords": rows, "minValues": {**low, **times[0]}, "maxValues": {**high, **times[1]}}
    return json.dumps(told, separators=(",", ":"))


def _time(milliseconds: int) -> str:
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)
    return at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{milliseconds % 1000:03}Z"
