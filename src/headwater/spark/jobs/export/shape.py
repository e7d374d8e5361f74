"""The shape of an exported table: the columns of the lake, and what is made of the payload."""

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.errors import ParseException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from headwater.lake.format import SCHEMA
from headwater.spark.jobs.report import JobFailed

CORRUPT = "_corrupt"
"""Beside typed columns: the whole payload as text where it does not fit them, else null."""
VALUE = "value"
"""The column of the payload as VARIANT."""
PARTITIONS = ("day", "bucket")
"""What tables are partitioned by: the day of `committed_at` in UTC, and the bucket."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Which columns a table has beside those of the lake: typed ones, a variant, or none."""

    schema: str | None = None
    into: str | None = None
    """One column for all typed ones, a struct of this name; without it they stand side by side."""
    variant: bool = False

    def check(self) -> None:
        """Raise JobFailed if this makes no table; needs a session of Spark, which knows its types."""
        if self.schema is not None and self.variant:
            raise JobFailed("Typed columns and VARIANT exclude each other; give --schema or --variant.")
        if self.into is not None and self.schema is None:
            raise JobFailed("The option --into names the column of typed values; give --schema too.")
        taken = {*SCHEMA.names, *PARTITIONS, CORRUPT}
        names = [self.into] if self.into is not None else [one.name for one in self._typed() or ()]
        clash = next((name for name in names if name.lower() in taken), None)
        if clash is not None:
            remedy = (
                "choose another name" if self.into is not None else "keep the typed columns apart with --into value"
            )
            raise JobFailed(f"The column {clash!r} is there already, it tells of the message; {remedy}.")

    def _typed(self) -> StructType | None:
        if self.schema is None:
            return None
        try:
            found = StructType.fromDDL(self.schema)
        except ParseException as error:
            # What Spark says first is the problem, then come a blank line and the text again.
            said = next((line for line in str(error).splitlines() if line.strip()), "it cannot be read")
            told = said.rstrip(". ")
            raise JobFailed(
                f"The schema {self.schema!r} makes no sense ({told}); write 'id long, at timestamp'."
            ) from None
        if not isinstance(found, StructType) or not len(found):
            raise JobFailed(f"The schema {self.schema!r} has no columns; write 'id long, at timestamp'.")
        return found

    def apply(self, rows: DataFrame) -> DataFrame:
        """Rows of the source with the columns of the table."""
        lake = [F.col(name) for name in SCHEMA.names]
        return rows.select(*lake, *self._made())

    def _made(self) -> Sequence[Column]:
        # Spark's strings may hold what is not UTF-8, and files of strings may not.
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
