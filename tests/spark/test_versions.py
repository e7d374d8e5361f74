"""What every supported version of PySpark can do: `scripts/spark-versions` runs this with the oldest and the newest."""

import json
from pathlib import Path
from urllib.request import urlopen

import pyspark
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headwater.spark.writing import by_stream
from headwater.testing import RunningServer

QUERY_SECONDS_MAX = 300
STREAMS_READS = tuple(map(int, pyspark.__version__.split(".")[:2])) >= (4, 2)

pytestmark = [
    pytest.mark.spark_slow,
    # PySpark 4.1 leaves it to the garbage collector to close its sockets.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def write(spark: SparkSession, server: RunningServer, bucket: str, numbers: range) -> None:
    table = spark.range(numbers.start, numbers.stop).selectExpr("string(id % 5) AS stream", "string(id) AS value")
    by_stream(table).write.format("headwater").options(url=server.url, bucket=bucket).mode("append").save()


def numbers_in(server: RunningServer, bucket: str) -> list[int]:
    """The messages of all streams, as the server returns them."""
    found: list[int] = []
    for stream in range(5):
        with urlopen(f"{server.url}/v1/stream/{bucket}/{stream}") as response:
            found += json.loads(response.read())
    return sorted(found)


@pytest.mark.parametrize("via", ["lake", "live"])
def test_tables_are_written_and_read_back(
    via: str, spark: SparkSession, lake_server: RunningServer, bucket: str
) -> None:
    write(spark, lake_server, bucket, range(1_000))
    assert numbers_in(lake_server, bucket) == list(range(1_000))
    options = {"url": lake_server.url, "bucket": bucket, "via": via, "value": "string", "pushdown": "true"}
    rows = spark.read.format("headwater").options(**options).load()
    assert sorted(int(row.value) for row in rows.collect()) == list(range(1_000))
    one = rows.where("stream = '3'").orderBy("offset").select("value", "committed_at")
    assert [int(row.value) for row in one.collect()] == list(range(3, 1_000, 5))


@pytest.mark.parametrize("via", ["lake", "live"])
def test_a_query_copies_a_bucket_once_across_restarts(
    via: str, spark: SparkSession, lake_server: RunningServer, bucket: str, checkpoint: str
) -> None:
    write(spark, lake_server, bucket, range(100))
    options = {"url": lake_server.url, "bucket": bucket, "via": via, "startingOffsets": "earliest"}
    if not STREAMS_READS:
        with pytest.raises(PySparkException, match=r"Streaming reads need PySpark 4\.2, and this is 4\.1"):
            rows = spark.readStream.format("headwater").options(**options).load()
            query = rows.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
            query.awaitTermination(QUERY_SECONDS_MAX)
        return
    for upper in (100, 150):
        write(spark, lake_server, bucket, range(100, upper))
        rows = spark.readStream.format("headwater").options(**options).load()
        query = (
            by_stream(rows.selectExpr("stream", "payload AS value", "content_type", "offset"))
            .writeStream.format("headwater")
            .options(url=lake_server.url, bucket=f"{bucket}-copy", orderColumn="offset", checkpointLocation=checkpoint)
            .queryName(f"copy-{bucket}")
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(QUERY_SECONDS_MAX)
        assert numbers_in(lake_server, f"{bucket}-copy") == list(range(upper))


def test_a_query_on_files_writes_every_row_once_across_restarts(
    spark: SparkSession, lake_server: RunningServer, bucket: str, checkpoint: str, tmp_path: Path
) -> None:
    folder = tmp_path / "rows"
    for batch in range(3):
        rows = spark.range(batch * 10, batch * 10 + 10).selectExpr("string(id % 5) AS stream", "string(id) AS value")
        rows.write.mode("append").parquet(str(folder))
        source = spark.readStream.schema(rows.schema).parquet(str(folder))
        query = (
            by_stream(source)
            .writeStream.format("headwater")
            .options(url=lake_server.url, bucket=bucket, orderColumn="value", checkpointLocation=checkpoint)
            .queryName(f"copy-{bucket}")
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(QUERY_SECONDS_MAX)
        assert numbers_in(lake_server, bucket) == list(range(batch * 10 + 10))
