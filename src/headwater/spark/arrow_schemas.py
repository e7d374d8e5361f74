"""Arrow schemas of Spark's, in all versions of PySpark that the source works with."""

from inspect import signature
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

_OPTIONS: dict[str, Any] = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
"""Before 4.2 times are always in UTC."""


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema of a Spark schema, with times in UTC."""
    return to_arrow_schema(schema, **_OPTIONS)
