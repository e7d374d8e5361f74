"""The sides to compare with an export: what the server describes and serves, and what the lake holds."""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater.client import ScanRange
from headwater.protocol.limits import MIB
from headwater.protocol.refusals import Code
from headwater.spark.failures import LinkRefused
from headwater.spark.jobs.origin import Origin, describe_selected
from headwater.spark.jobs.verify.lives import DIGESTS, NEEDED, digests
from headwater.spark.link import Link, LinkSettings
from headwater.spark.options.source import Selection
from headwater.spark.schemas import spark_schema

RANGE_BYTES = 16 * MIB
"""The largest range of one stream."""
SCAN_BYTES = 64 * MIB
SCAN_RANGES = 5_000
"""Approximate limits of one request."""
TASK_BYTES = 64 * MIB
TASK_STREAMS = 20_000
"""Approximate limits of one task: a few seconds of work."""

DESCRIBED = ("stream", "incarnation", "start", "tail", "record_start", "record_next", "closed")


class Described(NamedTuple):
    """The server's description of streams at one moment."""

    table: pa.Table
    position: int

    @property
    def bytes(self) -> int:
        return int(pc.sum(pc.subtract(self.table["tail"], self.table["start"])).as_py() or 0)


def describe(link: Link, selection: Selection) -> Described:
    """The server's description of the selected streams."""
    position = link.log().position
    found = [page.select(DESCRIBED) for page in describe_selected(link, selection)]
    empty = link.describe([]).select(DESCRIBED)
    return Described(pa.concat_tables([empty, *found]), position)


# -- The server --------------------------------------------------------------------------------------------------------


def server_rows(spark: SparkSession, settings: LinkSettings, described: Described) -> DataFrame:
    """What the server serves of the streams within their described bounds, as digests."""
    if not len(described.table):
        return spark.createDataFrame([], spark_schema(DIGESTS))
    tasks = 1 + described.bytes // TASK_BYTES + len(described.table) // TASK_STREAMS
    known = spark.createDataFrame(described.table.select(["stream", "incarnation", "start", "tail"]))
    first = F.explode(F.sequence("start", F.col("tail") - 1, F.lit(RANGE_BYTES))).alias("first")
    cut = known.where("tail > start").select("stream", "incarnation", "tail", first)
    end = F.least(F.col("first") + RANGE_BYTES, F.col("tail")).alias("end")
    ranges = cut.select("stream", "incarnation", "first", end)
    return ranges.repartition(int(tasks)).mapInArrow(partial(_scan, settings), spark_schema(DIGESTS))


def _scan(settings: LinkSettings, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    with Link(settings) as link:
        for ranges in _requests(batches):
            yield from digests(_scanned(link, ranges))


def _requests(batches: Iterator[pa.RecordBatch]) -> Iterator[list[ScanRange]]:
    """The ranges of each request."""
    ranges: list[ScanRange] = []
    size = 0
    for batch in batches:
        for one in map(ScanRange._make, zip(*(column.to_pylist() for column in batch.columns), strict=True)):
            if ranges and (len(ranges) == SCAN_RANGES or size + one.end - one.start > SCAN_BYTES):
                yield ranges
                ranges, size = [], 0
            ranges.append(one)
            size += one.end - one.start
    if ranges:
        yield ranges


def _scanned(link: Link, ranges: list[ScanRange]) -> Iterator[pa.RecordBatch]:
    """The rows of ranges, without streams that were deleted or trimmed since they were described."""
    while ranges:
        try:
            with link.scan(ranges) as batches:
                yield from batches
        except LinkRefused as refused:
            if refused.code != Code.RANGES_UNAVAILABLE:
                raise
            gone = {problem["index"] for problem in refused.problem["problems"]}
            ranges = [one for index, one in enumerate(ranges) if index not in gone]
        else:
            return


# -- The lake ---------------------------------------------------------------------------------------------------------


def lake_rows(spark: SparkSession, origin: Origin) -> DataFrame:
    """What the lake holds of the streams, as digests."""
    rows = spark.read.format("headwater").options(**origin.source_options(via="lake")).load()
    return rows.select(*NEEDED).mapInArrow(digests, spark_schema(DIGESTS))
