"""The seam between an export and the kinds of table that it can write.

Tasks store files, the driver then decides on a batch with all of them at once, and a batch that was decided on is never
decided on again: so a batch that is repeated, at whatever instant its first attempt was killed, is in the table once.
Nothing is ever deleted that a decision may have named.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType, VariantType

from headwater.spark.jobs.export.files import FileRules
from headwater.spark.jobs.export.shape import PARTITIONS
from headwater.spark.jobs.report import JobFailed

FORMATS = ("parquet", "delta", "iceberg")

_VARIANT = pa.struct([pa.field("metadata", pa.binary(), False), pa.field("value", pa.binary(), False)])


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


class Written(NamedTuple):
    """What an attempt at a batch has stored."""

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
        """The highest position of any row."""
        return max(file.position for file in self.files)


class TableFile(NamedTuple):
    """A file as a reader of the table finds it; `bucket` is None where it is a column of the file."""

    key: str
    bucket: str | None


class Table(Protocol):
    """A table that grows by batches."""

    def rules(self, batch: int, attempt: str) -> FileRules:
        """How tasks store the files of a batch."""

    def has(self, batch: int) -> bool:
        """Whether a batch is decided on; what was left undone after that is done now.

        JobFailed, from here and from the rest, if the table says that it is another export's.
        """

    def commit(self, written: Written) -> None:
        """Decide on a batch, unless somebody has."""

    def files(self) -> Iterator[TableFile]:
        """The files that make up the table."""

    @property
    def position(self) -> int | None:
        """Up to which position of the log everything that was to be exported is in the table."""


class TableOptions(NamedTuple):
    """What kinds of table need to know beside their place."""

    mark: str
    """Of the export: what the table remembers it by."""
    columns: StructType
    """Those of the rows, as Spark knows them."""
    catalog: str | None = None
    table: str | None = None


def check_mark(table: str, found: str | None, mark: str) -> None:
    """Raise JobFailed if what a table remembers is another export; its batches would be taken for ours."""
    if found is not None and found != mark:
        raise JobFailed(
            f"The {table} holds the export {found!r}, not {mark!r}; export to another table, or drop that one first."
        )


def file_schema(columns: StructType, *, without: tuple[str, ...] = PARTITIONS, wide: bool = False) -> pa.Schema:
    """The columns of a file; `wide` where a table has no small integers."""
    fields = [one for one in columns if one.name not in without]
    arrow = to_arrow_schema(StructType(fields), timezone="UTC")
    found = []
    for one, field in zip(fields, arrow, strict=True):
        kind = _VARIANT if isinstance(one.dataType, VariantType) else field.type
        found.append(pa.field(one.name, widened(kind) if wide else kind))
    return pa.schema(found)


def widened(kind: pa.DataType) -> pa.DataType:
    """A type with no integers below 32 bits in it."""
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
    """The columns of a file as Spark would write them down, if there is a VARIANT among them."""
    fields: list[StructField] = [one for one in columns if one.name not in without]
    if not any(isinstance(one.dataType, VariantType) for one in fields):
        return None
    return StructType(fields).json()


def plain(files: list[DataFile]) -> list[dict[str, Any]]:
    """Files as JSON has them."""
    return [file._asdict() for file in files]
