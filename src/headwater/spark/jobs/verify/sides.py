"""The sides that are compared: what the server says and serves, what the lake holds, what an export holds."""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater.spark.jobs.export.tables import TableFile
from headwater.spark.jobs.origin import Origin
from headwater.spark.jobs.places import open_place
from headwater.spark.jobs.verify.rows import DIGESTS_DDL, NEEDED, digests
from headwater.spark.link import Link, LinkRefused, LinkSettings, Range
from headwater.spark.options.source import Selection

PIECE_BYTES = 16 * 1024 * 1024
"""How much of one stream is asked for at a time."""
SCAN_BYTES = 64 * 1024 * 1024
SCAN_RANGES = 5_000
"""What one request asks for at most, about."""
TASK_BYTES = 64 * 1024 * 1024
TASK_STREAMS = 20_000
"""What one task is given to scan, about: a few seconds of work."""
FILES_PER_TASK = 4

DESCRIBED = ("stream", "incarnation", "start", "tail", "record_start", "record_next", "closed")


class Described(NamedTuple):
    """What the server says of the streams, as of one moment."""

    table: pa.Table
    position: int

    @property
    def bytes(self) -> int:
        return int(pc.sum(pc.subtract(self.table["tail"], self.table["start"])).as_py() or 0)


def describe(link: Link, selection: Selection) -> Described:
    """What the server says of the streams that were chosen."""
    position = max(link.status()["positions"].values())
    if selection.names is not None:
        pages: Iterable[pa.Table] = [link.describe(sorted(selection.names))]
    else:
        pages = link.describe_all(selection.prefix)
    found = [_chosen(page.select(DESCRIBED), selection) for page in pages]
    empty = link.describe([]).select(DESCRIBED)
    return Described(pa.concat_tables([empty, *found]), position)


def _chosen(page: pa.Table, selection: Selection) -> pa.Table:
    if selection.names is None and selection.pattern is None:
        return page
    return page.filter(pa.array([selection.has(name) for name in page["stream"].to_pylist()], pa.bool_()))


# -- The server --------------------------------------------------------------------------------------------------------


def server_rows(spark: SparkSession, settings: LinkSettings, described: Described) -> DataFrame:
    """What the server serves of the streams as they were described, as digests."""
    if not len(described.table):
        return spark.createDataFrame([], DIGESTS_DDL)
    tasks = 1 + described.bytes // TASK_BYTES + len(described.table) // TASK_STREAMS
    known = spark.createDataFrame(described.table.select(["stream", "incarnation", "start", "tail"]))
    first = F.explode(F.sequence("start", F.col("tail") - 1, F.lit(PIECE_BYTES))).alias("first")
    pieces = known.where("tail > start").select("stream", "incarnation", "tail", first)
    end = F.least(F.col("first") + PIECE_BYTES, F.col("tail")).alias("end")
    ranges = pieces.select("stream", "incarnation", "first", end)
    return ranges.repartition(int(tasks)).mapInArrow(partial(_scan, settings), DIGESTS_DDL)


def _scan(settings: LinkSettings, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    with Link(settings) as link:
        for asked in _requests(batches):
            yield from digests(_scanned(link, asked))


def _requests(batches: Iterator[pa.RecordBatch]) -> Iterator[list[Range]]:
    """Ranges in lists that one request can ask for."""
    asked: list[Range] = []
    size = 0
    for batch in batches:
        for one in map(Range._make, zip(*(column.to_pylist() for column in batch.columns), strict=True)):
            if asked and (len(asked) == SCAN_RANGES or size + one.end - one.start > SCAN_BYTES):
                yield asked
                asked, size = [], 0
            asked.append(one)
            size += one.end - one.start
    if asked:
        yield asked


def _scanned(link: Link, asked: list[Range]) -> Iterator[pa.RecordBatch]:
    """The rows of ranges; without those of streams that were deleted or trimmed since they were described."""
    while asked:
        try:
            with link.scan(asked) as batches:
                yield from batches
        except LinkRefused as refused:
            if refused.code != "ranges_unavailable":
                raise
            gone = {problem["index"] for problem in refused.problem["problems"]}
            asked = [one for index, one in enumerate(asked) if index not in gone]
        else:
            return


# -- The lake and the export -------------------------------------------------------------------------------------------


def lake_rows(spark: SparkSession, origin: Origin) -> DataFrame:
    """What the lake holds of the streams, as digests."""
    rows = spark.read.format("headwater").options(**origin.source_options(via="lake")).load()
    return rows.select(*NEEDED).mapInArrow(digests, DIGESTS_DDL)


def export_rows(spark: SparkSession, place: str, files: Iterable[TableFile]) -> DataFrame:
    """What the files of a table hold, as digests."""
    named = [(file.key, file.bucket) for file in files]
    tasks = 1 + len(named) // FILES_PER_TASK
    table = spark.createDataFrame(named, "key string, bucket string").repartition(tasks)
    return table.mapInArrow(partial(_read, place), DIGESTS_DDL)


def _read(url: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    place = open_place(url)
    for batch in batches:
        for key, bucket in zip(batch["key"].to_pylist(), batch["bucket"].to_pylist(), strict=True):
            file = pq.ParquetFile(pa.BufferReader(place.read(key)))
            yield from digests(_with_bucket(rows, bucket) for rows in file.iter_batches(columns=columns_of(bucket)))


def columns_of(bucket: str | None) -> list[str]:
    """The columns to read of a file; one of a folder that names the bucket has none for it."""
    return [name for name in NEEDED if bucket is None or name != "bucket"]


def _with_bucket(rows: pa.RecordBatch, bucket: str | None) -> pa.RecordBatch:
    return rows if bucket is None else rows.append_column("bucket", pa.repeat(bucket, len(rows)))
