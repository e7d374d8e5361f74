"""Scans of whole buckets: from the lake, through the server, and stream by stream."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from benchmarks import lake, spark_peer
from benchmarks.spark_data import Filled, Known, Shape, fill, name
from benchmarks.spark_scenes import HOT, Contender, Rig, Scene, Stopwatch
from benchmarks.workloads import Sample

BUCKET = "bench"
LAKE, LAKE_NARROW = "lake scan", "lake scan, 3 columns"
LIVE, LIVE_HOT = "live scan", "live scan, hot"
COUNTED = "number of output rows"
PEER_COLUMNS = "stream,record,payload"
GET, GET_HOT = "GET per stream", "GET per stream, hot"


@contextmanager
def open_scans(rig: Rig, shape: Shape) -> Iterator[list[Contender]]:
    """Two servers with the same messages: one has them in its lake, the other in memory."""
    with rig.server("cold", *HOT) as cold, rig.server("hot", *HOT) as hot:
        flushed, kept = fill(cold, BUCKET, shape), fill(hot, BUCKET, shape)
        lake.flush(cold)
        lake.settle(cold)
        yield [
            Contender(LAKE, partial(measure, flushed, partial(_scan, rig, flushed, "lake"))),
            Contender(LAKE_NARROW, partial(measure, flushed, partial(_scan, rig, flushed, "lake", PEER_COLUMNS))),
            Contender(LIVE, partial(measure, flushed, partial(_scan, rig, flushed, "live"))),
            Contender(GET, partial(measure, flushed, partial(_gets, rig, flushed))),
            Contender(LIVE_HOT, partial(measure, kept, partial(_scan, rig, kept, "live"))),
            Contender(GET_HOT, partial(measure, kept, partial(_gets, rig, kept))),
        ]


def _scan(rig: Rig, filled: Filled, via: str, columns: str = "") -> DataFrame:
    reader = rig.spark.read.format("headwater").option("url", filled.url).option("bucket", filled.bucket)
    return reader.option("via", via).option("columns", columns).load()


def _gets(rig: Rig, filled: Filled) -> DataFrame:
    names = [name(index) for index in range(filled.shape.streams)]
    prefix = f"{filled.server.base}/{filled.bucket}"
    return spark_peer.rows(rig.spark, filled.server.address, prefix, names, rig.tasks)


def measure(filled: Filled, rows: Callable[[], DataFrame], turn: int) -> Sample:
    """Read and drop everything; every round counts rows, and the uncounted rounds also sum bytes and checksums."""
    table, seen, known = rows(), Observation(), filled.known
    if turn < 0:
        # Costs as much as a scan, so the counted rounds leave it out.
        sums = F.sum(F.octet_length("payload")).alias("bytes"), F.sum(F.crc32("payload")).alias("checksum")
        table = table.observe(seen, *sums)
    watch = Stopwatch()
    table.write.format("noop").mode("overwrite").save()
    watch.stop()
    found = Known(rows_dropped(table.sparkSession), known.bytes, known.checksum)
    if turn < 0:
        found = found._replace(**seen.get)
    return watch.sample(known, known.compare(found))


def rows_dropped(spark: SparkSession) -> int:
    """Return how many rows the last action passed to the sink that drops them, as Spark itself counts."""
    jvm: Any = spark
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    store = jvm._jsparkSession.sharedState().statusStore()
    action = store.executionsList(store.executionsCount() - 1, 1).apply(0).executionId()
    counts, nodes = store.executionMetrics(action), store.planGraph(action).allNodes()
    metrics = next(node.metrics() for node in map(nodes.apply, range(nodes.size())) if "noop" in node.name())
    numbers = [one.accumulatorId() for one in map(metrics.apply, range(metrics.size())) if one.name() == COUNTED]
    return int(counts.apply(numbers[0]).replace(",", ""))


SCENES = (
    Scene("scan", lambda scale: scale.large.label, lambda rig: open_scans(rig, rig.scale.large)),
    Scene("scan", lambda scale: scale.many.label, lambda rig: open_scans(rig, rig.scale.many)),
)
