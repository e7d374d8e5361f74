"""The export to verify: how far it has come, its rows as digests, and whether its columns match the payloads.

The table must list a row under the day of its time and under its bucket, and its typed columns must be what the payload
parses to with the expressions of the export.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import types
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType, VariantType

from headwater.lake.format import SCHEMA
from headwater.spark.jobs.export.files import DAY_US, day_of, fitted
from headwater.spark.jobs.export.job import open_table
from headwater.spark.jobs.export.ledger import IDENTITY_KEY, all_columns, export_id_of, read_json
from headwater.spark.jobs.export.shape import Shape
from headwater.spark.jobs.export.tables import Table, TableFile, TableOptions
from headwater.spark.jobs.origin import Origin
from headwater.spark.jobs.report import JobFailed, open_location
from headwater.spark.jobs.verify.lives import DIGESTS, FLAW, NEEDED, digests
from headwater.spark.schemas import arrow_schema, spark_schema
from headwater.storage.opening import open_table_store

# -- The export and its state ------------------------------------------------------------------------------------------


CHOICE = ("bucket", "prefix", "streams", "streamsPattern")
_BATCH = re.compile(r"(?:^|/)batch-(\d{10})-[^/]+$")
TIMES = ("startingTimestamp", "endingTimestamp")
"""The options of the source that select what an export holds."""


@dataclass(frozen=True, slots=True)
class Export:
    """An export and its current state."""

    location: str
    origin: Origin
    position: int
    """The position of the log up to which it is complete; -1 if it is empty."""
    since: int | None
    until: int | None
    """The time range of its messages, in microseconds since 1970."""
    shapes: Sequence[tuple[int, Shape]]
    """Its columns in addition to those of the lake, each with the batch from which on they were these."""
    table: Table

    def files(self) -> dict[Shape, list[TableFile]]:
        """The files of its table, by the columns that they have."""
        found: dict[Shape, list[TableFile]] = {self.shapes[0][1]: []}
        for file in self.table.files():
            found.setdefault(self._shape_of(file), []).append(file)
        return found

    def _shape_of(self, file: TableFile) -> Shape:
        """The columns of a file, by the batch in its name; a file that another tool has made may be of any batch."""
        if len(self.shapes) == 1:
            return self.shapes[0][1]
        batch = _BATCH.search(file.key)
        if batch is None:
            return Shape()
        return next(shape for first, shape in reversed(self.shapes) if first <= int(batch[1]))


def open_export(url: str, origin: Origin, catalog: str | None = None, table: str | None = None) -> Export:
    """The export at a URL; JobFailed if there is none, or if it is of other streams than the origin."""
    store = open_location(url)
    identity = read_json(store, IDENTITY_KEY)
    if identity is None:
        raise JobFailed(
            f"There is no export at {store.location}; create one with `headwater spark export --to {store.location}`."
        )
    selection = identity["selection"]
    origin = chosen(origin, selection, store.location)
    times = replace(origin, options={name: selection[name] for name in TIMES if name in selection}).parsed()
    with origin.link() as link:
        log_id = link.log_id()
    if log_id != identity["log_id"]:
        raise JobFailed(
            f"The export at {store.location} is from another server than {origin.url}; pass that server as --url."
        )
    opened = open_table(identity["format"], store, TableOptions(export_id_of(identity), StructType([]), catalog, table))
    # Read before the files are listed, so that they are complete up to this position.
    position = opened.position
    reached = -1 if position is None else position
    shapes = [(batch, Shape(**shape)) for batch, shape in all_columns(store)]
    return Export(store.location, origin, reached, times.since, times.until, shapes, opened)


def chosen(origin: Origin, selection: Mapping[str, str], where: str) -> Origin:
    """The origin with the export's selection of streams, which need not be given again."""
    given = {name: value for name, value in origin.source_options().items() if name in CHOICE}
    wanted = {name: value for name, value in selection.items() if name in CHOICE}
    if given and given != wanted:
        raise JobFailed(f"The export at {where} is of {json.dumps(wanted)}; select the same streams, or none.")
    return replace(
        origin,
        bucket=wanted.get("bucket"),
        prefix=wanted.get("prefix"),
        streams=json.loads(wanted.get("streams", "[]")),
        pattern=wanted.get("streamsPattern"),
    )


# -- Its rows ----------------------------------------------------------------------------------------------------------


FILES_PER_TASK = 4
STORED = "stored"
"""The column with the typed columns of a file, as a struct."""


class _Reading(NamedTuple):
    """What a task needs to know to read files."""

    location: str
    stored: StructType
    """The typed columns."""
    arrow: pa.Schema
    """The columns that the task returns."""


def export_rows(spark: SparkSession, location: str, files: Sequence[TableFile], shape: Shape) -> DataFrame:
    """What the files of a table hold, as digests."""
    tasks = 1 + len(files) // FILES_PER_TASK
    table = spark.createDataFrame(files, "key string, day string, bucket string").repartition(tasks)
    stored = _typed(spark, shape)
    columns = spark_schema(SCHEMA).add(FLAW, StringType())
    if not len(stored):
        reading = _Reading(location, stored, arrow_schema(columns))
        return table.mapInArrow(partial(_digests, reading), spark_schema(DIGESTS))
    columns = columns.add(STORED, stored)
    reading = _Reading(location, stored, arrow_schema(columns))
    rows = table.mapInArrow(partial(_read, reading), columns)
    flaw = F.coalesce(FLAW, _first_wrong(stored, shape)).alias(FLAW)
    return rows.select(*NEEDED, flaw).mapInArrow(digests, spark_schema(DIGESTS))


