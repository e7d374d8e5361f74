"""Live streams through Spark: batches and queries follow streams as they grow, fork and disappear."""

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headwater.testing import RunningServer

from ...running import Batches, run
from ...streams import Streams


def rows(spark: SparkSession, server: RunningServer, **options: str) -> list[tuple[str, str, str]]:
    frame = spark.read.format("headwater").options(url=server.url, **options).load()
    kind = "kind" if "kind" in frame.columns else "'message' as kind"
    found = frame.selectExpr("stream", kind, "cast(payload as string) as payload", "offset").collect()
    return [
        (row.stream, row.kind, row.payload)
        for row in sorted(found, key=lambda row: (row.stream, row.offset, -ord(row.kind[0])))
    ]


def test_named_streams_are_read_completely_including_forks_and_trimmed_ones(
    spark: SparkSession, lake_server: RunningServer, streams: Streams, tmp_path: Path
) -> None:
    streams.make("x", b"one", b"two", b"three")
    streams.fork("fork", "x", 6)
    streams.append("fork", b"mine")
    streams.trim("x", 3, b"was one")
    given = {"bucket": streams.bucket, "streams": "x,fork", "minPartitions": "2"}
    forked = [("fork", "message", text) for text in ("one", "two", "mine")]
    kept = [("x", "message", "two"), ("x", "message", "three")]
    assert rows(spark, lake_server, **given) == [*forked, *kept]
    bootstrapped = rows(spark, lake_server, onTrimmed="bootstrap", **given)
    assert bootstrapped == [*forked, ("x", "snapshot", "was one"), *kept]
    with pytest.raises(PySparkException, match="trimmed up to offset 3, but was read only up to 1"):
        rows(spark, lake_server, startingOffsets='{"x": 1}', **given)
    # If the lake is not on this machine, the streams are read from the server.
    elsewhere = {"bucket": streams.bucket, "lake": str(tmp_path / "elsewhere")}
    assert rows(spark, lake_server, **elsewhere) == [*forked, *kept]
    with pytest.raises(PySparkException, match="cannot be reached from this machine"):
        rows(spark, lake_server, via="lake", **elsewhere)


def test_a_live_query_follows_new_streams_and_continues_without_deleted_ones(
    spark: SparkSession, lake_server: RunningServer, streams: Streams, checkpoint: str
) -> None:
    given = {"bucket": streams.bucket, "via": "live", "startingOffsets": "earliest", "streamsPattern": "run-.*"}
    streams.make("run-1", *(b"a%d" % number for number in range(4)))
    streams.make("other", b"not mine")
    first = Batches()
    run(spark, lake_server, checkpoint, first, maxRecordsPerTrigger="3", **given)
    assert first.rows == [["a0", "a1", "a2"], ["a3"]]
    streams.append("run-1", b"gone")
    streams.stream("run-1").delete()
    streams.make("run-2", b"b0")
    with pytest.raises(PySparkException, match="run-1' no longer exists"):
        run(spark, lake_server, checkpoint, Batches(), **given)
    second = Batches()
    run(spark, lake_server, checkpoint, second, failOnDataLoss="false", **given)
    assert second.rows == [["b0"]]
