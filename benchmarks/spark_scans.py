"""The plugin's batch scans beside Spark's own: `python -m benchmarks.spark_scans [--rounds N] [--iceberg]`.

The same segments are read as plain Parquet files by the JVM, which is the ceiling; with `--iceberg` as the table
`messages` by Iceberg's runtime, if there is one for the installed PySpark; and by `format("headwater")`. A source that
has as many rows in memory shows what Spark's interface for sources in Python costs by itself. Every round reads all of
them in turn, with rows dropped at the end; the CPU time is that of the driver, its JVM and its Python workers.
"""

import argparse
import os
import statistics
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from benchmarks.servers import Server, Spec
from benchmarks.spark_data import Shape, fill, message, name, url_of
from benchmarks.spark_scenes import HOT, OURS, Stopwatch
from headwater.lake.catalog import read_catalog
from headwater.spark.link import Link, LinkSettings
from headwater.spark.options.source import parse_source
from headwater.spark.schemas import BATCH_ROWS, SourceSchema
from headwater.spark.session import session
from headwater.storage.opening import open_store

BUCKET = "bench"
WARM_ROUNDS = 2
TABLE = "headwater.headwater.messages"

Frame = Callable[[str], DataFrame]
"""The rows with these columns, separated by commas; all of them if there are none."""


class Query(NamedTuple):
    """What is asked of every contender."""

    name: str
    columns: str
    make: Callable[[DataFrame], DataFrame]


QUERIES = (
    Query("everything", "", lambda rows: rows),
    Query("two columns", "position,committed_at", lambda rows: rows),
    Query("one stream", "", lambda rows: rows.where((F.col("bucket") == BUCKET) & (F.col("stream") == name(7)))),
    Query("rows per stream", "stream", lambda rows: rows.groupBy("stream").count()),
)


class Constant(DataSource):
    """Returns as many rows of the same columns from memory: what a source in Python costs at least."""

    @classmethod
    def name(cls) -> str:
        return "constant"

    def schema(self) -> StructType:
        return self._schema().spark

    def _schema(self) -> SourceSchema:
        return SourceSchema(parse_source({"url": "http://h", "bucket": BUCKET, "columns": self.options["columns"]}))

    def reader(self, schema: StructType) -> "ConstantReader":
        return ConstantReader(self._schema(), int(self.options["rows"]), int(self.options["tasks"]))


class ConstantReader(DataSourceReader):
    def __init__(self, schema: SourceSchema, rows: int, tasks: int) -> None:
        self._arrow, self._rows, self._tasks = schema.arrow, rows, tasks

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(None)] * self._tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        numbers = pa.array(range(BATCH_ROWS), pa.int64())
        made = {pa.string(): name(7), pa.binary(): message(7, 7)}
        columns = [
            pa.repeat(made[kind], BATCH_ROWS) if kind in made else numbers.cast(kind) for kind in self._arrow.types
        ]
        batch, left = pa.record_batch(columns, self._arrow), self._rows // self._tasks
        while left > 0:
            yield batch.slice(0, min(left, BATCH_ROWS))
            left -= BATCH_ROWS


def contenders(spark: SparkSession, url: str, *, iceberg: bool) -> dict[str, Frame]:
    """Ways to read the messages."""
    with Link(LinkSettings(url)) as link:
        link.flush()
        store = open_store(link.status()["lake"]["url"])
    catalog = read_catalog(store)
    assert catalog is not None
    files = [f"{store.url}/{listed.key}" for listed in catalog.segments]
    made: dict[str, Frame] = {
        "plain Parquet": lambda columns: _selected(spark.read.parquet(*files), columns),
        "plugin": lambda columns: (
            spark.read.format("headwater")
            .options(url=url, bucket=BUCKET, via="lake", columns=columns, pushdown="true")
            .load()
        ),
    }
    rows, tasks = sum(listed.segment.rows for listed in catalog.segments), os.cpu_count() or 1
    spark.dataSource.register(Constant)
    made["rows from memory, in Python"] = lambda columns: (
        spark.read.format("constant").options(columns=columns, rows=str(rows), tasks=str(tasks)).load()
    )
    if iceberg:
        made["Iceberg"] = lambda columns: _selected(spark.table(TABLE), columns)
    return made


def _selected(rows: DataFrame, columns: str) -> DataFrame:
    return rows.select(*columns.split(",")) if columns else rows


def measure(frames: dict[str, Frame], rounds: int) -> None:
    """Print the seconds and the CPU seconds of every query, interleaved."""
    samples: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for turn in range(-WARM_ROUNDS, rounds):
        for query in QUERIES:
            for contender, frame in frames.items():
                rows = query.make(frame(query.columns))
                watch = Stopwatch()
                rows.write.format("noop").mode("overwrite").save()
                if turn >= 0:
                    samples.setdefault((query.name, contender), []).append(watch.stop().times)
    print(
        "| query | contender | seconds | CPU seconds | of plain Parquet by time | by CPU |", "|---" * 6 + "|", sep="\n"
    )
    for query in QUERIES:
        best = {one: _medians(samples[query.name, one]) for one in frames}
        for contender, (seconds, cpu_seconds) in best.items():
            plain = best["plain Parquet"]
            ratios = f"{plain[0] / seconds:.2f} | {plain[1] / cpu_seconds:.2f}"
            print(f"| {query.name} | {contender} | {seconds:.2f} | {cpu_seconds:.2f} | {ratios} |", flush=True)


def _medians(samples: list[tuple[float, float]]) -> tuple[float, float]:
    seconds, cpu_seconds = zip(*samples, strict=True)
    return statistics.median(seconds), statistics.median(cpu_seconds)


def main() -> None:
    parser = argparse.ArgumentParser("benchmarks.spark_scans")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--streams", type=int, default=2_000)
    parser.add_argument("--messages", type=int, default=1_000)
    parser.add_argument("--iceberg", action="store_true", help="also measure Iceberg's runtime")
    given = parser.parse_args()
    server_in = partial(Server, Spec("lake", (*OURS.command, *HOT)))
    with tempfile.TemporaryDirectory() as scratch, server_in(Path(scratch)) as server:
        url = url_of(server)
        rows = fill(server, BUCKET, Shape(given.streams, given.messages, 100)).known.rows
        conf = {"spark.driver.memory": "3g", "spark.sql.python.filterPushdown.enabled": "true"}
        spark = session("scans", conf=conf, iceberg=given.iceberg, server=url)
        print(f"PySpark {pyspark.__version__}, {rows:,} rows, load {os.getloadavg()[0]:.1f}", flush=True)
        try:
            measure(contenders(spark, url, iceberg=given.iceberg), given.rounds)
        finally:
            spark.stop()
        print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
