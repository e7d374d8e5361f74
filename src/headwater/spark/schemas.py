"""Rows as Spark wants them: the columns that a reader has, and Arrow batches that fit them exactly."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    DataType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VariantType,
    VariantVal,
)

from headwater.lake.format import SCHEMA
from headwater.protocol.content_types import is_json
from headwater.spark.options.reading import SourceOptions
from headwater.spark.options.values import OptionRefused

MESSAGE = "message"
SNAPSHOT = "snapshot"
BATCH_ROWS = 32_768
BATCH_BYTES = 8 * 1024 * 1024
"""When rows are handed over to Spark: it makes no difference for 8 to 128 thousand rows, and memory stays small."""

_TYPES: dict[pa.DataType, DataType] = {
    pa.string(): StringType(),
    pa.int64(): LongType(),
    pa.timestamp("us", tz="UTC"): TimestampType(),
    pa.binary(): BinaryType(),
}


class Shape:
    """The columns of a reader: what it needs to make them, and how."""

    def __init__(self, options: SourceOptions) -> None:
        self._value = options.value
        extra = [*(["value"] if options.value else []), *(["kind"] if options.bootstraps else [])]
        chosen = options.columns or SCHEMA.names
        self.columns = (*chosen, *(name for name in extra if name not in chosen))

    @property
    def sources(self) -> frozenset[str]:
        """The columns of the lake that the columns are made of."""
        made = {"payload", "content_type"} if self._value else set()
        return frozenset(name for name in (*self.columns, *made) if name in SCHEMA.names)

    @cached_property
    def spark(self) -> StructType:
        """The columns as Spark knows them; it takes nothing for granted, so all of them may be null."""
        return StructType([StructField(name, self._type(name)) for name in self.columns])

    @cached_property
    def arrow(self) -> pa.Schema:
        """The columns as Spark checks them."""
        return to_arrow_schema(self.spark, timezone="UTC")

    def _type(self, name: str) -> DataType:
        if name == "kind":
            return StringType()
        if name == "value":
            return VariantType() if self._value == "variant" else StringType()
        return _TYPES[SCHEMA.field(name).type]

    def check(self, schema: StructType) -> None:
        """Raise OptionRefused if somebody wants other columns than these."""
        if [(field.name, field.dataType) for field in schema] != [(field.name, field.dataType) for field in self.spark]:
            raise OptionRefused("This source knows its columns: leave schema() out, and choose some by option columns.")

    def batches(self, tables: Iterator[pa.Table]) -> Iterator[pa.RecordBatch]:
        """Tables that have the sources, as batches of a good size."""
        waiting: list[pa.Table] = []
        rows = size = 0
        for table in tables:
            if not len(table):
                continue
            made = self.table(table)
            waiting.append(made)
            rows, size = rows + len(made), size + made.nbytes
            if rows >= BATCH_ROWS or size >= BATCH_BYTES:
                yield from _joined(waiting)
                waiting, rows, size = [], 0, 0
        yield from _joined(waiting)

    def table(self, table: pa.Table) -> pa.Table:
        """A table with exactly these columns."""
        made = [self._column(name, field.type, table) for name, field in zip(self.columns, self.arrow, strict=True)]
        return pa.table(made, schema=self.arrow)

    def _column(self, name: str, arrow_type: pa.DataType, table: pa.Table) -> pa.ChunkedArray | pa.Array:
        if name in table.column_names:
            return table[name]
        if name == "kind":
            return pa.repeat(MESSAGE, len(table))
        assert name == "value", f"the table lacks {name}"
        if self._value == "string":
            return texts(table["payload"])
        return variants(table["payload"], table["content_type"], arrow_type)


def _joined(tables: Sequence[pa.Table]) -> list[pa.RecordBatch]:
    batches: list[pa.RecordBatch] = pa.concat_tables(tables).combine_chunks().to_batches() if tables else []
    return batches


def texts(payload: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    """Payloads as text; null where they are not UTF-8."""
    try:
        return payload.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([_text(data) for data in payload.to_pylist()], pa.string())


def _text(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def variants(payload: pa.ChunkedArray, content_type: pa.ChunkedArray, arrow_type: pa.DataType) -> pa.Array:
    """Payloads of JSON streams as variants; null for other streams, and where a value is none that a variant holds."""
    types = [word for word in pc.unique(content_type).to_pylist() if is_json(word)]
    marked = pc.is_in(content_type, value_set=pa.array(types, pa.string())).to_pylist()
    parsed = [_variant(data) if is_value else None for data, is_value in zip(payload.to_pylist(), marked, strict=True)]
    parts = [
        pa.array([b"" if variant is None else getattr(variant, part) for variant in parsed], pa.binary())
        for part in ("value", "metadata")
    ]
    missing = pa.array([variant is None for variant in parsed], pa.bool_())
    return pa.StructArray.from_arrays(parts, fields=list(arrow_type), mask=missing)


def _variant(data: bytes) -> Any:
    try:
        return VariantVal.parseJson(data.decode())
    except (ValueError, ArithmeticError, RecursionError, PySparkException):
        return None
