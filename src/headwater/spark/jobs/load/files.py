"""Files as rows: what is there to load, and its rows in the order of the files."""

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
"""Columns that say where a row comes from; sorted by them, rows are in the order of the files."""
DEFAULTS = {
    # What a task does not need of a line is looked at too: if there is too much or too little, it is another line.
    "csv": {"header": "true", "enforceSchema": "false", "mode": "FAILFAST", "columnPruning": "false"},
    "json": {},
    "parquet": {"mergeSchema": "true"},
    "orc": {"mergeSchema": "true"},
}
"""What Spark's reader is told unless the user says otherwise. By itself it takes one file's columns for those of all:
values would come under other names, or be left out, and nobody would know."""
TOLD_CHARACTERS_MAX = 500
"""Of what Spark says is wrong with files; it may quote them."""
_CODES = re.compile(r"\[[A-Z_.]+\] |\s*SQLSTATE: \w+")
_PATTERN = re.compile(r"[\[\]{}*?\\]")


def list_files(spark: SparkSession, paths: Sequence[str]) -> list[File]:
    """The files at these paths, which may be folders or patterns, by path; JobFailed if there is nothing."""
    reader = spark.read.format("binaryFile").option("recursiveFileLookup", "true")
    try:
        found = reader.load(list(paths)).select("path", "length", F.unix_millis("modificationTime")).collect()
    except AnalysisException as problem:
        if "PATH_NOT_FOUND" not in str(problem):
            raise
        raise JobFailed(f"There is nothing at {', '.join(paths)}; check the paths.") from problem
    # Paths may overlap.
    return sorted({File(*row) for row in found})


def reading_options(kind: str, schema: str | None, told: Mapping[str, str]) -> dict[str, str]:
    """The options of Spark's reader: the user's, and ours where they say nothing; names are the same in any letters.

    >>> reading_options("csv", None, {"MODE": "PERMISSIVE", "sep": ";"})
    {'header': 'true', 'enforceSchema': 'false', 'columnPruning': 'false', 'MODE': 'PERMISSIVE', 'sep': ';'}
    """
    ours = DEFAULTS[kind]
    if kind == "json" and schema is not None:
        # Without one, columns are made after the lines, and a line may be any value.
        ours = {"mode": "FAILFAST"}
    said = {name.lower() for name in told}
    return {**{name: value for name, value in ours.items() if name.lower() not in said}, **told}


def try_rows(rows: DataFrame, recipe: Mapping[str, Any]) -> None:
    """Make the rows once for nothing where what is wrong with one shows only then; JobFailed says what it is."""
    strict = any(name.lower() == "mode" and value.upper() == "FAILFAST" for name, value in recipe["options"].items())
    if strict or recipe["format"] == "csv" or recipe["schema"] is not None:
        try:
            rows.write.format("noop").mode("overwrite").save()
        except (Py4JJavaError, PySparkException) as problem:
            raise unreadable(problem) from problem


def unreadable(problem: Exception) -> JobFailed:
    """What Spark says of files that it cannot make rows of, in one sentence."""
    told = [next(line for line in str(problem).splitlines() if line.strip())]
    if isinstance(problem, Py4JJavaError):
        told, cause = [], problem.java_exception
        while cause is not None:
            told.append(str(cause.getMessage()))
            cause = cause.getCause()
    # The first says which file it is, the last what is wrong with it.
    texts = dict.fromkeys(_CODES.sub("", text) for text in (told[0], told[-1]))
    what = textwrap.shorten(" ".join(texts), TOLD_CHARACTERS_MAX, placeholder="...").rstrip(".")
    return JobFailed(
        f"The files cannot be loaded as they are: {what}; mend them, or say with --read how they are meant."
    )


def read_rows(spark: SparkSession, files: Sequence[File], recipe: dict[str, Any]) -> DataFrame:
    """The rows of files with their columns, where each comes from, and its line if it is of a file of lines."""
    try:
        return _read(spark, files, recipe)
    except Py4JJavaError as problem:
        raise unreadable(problem) from problem


def _read(spark: SparkSession, files: Sequence[File], recipe: dict[str, Any]) -> DataFrame:
    options = dict(recipe["options"])
    if recipe["base"] is not None:
        options["basePath"] = recipe["base"]
    # Taken for a pattern, the name of one file may stand for another, which would be read twice.
    paths = [_PATTERN.sub(r"\\\g<0>", file.path) for file in files]
    if recipe["format"] == "json":
        return _read_lines(spark, paths, options, recipe["schema"])
    reader = spark.read.format(recipe["format"]).options(**options)
    if recipe["schema"] is not None:
        reader = reader.schema(recipe["schema"])
    rows = reader.load(paths)
    return rows.select("*", *_place())


def _read_lines(spark: SparkSession, paths: list[str], options: dict[str, str], schema: str | None) -> DataFrame:
    """Lines of JSON: their fields as columns, and the line itself, which is written as it stands."""
    lines = spark.read.options(**options).format("text").load(paths).where("trim(value) != ''")
    folders = [name for name in lines.columns if name != "value"]
    known = schema or spark.read.options(**options).json(paths).drop(*folders).schema
    fields = F.from_json("value", known, options).alias("_fields")
    rows = lines.select(fields, F.col("value").alias(LINE), *folders, *_place())
    return rows.select(*(["_fields.*"] if known else []), LINE, *folders, *PLACE)


def _place() -> list[Any]:
    # Blocks of a file may be read by different tasks, and the rows of a block are read by one, in order.
    return [
        F.col("_metadata.file_path").alias(PLACE[0]),
        F.col("_metadata.file_block_start").alias(PLACE[1]),
        F.monotonically_increasing_id().alias(PLACE[2]),
    ]