def _typed(spark: SparkSession, shape: Shape) -> StructType:
    """The columns of a table in addition to those of the lake."""
    return spark.createDataFrame([], spark_schema(SCHEMA)).select(*shape.parsed()).schema


def _first_wrong(stored: StructType, shape: Shape) -> Column:
    """The first typed column that differs from what the payload parses to, as a flaw; null if there is none."""
    found = []
    for field, expected in zip(stored, shape.parsed(), strict=True):
        here = F.col(STORED).getField(field.name)
        same = _text(here).eqNullSafe(_text(expected)) if _as_text(field.dataType) else here.eqNullSafe(expected)
        found.append(F.when(~same, F.lit(f"the column {field.name} is not what the payload says")))
    return F.coalesce(*found)


def _as_text(kind: DataType) -> bool:
    """Whether to compare values of a type as text, because Spark does not compare maps and variants."""
    if isinstance(kind, StructType):
        return any(_as_text(field.dataType) for field in kind)
    return isinstance(kind, MapType | VariantType) or (isinstance(kind, ArrayType) and _as_text(kind.elementType))


def _text(value: Column) -> Column:
    exact = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX", "ignoreNullFields": "false"}
    return F.to_json(F.struct(value.alias("value")), exact)


# -- In a task ---------------------------------------------------------------------------------------------------------


def _digests(reading: _Reading, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return digests(_read(reading, batches))


def _read(reading: _Reading, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    store = open_table_store(reading.location)
    for batch in batches:
        for listed in map(TableFile._make, zip(*(column.to_pylist() for column in batch.columns), strict=True)):
            file = pq.ParquetFile(pa.BufferReader(store.read(listed.key)))
            for rows in file.iter_batches():
                yield _checked(reading, pa.Table.from_batches([rows]), listed)


def _checked(reading: _Reading, rows: pa.Table, listed: TableFile) -> pa.RecordBatch:
    """The rows of a file in the wanted columns, with the flaw of each row."""
    if "bucket" not in rows.column_names:
        # A Delta table has the values of its partitions in its log only.
        rows = rows.append_column("bucket", pa.repeat(listed.bucket, len(rows)))
    flaws = _misplaced(rows, listed)
    if len(reading.stored):
        wanted = reading.arrow.field(STORED).type
        struct, flaw = _stored(rows, wanted)
        rows = rows.append_column(STORED, struct)
        flaws = pc.fill_null(flaws, flaw) if flaw is not None else flaws
    rows = rows.append_column(FLAW, flaws)
    (batch,) = fitted(rows, reading.arrow).combine_chunks().to_batches()
    return batch


def _misplaced(rows: pa.Table, listed: TableFile) -> pa.Array:
    """For each row whether the table lists it where it does not belong, as a flaw."""
    flaws = pa.nulls(len(rows), pa.string())
    bucket = pc.not_equal(rows["bucket"], listed.bucket).combine_chunks()
    flaws = pc.if_else(bucket, f"the table lists the row in the bucket {listed.bucket!r}", flaws)
    days = rows["committed_at"].cast(pa.int64()).combine_chunks().to_numpy(zero_copy_only=False) // DAY_US
    wrong = np.array([str(day_of(int(day))) != listed.day for day in np.unique(days)])
    day = pa.array(wrong[np.searchsorted(np.unique(days), days)])
    return pc.if_else(day, f"the table lists the row under the day {listed.day}", flaws)


def _stored(rows: pa.Table, wanted: pa.StructType) -> tuple[pa.Array, str | None]:
    """The typed columns of a file as a struct, and a flaw of all rows if one is missing or has another type."""
    columns, flaw = [], None
    for field in wanted:
        column = pa.chunked_array([pa.nulls(len(rows), field.type)])
        found = rows[field.name].type if field.name in rows.column_names else None
        if found is None:
            flaw = flaw or f"there is no column {field.name}"
        elif _family(found) != _family(field.type):
            flaw = flaw or f"the column {field.name} has the type {found}"
        else:
            try:
                column = fitted(rows, pa.schema([field]))[field.name]
            except pa.ArrowException:
                flaw = flaw or f"the column {field.name} has values that are not {field.type}"
        columns.append(column.combine_chunks())
    return pa.StructArray.from_arrays(columns, fields=list(wanted)), flaw


def _family(kind: pa.DataType) -> str:
    """What other types of a column a query does not notice: table formats and their tools choose the width."""
    for family in ("integer", "floating", "decimal", "timestamp", "date", "boolean", "struct", "map"):
        if getattr(types, f"is_{family}")(kind):
            return family
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return "string"
    return "list" if types.is_list(kind) or types.is_large_list(kind) else str(kind)
