"""Files as rows, in the order of the files."""

import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater.spark.jobs.load.ledger import File
from headwater.spark.jobs.report import JobFailed

FORMATS = ("csv", "json", "parquet", "orc")
LINE = "_line"
PLACE = ("_file", "_block", "_row")
"""Columns with the origin of a row; sorted by them, rows are in the order of the files."""
DEFAULTS = {
    # Without pruning every field of a line is parsed, so a line with too many or too few fields is an error.
    "csv": {"header": "true", "enforceSchema": "false", "mode": "FAILFAST", "columnPruning": "false"},
    "json": {},
    "parquet": {"mergeSchema": "true"},
    "orc": {"mergeSchema": "true"},
}
"""Defaults for the options of Spark's reader. Its own apply the columns of one file to all files, which silently drops
values or puts them under other names."""
PROBLEM_CHARACTERS_MAX = 500
"""Of an error message of Spark, which may quote a file."""
_CODES = re.compile(r"\[[A-Z_.]+\] |\s*SQLSTATE: \w+")
_PATTERN = re.compile(r"[\[\]{}*?\\]")


def list_files(spark: SparkSession, paths: Sequence[str]) -> list[File]:
    """The files at these paths, folders or patterns, sorted by path; JobFailed if there are none."""
    reader = spark.read.format("binaryFile").option("recursiveFileLookup", "true")
    try:
        found = reader.load(list(paths)).select("path", "length", F.unix_millis("modificationTime")).collect()
    except AnalysisException as problem:
        if "PATH_NOT_FOUND" not in str(problem):
            raise
        raise JobFailed(f"No files found at {', '.join(paths)}; check the paths.") from problem
    # Paths may overlap.
    return sorted({File(*row) for row in found})


def reading_options(kind: str, schema: str | None, given: Mapping[str, str]) -> dict[str, str]:
    """The options of Spark's reader: the user's, and our defaults for the others; case does not matter in names.

    >>> reading_options("csv", None, {"MODE": "PERMISSIVE", "sep": ";"})
    {'header': 'true', 'enforceSchema': 'false', 'columnPruning': 'false', 'MODE': 'PERMISSIVE', 'sep': ';'}
    """
    ours = DEFAULTS[kind]
    if kind == "json" and schema is not None:
        # Without a schema, columns are inferred from the lines, and a line may be any value.
        ours = {"mode": "FAILFAST"}
    names = {name.lower() for name in given}
    return {**{name: value for name, value in ours.items() if name.lower() not in names}, **given}


def try_rows(rows: DataFrame, recipe: Mapping[str, Any]) -> None:
    """Compute all rows once without writing them, if only that reveals invalid ones; JobFailed says what is wrong."""
    strict = any(name.lower() == "mode" and value.upper() == "FAILFAST" for name, value in recipe["options"].items())
    if strict or recipe["format"] == "csv" or recipe["schema"] is not None:
        try:
            rows.write.format("noop").mode("overwrite").save()
        except (Py4JJavaError, PySparkException) as problem:
            raise unreadable(problem) from problem


def unreadable(problem: Exception) -> JobFailed:
    """Spark's error about files that it cannot read, as one sentence."""
    messages = [next(line for line in str(problem).splitlines() if line.strip())]
    if isinstance(problem, Py4JJavaError):
        messages, cause = [], problem.java_exception
        while cause is not None:
            messages.append(str(cause.getMessage()))
            cause = cause.getCause()
    # The first message names the file, the last one the problem.
    texts = dict.fromkeys(_CODES.sub("", text) for text in (messages[0], messages[-1]))
    what = textwrap.shorten(" ".join(texts), PROBLEM_CHARACTERS_MAX, placeholder="...").rstrip(".")
    return JobFailed(
        f"The files cannot be read: {what}; correct them, or change the options of the reader with --read."
    )


def read_rows(spark: SparkSession, files: Sequence[File], recipe: dict[str, Any]) -> DataFrame:
    """The rows of files: their columns, the origin of each row, and for JSON Lines the line itself."""
    try:
        return _read(spark, files, recipe)
    except Py4JJavaError as problem:
        raise unreadable(problem) from problem


def _read(spark: SparkSession, files: Sequence[File], recipe: dict[str, Any]) -> DataFrame:
    options = dict(recipe["options"])
    if recipe["base"] is not None:
        options["basePath"] = recipe["base"]
    # Unescaped, a file name with pattern characters could match another file, which would be read twice.
    paths = [_PATTERN.sub(r"\\\g<0>", file.path) for file in files]
    if recipe["format"] == "json":
        return _read_lines(spark, paths, options, recipe["schema"])
    reader = spark.read.format(recipe["format"]).options(**options)
    if recipe["schema"] is not None:
        reader = reader.schema(recipe["schema"])
    rows = reader.load(paths)
    return rows.select("*", *_place())


def _read_lines(spark: SparkSession, paths: list[str], options: dict[str, str], schema: str | None) -> DataFrame:
    """JSON Lines: their fields as columns, and the line itself, which becomes the message unchanged."""
    lines = spark.read.options(**options).format("text").load(paths).where("trim(value) != ''")
    folders = [name for name in lines.columns if name != "value"]
    known = schema or spark.read.options(**options).json(paths).drop(*folders).schema
    fields = F.from_json("value", known, options).alias("_fields")
    rows = lines.select(fields, F.col("value").alias(LINE), *folders, *_place())
    return rows.select(*(["_fields.*"] if known else []), LINE, *folders, *PLACE)


def _place() -> list[Any]:
    # Different tasks may read the blocks of a file, but one task reads the rows of a block, in order.
    return [
        F.col("_metadata.file_path").alias(PLACE[0]),
        F.col("_metadata.file_block_start").alias(PLACE[1]),
        F.monotonically_increasing_id().alias(PLACE[2]),
    ]
