"""Writes to streams: a table in Spark's memory, in large appends and in appends of one row."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame

from benchmarks.servers import Server
from benchmarks.spark_data import NOTHING, Known, held, message, name, url_of
from benchmarks.spark_scenes import Contender, Rig, Scale, Scene, Stopwatch
from benchmarks.workloads import Sample
from headwater.spark.writing import by_stream

SINK = "sink"
STREAMS = 1_000


@contextmanager
def open_sink(rig: Rig, streams: int, rows: int) -> Iterator[list[Contender]]:
    """Run a server, and make a table whose rows go to so many streams."""
    table, known = _table(rig, streams, rows)
    try:
        with rig.server("sink") as server:
            yield [Contender(SINK, partial(measure, server, table, known))]
    finally:
        table.unpersist()


def _table(rig: Rig, streams: int, rows: int) -> tuple[DataFrame, Known]:
    each = rows // streams
    parts, known = [], NOTHING
    for first in range(0, streams, 1 + streams // 10):
        indexes = range(first, min(streams, first + 1 + streams // 10))
        names = [name(index) for index in indexes for _ in range(each)]
        values = pa.array([message(index, number) for index in indexes for number in range(each)], pa.binary())
        orders = [number for _ in indexes for number in range(each)]
        known += Known.of(values)
        parts.append(pa.table({"stream": names, "value": values, "number": orders}))
    table = rig.spark.createDataFrame(pa.concat_tables(parts)).repartition(rig.tasks * 2).cache()
    table.count()
    return table, known


def measure(server: Server, table: DataFrame, known: Known, turn: int) -> Sample:
    """Write the table to a new bucket; grouping the rows by stream is part of it."""
    bucket = f"bench-{turn}-{secrets.token_hex(3)}"
    watch = Stopwatch()
    (
        by_stream(table)
        .write.format("headwater")
        .option("url", url_of(server))
        .option("bucket", bucket)
        .option("contentType", "application/json")
        .option("orderColumn", "number")
        .mode("append")
        .save()
    )
    watch.stop()
    return watch.sample(known, known.compare(held(server, bucket)))


def _large_case(scale: Scale) -> str:
    return f"{scale.sink_rows:,} rows, {scale.sink_rows // _streams(scale):,} an append"


def _streams(scale: Scale) -> int:
    return min(STREAMS, scale.sink_rows // 1_000)


SCENES = (
    Scene("sink", _large_case, lambda rig: open_sink(rig, _streams(rig.scale), rig.scale.sink_rows)),
    Scene(
        "sink",
        lambda scale: f"{scale.tiny_rows:,} rows, 1 an append",
        lambda rig: open_sink(rig, rig.scale.tiny_rows, rig.scale.tiny_rows),
    ),
)
