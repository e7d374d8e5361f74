"""Live streams through Spark: named streams, what is new in them, and what became of them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headwater.testing import RunningServer

from ...running import Batches, run
from ...streams import Streams, streams_in


@pytest.fixture
def streams(lake_server: RunningServer, bucket: str) -> Iterator[Streams]:
    with streams_in(lake_server, bucket) as streams:
        yield streams


def rows(spark: SparkSession, server: RunningServer, **options: str) -> list[tuple[str, str, str]]:
    frame = spark.read.format("headwater").options(url=server.url, **options).load()
    kind = "kind" if "kind" in frame.columns else "'message' as kind"
    found = frame.selectExpr("stream", kind, "cast(payload as string) as payload", "offset").collect()
    return [
        (row.stream, row.kind, row.payload)
        for row in sorted(found, key=lambda row: (row.stream, row.offset, -ord(row.kind[0])))
    ]


def test_named_streams_are_read_whole_also_forks_and_trimmed_ones(
    spark: SparkSession, lake_server: RunningServer, streams: Streams, tmp_path: Path
) -> None:
    streams.make("x", b"one", b"two", b"three")
    streams.fork("fork", "x", 6)
    streams.append("fork", b"mine")
    streams.trim("x", 3, b"was one")
    asked = {"bucket": streams.bucket, "streams": "x,fork", "minPartitions": "2"}
    forked = [("fork", "message", text) for text in ("one", "two", "mine")]
    kept = [("x", "message", "two"), ("x", "message", "three")]
    assert rows(spark, lake_server, **asked) == [*forked, *kept]
    bootstrapped = rows(spark, lake_server, onTrimmed="bootstrap", **asked)
    assert bootstrapped == [*forked, ("x", "snapshot", "was one"), *kept]
    with pytest.raises(PySparkException, match="trimmed up to 3 and read up to 1 only"):
        rows(spark, lake_server, startingOffsets='{"x": 1}', **asked)
    # A lake that is not on this machine: the server has the streams too.
    elsewhere = {"bucket": streams.bucket, "lake": str(tmp_path / "elsewhere")}
    assert rows(spark, lake_server, **elsewhere) == [*forked, *kept]
    with pytest.raises(PySparkException, match="cannot be reached from this machine"):
        rows(spark, lake_server, via="lake", **elsewhere)


def test_a_live_query_follows_new_streams_and_goes_on_without_deleted_ones(
    spark: SparkSession, lake_server: RunningServer, streams: Streams, checkpoint: str
) -> None:
    asked = {"bucket": streams.bucket, "via": "live", "startingOffsets": "earliest", "streamsPattern": "run-.*"}
    streams.make("run-1", *(b"a%d" % number for number in range(4)))
    streams.make("other", b"not mine")
    first = Batches()
    run(spark, lake_server, checkpoint, first, maxRecordsPerTrigger="3", **asked)
    assert first.rows == [["a0", "a1", "a2"], ["a3"]]
    streams.append("run-1", b"gone")
    streams.stream("run-1").delete()
    streams.make("run-2", b"b0")
    with pytest.raises(PySparkException, match="run-1' is not there any more"):
        run(spark, lake_server, checkpoint, Batches(), **asked)
    second = Batches()
    run(spark, lake_server, checkpoint, second, failOnDataLoss="false", **asked)
    assert second.rows == [["b0"]]
