"""The columns that the source returns, and Arrow batches that match them exactly, as Spark requires."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from inspect import signature
from typing import Any, get_type_hints

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
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
from headwater.spark.options.source import SourceOptions
from headwater.spark.options.values import OptionRefused

_OPTIONS: dict[str, Any] = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
"""Before 4.2 times are always in UTC."""
MESSAGE = "message"
SNAPSHOT = "snapshot"
BATCH_ROWS = 32_768
BATCH_BYTES = 8 * 1024 * 1024
"""When rows are handed to Spark. Anywhere from 8 to 128 thousand rows performs alike, so memory use decides."""

_TYPES: dict[pa.DataType, DataType] = {
    pa.string(): StringType(),
    pa.int64(): LongType(),
    pa.timestamp("us", tz="UTC"): TimestampType(),
    pa.binary(): BinaryType(),
    pa.bool_(): BooleanType(),
}
_FIELD_TYPES: dict[Any, pa.DataType] = {
    str: pa.string(),
    str | None: pa.string(),
    int: pa.int64(),
    bool: pa.bool_(),
    bytes: pa.binary(),
}


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema of a Spark schema, with times in UTC."""
    return to_arrow_schema(schema, **_OPTIONS)


def schema_of(row: type[tuple[Any, ...]]) -> pa.Schema:
    """The Arrow schema of the rows that a named tuple describes."""
    return pa.schema([(name, _FIELD_TYPES[kind]) for name, kind in get_type_hints(row).items()])


def spark_schema(schema: pa.Schema) -> StructType:
    """The Spark schema of an Arrow schema."""
    return StructType([StructField(field.name, _TYPES[field.type]) for field in schema])


class SourceSchema:
    """The columns that a read returns, and how they are made from those of the lake."""

    def __init__(self, options: SourceOptions, *, batch_rows: int = BATCH_ROWS, batch_bytes: int = BATCH_BYTES) -> None:
        self._value, self._batch_rows, self._batch_bytes = options.value, batch_rows, batch_bytes
        extra = [*(["value"] if options.value else []), *(["kind"] if options.bootstraps else [])]
        chosen = options.columns or SCHEMA.names
        self.columns = (*chosen, *(name for name in extra if name not in chosen))

    @property
    def sources(self) -> frozenset[str]:
        """The columns of the lake that must be read to make the columns."""
        for_value = {"payload", "content_type"} if self._value else set()
        return frozenset(name for name in (*self.columns, *for_value) if name in SCHEMA.names)

    @cached_property
    def spark(self) -> StructType:
        """The columns for Spark; all are nullable: to say which are never null made no scan measurably cheaper."""
        return StructType([StructField(name, self._type(name)) for name in self.columns])

    @cached_property
    def arrow(self) -> pa.Schema:
        """The schema that Spark checks each batch against."""
        return arrow_schema(self.spark)

    def _type(self, name: str) -> DataType:
        if name == "kind":
            return StringType()
        if name == "value":
            return VariantType() if self._value == "variant" else StringType()
        return _TYPES[SCHEMA.field(name).type]

    def check(self, schema: StructType) -> None:
        """Raise OptionRefused if a user declares other columns than these."""
        if [(field.name, field.dataType) for field in schema] != [(field.name, field.dataType) for field in self.spark]:
            raise OptionRefused(
                "The source defines its own columns; leave schema() out, and choose columns with the option columns."
            )

    def batches(self, tables: Iterator[pa.Table]) -> Iterator[pa.RecordBatch]:
        """Batches of moderate size from tables that have the sources."""
        waiting: list[pa.Table] = []
        rows = size = 0
        for table in tables:
            if not len(table):
                continue
            made = self.table(table)
            waiting.append(made)
            rows, size = rows + len(made), size + made.nbytes
            if rows >= self._batch_rows or size >= self._batch_bytes:
                yield from _joined(waiting)
                waiting, rows, size = [], 0, 0
        yield from _joined(waiting)

    def table(self, table: pa.Table) -> pa.Table:
        """A table with exactly these columns."""
        read = dict(zip(table.column_names, table.columns, strict=True))
        made = [
            read[name] if name in read else self._made(name, field.type, table)
            for name, field in zip(self.columns, self.arrow, strict=True)
        ]
        return pa.table(made, schema=self.arrow)

    def _made(self, name: str, arrow_type: pa.DataType, table: pa.Table) -> pa.ChunkedArray | pa.Array:
        if name == "kind":
            return pa.repeat(MESSAGE, len(table))
        assert name == "value", f"the table lacks {name}"
        if self._value == "string":
            return as_strings(table["payload"])
        return as_variants(table["payload"], table["content_type"], arrow_type)


def _joined(tables: Sequence[pa.Table]) -> list[pa.RecordBatch]:
    batches: list[pa.RecordBatch] = pa.concat_tables(tables).combine_chunks().to_batches() if tables else []
    return batches


def as_strings(payload: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    """Payloads as strings; null where they are not UTF-8."""
    try:
        return payload.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([_string(data) for data in payload.to_pylist()], pa.string())


def _string(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def as_variants(payload: pa.ChunkedArray, content_type: pa.ChunkedArray, arrow_type: pa.DataType) -> pa.Array:
    """Payloads of JSON streams as variants; null for other streams, and for values that a variant cannot hold."""
    json_types = [name for name in pc.unique(content_type).to_pylist() if is_json(name)]
    is_value = pc.is_in(content_type, value_set=pa.array(json_types, pa.string())).to_pylist()
    parsed = [_variant(data) if one else None for data, one in zip(payload.to_pylist(), is_value, strict=True)]
    parts = [
        pa.array([b"" if variant is None else getattr(variant, part) for variant in parsed], pa.binary())
        for part in ("value", "metadata")
    ]
    missing = pa.array([variant is None for variant in parsed], pa.bool_())
    return pa.StructArray.from_arrays(parts, fields=list(arrow_type), mask=missing)


def _variant(data: bytes) -> VariantVal | None:
    try:
        return VariantVal.parseJson(data.decode())
    except (ValueError, ArithmeticError, RecursionError, PySparkException):
        return None
