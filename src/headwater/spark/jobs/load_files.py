"""Files as rows: what is there to load, and its rows in the order of the files."""

import re
from collections.abc import Sequence
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater.spark.jobs.load_ledger import File
from headwater.spark.jobs.report import JobFailed

FORMATS = ("csv", "json", "parquet", "orc")
LINE = "_line"
PLACE = ("_file", "_block", "_row")
"""Columns that say where a row comes from; sorted by them, rows are in the order of the files."""
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


def read_rows(spark: SparkSession, files: Sequence[File], recipe: dict[str, Any]) -> DataFrame:
    """The rows of files with their columns, where each comes from, and its line if it is of a file of lines."""
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
