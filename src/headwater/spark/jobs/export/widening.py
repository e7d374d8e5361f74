"""Widening: a later run of an export may add columns and widen numbers; nothing that the table holds is rewritten.

Rows that were exported before have null in a column that is new.
"""

from collections.abc import Iterator

from pyspark.sql.types import (
    ByteType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StructType,
)

from headwater.spark.jobs.report import JobFailed

_WHOLE: tuple[type[DataType], ...] = (ByteType, ShortType, IntegerType, LongType)
_INT32 = _WHOLE[:3]
"""The whole numbers that a double holds exactly."""


def check_widening(format: str, location: str, before: StructType, after: StructType) -> None:
    """Raise JobFailed unless a table of this format with the columns `before` can get those of `after`."""
    problem = next(_problems(format, before, after, ""), None)
    if problem is not None:
        raise JobFailed(f"The columns of the table at {location} cannot change so: {problem}; use another --to.")


def _problems(format: str, before: StructType, after: StructType, inside: str) -> Iterator[str]:
    found = {field.name: field.dataType for field in after}
    for field in before:
        name, old, new = f"{inside}{field.name}", field.dataType, found.get(field.name)
        if new is None:
            yield f"the column {name} would be missing"
        elif isinstance(old, StructType) and isinstance(new, StructType):
            yield from _problems(format, old, new, f"{name}.")
        elif old != new and not widens(format, old, new):
            yield f"{name} is {old.simpleString()} and would be {new.simpleString()}"


def widens(format: str, old: DataType, new: DataType) -> bool:
    """Whether a table of this format can hold numbers of both types in one column, read as the wider one.

    Files of a Parquet table may differ, and readers convert. Iceberg defines which types may change. The library that
    writes Delta tables changes none.

    >>> widens("parquet", IntegerType(), DoubleType()), widens("iceberg", IntegerType(), DoubleType())
    (True, False)
    """
    if format == "delta":
        return False
    if isinstance(old, _WHOLE) and isinstance(new, _WHOLE):
        return _WHOLE.index(type(old)) < _WHOLE.index(type(new))
    if isinstance(new, DoubleType):
        return isinstance(old, FloatType) or (format == "parquet" and isinstance(old, _INT32))
    return False
