"""The seam between an export and the table formats that it writes.

Tasks store files; then the driver commits the batch, all of its files at once. A committed batch is never committed
again, so a batch is in the table once, no matter when an attempt at it was killed. A file that a commit may refer to is
never deleted.
"""

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import pyarrow as pa
from pyspark.sql.types import (
    AnsiIntervalType,
    ArrayType,
    CalendarIntervalType,
    DataType,
    MapType,
    NullType,
    StructField,
    StructType,
    VariantType,
)

from headwater.spark.jobs.export.files import DataFile, FileRules
from headwater.spark.jobs.export.shape import PARTITIONS
from headwater.spark.jobs.report import JobFailed
from headwater.spark.schemas import arrow_schema

FORMATS = ("parquet", "delta", "iceberg")

_VARIANT = pa.struct([pa.field("metadata", pa.binary(), False), pa.field("value", pa.binary(), False)])


class Written(NamedTuple):
    """The files that an attempt at a batch has stored."""

    batch: int
    files: list[DataFile]
    streams: int

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    @property
    def position(self) -> int:
        """The highest position of all rows."""
        return max(file.position for file in self.files)


class TableFile(NamedTuple):
    """A file of a table, and the partition in which the table lists it, which is where queries look for its rows."""

    key: str
    day: str
    bucket: str


class Table(Protocol):
    """A table that grows by batches."""

    def rules(self, batch: int, attempt: str) -> FileRules:
        """How tasks store the files of a batch."""

    def has(self, batch: int) -> bool:
        """Whether a batch is committed; if so, completes what was left undone after the commit.

        This and the other methods raise JobFailed if the table belongs to another export.
        """

    def commit(self, written: Written) -> None:
        """Commit a batch, unless another run has."""

    def files(self) -> Iterator[TableFile]:
        """The files that make up the table."""

    @property
    def position(self) -> int | None:
        """The position of the log up to which the table is complete."""


class TableOptions(NamedTuple):
    """What a table needs to know in addition to its store."""

    export_id: str
    """Recorded in the table."""
    columns: StructType
    """The columns of the rows, as Spark types."""
    catalog: str | None = None
    table: str | None = None


def check_export_id(table: str, found: str | None, export_id: str) -> None:
    """Raise JobFailed if a table belongs to another export: its batches would be mistaken for ours."""
    if found is not None and found != export_id:
        raise JobFailed(
            f"The {table} holds the export {found!r}, not {export_id!r}; use another table, or drop this one first."
        )


def check_types(format: str, columns: StructType) -> None:
    """Raise JobFailed if a table of this format cannot have these columns."""
    for column in columns:
        kind = None if format == "parquet" else next(filter(_is_foreign, _types_in(column.dataType)), None)
        if kind is not None:
            raise JobFailed(
                f"The column {column.name!r} has the type {kind.simpleString()}, which {format} tables do not have; "
                "use another type, or --format parquet."
            )


def _is_foreign(kind: DataType) -> bool:
    return isinstance(kind, NullType | VariantType | AnsiIntervalType | CalendarIntervalType)


def _types_in(kind: DataType) -> Iterator[DataType]:
    yield kind
    if isinstance(kind, StructType):
        for field in kind:
            yield from _types_in(field.dataType)
    elif isinstance(kind, ArrayType):
        yield from _types_in(kind.elementType)
    elif isinstance(kind, MapType):
        yield from _types_in(kind.keyType)
        yield from _types_in(kind.valueType)


def file_schema(columns: StructType, *, without: tuple[str, ...] = PARTITIONS, wide: bool = False) -> pa.Schema:
    """The columns of a file; `wide` if the table format has no integers below 32 bits."""
    fields = [one for one in columns if one.name not in without]
    arrow = arrow_schema(StructType(fields))
    found = []
    for one, field in zip(fields, arrow, strict=True):
        kind = _VARIANT if isinstance(one.dataType, VariantType) else field.type
        found.append(pa.field(one.name, widened(kind) if wide else kind))
    return pa.schema(found)


def widened(kind: pa.DataType) -> pa.DataType:
    """A type with its integers below 32 bits widened to 32."""
    if kind in (pa.int8(), pa.int16()):
        return pa.int32()
    if pa.types.is_struct(kind):
        return pa.struct([one.with_type(widened(one.type)) for one in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(widened(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(widened(kind.key_type), widened(kind.item_type))
    return kind


def spark_columns(columns: StructType, without: tuple[str, ...] = PARTITIONS) -> str | None:
    """The columns of a file in Spark's own notation, if there is a VARIANT among them."""
    fields: list[StructField] = [one for one in columns if one.name not in without]
    if not any(isinstance(one.dataType, VariantType) for one in fields):
        return None
    return StructType(fields).json()
