"""The shape of an exported table: the columns of the lake, plus columns parsed from the payload."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pyspark.errors import ParseException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ByteType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    VariantType,
)

from headwater.lake.format import SCHEMA
from headwater.spark.jobs.report import JobFailed

CORRUPT = "_corrupt"
"""Accompanies typed columns: the payload as text if it does not match them, else null."""
VALUE = "value"
"""The column of the payload as VARIANT."""
PARTITIONS = ("day", "bucket")
"""Tables are partitioned by the day of `committed_at` in UTC and by the bucket."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The columns of a table in addition to those of the lake: typed ones, a variant, or none."""

    schema: str | None = None
    into: str | None = None
    """The name of one struct column for all typed columns; None for separate columns."""
    variant: bool = False

    def check_options(self) -> None:
        """Raise JobFailed if the options exclude each other."""
        if self.schema is not None and self.variant:
            raise JobFailed("The options --schema and --variant exclude each other; use one of them.")
        if self.into is not None and self.schema is None:
            raise JobFailed("The option --into needs --schema.")

    def check(self) -> None:
        """Raise JobFailed if the shape is invalid. Needs a Spark session to parse types."""
        self.check_options()
        taken = {*SCHEMA.names, *PARTITIONS, CORRUPT}
        names = [self.into] if self.into is not None else [one.name for one in self._typed() or ()]
        remedy = (
            "choose another name" if self.into is not None else "put the typed columns into a struct with --into value"
        )
        for name in names:
            if name.lower() in taken:
                raise JobFailed(f"The column name {name!r} is taken by a column of the lake; {remedy}.")
            if "." in name:
                # Spark takes a dot in the name of a column for a field of a struct.
                raise JobFailed(f"The column name {name!r} has a dot; {remedy}.")
        _check_unique([one.name for one in self._typed() or ()])

    def _typed(self) -> StructType | None:
        if self.schema is None:
            return None
        try:
            found = StructType.fromDDL(self.schema)
        except ParseException as error:
            # The first line of Spark's message is the problem; the rest repeats the schema.
            problem = next((line for line in str(error).splitlines() if line.strip()), "syntax error").rstrip(". ")
            raise JobFailed(
                f"The schema {self.schema!r} is not valid ({problem}); write it like 'id long, at timestamp'."
            ) from None
        if not isinstance(found, StructType) or not len(found):
            raise JobFailed(f"The schema {self.schema!r} has no columns; write it like 'id long, at timestamp'.")
        return found

    def columns(self) -> StructType:
        """The names and types of these columns. Needs a Spark session to parse types."""
        if self.variant:
            return StructType([StructField(VALUE, VariantType())])
        typed = self._typed()
        if typed is None:
            return StructType([])
        fields = typed.fields if self.into is None else [StructField(self.into, typed)]
        return StructType([*fields, StructField(CORRUPT, StringType())])

    def apply(self, rows: DataFrame) -> DataFrame:
        """The rows of the table, from rows of the source."""
        lake = [F.col(name) for name in SCHEMA.names]
        return rows.select(*lake, *self.parsed())

    def parsed(self) -> Sequence[Column]:
        """The columns that are made from the column payload."""
        # Strings in Spark may be invalid UTF-8, strings in Parquet files may not.
        text = F.make_valid_utf8(F.col("payload").cast("string"))
        if self.variant:
            return [F.try_parse_json(text).alias(VALUE)]
        typed = self._typed()
        if typed is None:
            return []
        fields = StructType([*typed.fields, StructField(CORRUPT, StringType())])
        parsed = F.from_json(text, fields, {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT})
        names = [one.name for one in typed]
        if self.into is None:
            return [parsed.getField(name).alias(name) for name in (*names, CORRUPT)]
        nested = F.struct(*(parsed.getField(name).alias(name) for name in names))
        return [nested.alias(self.into), parsed.getField(CORRUPT).alias(CORRUPT)]


def _check_unique(names: Sequence[str]) -> None:
    """Raise JobFailed if the schema has a name twice; Spark ignores the case of names."""
    found = set[str]()
    for name in names:
        if name.lower() in found:
            raise JobFailed(f"The schema has the column {name!r} twice, in whatever case; rename one of them.")
        found.add(name.lower())


# -- Widening ----------------------------------------------------------------------------------------------------------


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
