"""The sink writes each row of a table to its stream exactly once."""

import json
import random
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote
from urllib.request import urlopen

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructType

from headwater.client import ScanRange
from headwater.spark.link import Link, LinkSettings
from headwater.spark.options.sink import parse_sink
from headwater.spark.sink.chunks import CHUNKS
from headwater.spark.sink.delivery import Delivery, Producer, WriteFailed
from headwater.spark.sink.sink import TaskWriter, Written, check_one_task_per_stream
from headwater.spark.sink.sorting import RUN_BYTES
from headwater.spark.writing import by_stream
from headwater.testing import RunningServer

QUERY_SECONDS_MAX = 300
CHUNK = {"messages": [b"9"], "content_type": None, "close": False, "seq": 0, "last": True}


def write(rows: DataFrame, server: RunningServer, **options: str) -> None:
    rows.write.format("headwater").options(url=server.url, **options).mode("append").save()


def content(server: RunningServer, name: str) -> bytes:
    with urlopen(f"{server.url}/v1/stream/{quote(name)}") as response:
        assert response.headers["Stream-Up-To-Date"] == "true"
        found: bytes = response.read()
        return found


def described(server: RunningServer, prefix: str) -> dict[str, dict[str, object]]:
    with Link(LinkSettings(server.url)) as link:
        pages: Iterable[pa.Table] = link.describe_all(prefix)
        return {row["stream"]: row for page in pages for row in page.to_pylist()}


def appends(server: RunningServer, name: str) -> list[tuple[int, int, int]]:
    """Epoch, sequence and number of messages of each append to a stream."""
    facts = described(server, name)[name]
    assert isinstance(facts["incarnation"], int) and isinstance(facts["tail"], int)
    with Link(LinkSettings(server.url)) as link:
        columns = ["producer_epoch", "producer_seq"]
        with link.scan([ScanRange(name, facts["incarnation"], 0, facts["tail"])], columns) as batches:
            rows = [(row["producer_epoch"], row["producer_seq"]) for batch in batches for row in batch.to_pylist()]
    return [(*append, rows.count(append)) for append in dict.fromkeys(rows)]


# -- One task, without Spark -----------------------------------------------------------------------------------------

TASK_SCHEMA = StructType().add("stream", StringType()).add("value", BinaryType()).add("at", IntegerType())


def task(
    server: RunningServer, producer: Producer, batches: Iterable[pa.RecordBatch], run_bytes: int = RUN_BYTES
) -> Written:
    options = {"url": server.url, "orderColumn": "at", "maxAppendBytes": "4000", "maxAppendMessages": "100"}
    writer = TaskWriter(parse_sink(options, streaming=False), TASK_SCHEMA, run_bytes=run_bytes)
    return writer.write(batches, producer)


def test_a_retry_sends_the_same_appends_regardless_of_batches_and_spills(
    lake_server: RunningServer, bucket: str
) -> None:
    names = [f"{bucket}/{number % 7}" for number in range(3000)]
    values = [b"%d " % number * (number % 13 + 1) for number in range(3000)]
    rows = pa.record_batch({"stream": names, "value": values, "at": range(3000, 0, -1)})
    first = task(lake_server, Producer("task", 3), [rows])
    small = [rows.slice(at, 77) for at in range(0, 3000, 77)]
    again = task(lake_server, Producer("task", 3), small, run_bytes=20_000)
    assert first.appends >= 7 * 5
    assert (again.appends, again.duplicates) == (0, first.appends)
    for number in range(7):
        assert content(lake_server, f"{bucket}/{number}") == b"".join(values[number::7][::-1])


def test_rows_with_equal_order_are_appended_alike_in_whatever_order_they_arrive(
    lake_server: RunningServer, bucket: str
) -> None:
    values = [b"%d " % (number % 400) * (number % 13 + 1) for number in range(3000)]
    names = [f"{bucket}/{number % 7}" for number in range(3000)]
    rows = pa.record_batch({"stream": names, "value": values, "at": [number // 500 for number in range(3000)]})
    first = task(lake_server, Producer("task", 0), [rows])
    held = {name: content(lake_server, name) for name in sorted(set(names))}
    for seed in range(3):
        shuffled = rows.take(pa.array(random.Random(seed).sample(range(3000), 3000)))
        small = [shuffled.slice(at, 77) for at in range(0, 3000, 77)]
        again = task(lake_server, Producer("task", seed), small, run_bytes=20_000)
        assert (again.appends, again.duplicates) == (0, first.appends)
        # Under a new epoch everything is appended once more, and cut alike.
        task(lake_server, Producer("task", seed + 1), small, run_bytes=20_000)
        for name, once in held.items():
            assert content(lake_server, name) == once * (seed + 2)
            cuts = appends(lake_server, name)
            assert [cut[1:] for cut in cuts] == [cut[1:] for cut in cuts if cut[0] == 0] * (seed + 2)


def test_an_empty_task_sends_nothing_and_still_reports() -> None:
    unreachable = {"url": "http://127.0.0.1:1"}
    assert TaskWriter(parse_sink(unreachable, streaming=False), TASK_SCHEMA).write([], Producer("task", 0)) == Written()


def test_streams_that_each_belong_to_one_task_are_accepted() -> None:
    check_one_task_per_stream([Written(b"11111111" + b"22222222"), None, Written(), Written(b"33333333")])


def test_a_stream_of_two_tasks_is_detected_even_without_its_name() -> None:
    with pytest.raises(WriteFailed, match=r"^Two tasks wrote to a stream and 1 more, so rows of one of them are "):
        check_one_task_per_stream(
            [Written(b"11111111" + b"22222222"), Written(b"22222222" + b"11111111" + b"33333333")]
        )


# -- Batches ---------------------------------------------------------------------------------------------------------


def test_rows_are_read_back_as_they_were_written(spark: SparkSession, lake_server: RunningServer, bucket: str) -> None:
    rows = [(f"s{number % 3}", f'{{"n": {number}}}', -number) for number in range(30)]
    table = spark.createDataFrame(rows, "stream string, value string, at int")
    write(by_stream(table), lake_server, bucket=bucket, orderColumn="at", maxAppendMessages="4")
    for stream in range(3):
        wanted = [value for name, value, _ in reversed(rows) if name == f"s{stream}"]
        assert content(lake_server, f"{bucket}/s{stream}").decode() == f"[{','.join(wanted)}]"
        assert appends(lake_server, f"{bucket}/s{stream}") == [(0, 0, 4), (0, 1, 4), (0, 2, 2)]
    assert {facts["content_type"] for facts in described(lake_server, f"{bucket}/").values()} == {"application/json"}


def test_bytes_types_and_closes_are_kept(spark: SparkSession, lake_server: RunningServer, bucket: str) -> None:
    rows = [
        ("bytes", b"\x00\xff", None, None),
        ("text", b"one\n", True, "text/plain"),
        ("text", b"two\n", None, "text/plain"),
        ("silent", None, True, "text/css"),
    ]
    table = spark.createDataFrame(rows, "stream string, value binary, close boolean, content_type string").coalesce(1)
    write(table, lake_server, bucket=bucket)
    found = described(lake_server, f"{bucket}/")
    assert {name: (facts["content_type"], facts["closed"]) for name, facts in found.items()} == {
        f"{bucket}/bytes": ("application/octet-stream", False),
        f"{bucket}/text": ("text/plain", True),
        f"{bucket}/silent": ("text/css", True),
    }
    assert content(lake_server, f"{bucket}/bytes") == b"\x00\xff"
    assert content(lake_server, f"{bucket}/text") == b"one\ntwo\n"
    write(table.limit(1).select("value"), lake_server, stream=f"{bucket}/bytes", close="true")
    assert described(lake_server, f"{bucket}/bytes")[f"{bucket}/bytes"]["closed"]
    with pytest.raises(
        PySparkException, match=f"WriteFailed: The stream '{bucket}/bytes' was closed before the whole "
    ):
        write(table.limit(1), lake_server, bucket=bucket)


def test_a_job_that_is_run_again_adds_nothing_and_an_older_one_is_fenced(
    spark: SparkSession, lake_server: RunningServer, bucket: str
) -> None:
    table = spark.createDataFrame([(f"{bucket}/x", "1"), (f"{bucket}/x", "2")], "stream string, value string").coalesce(
        1
    )
    write(table, lake_server, producerId="job", producerEpoch="7")
    write(table, lake_server, producerId="job", producerEpoch="7")
    assert content(lake_server, f"{bucket}/x") == b"[1,2]"
    write(table, lake_server, producerId="job", producerEpoch="8")
    write(table, lake_server)
    assert content(lake_server, f"{bucket}/x") == b"[1,2,1,2,1,2]"
    with pytest.raises(
        PySparkException, match=f"WriteFailed: The stream '{bucket}/x' is at epoch 8 of the producer 'job'"
    ):
        write(table, lake_server, producerId="job", producerEpoch="7")
    assert content(lake_server, f"{bucket}/x") == b"[1,2,1,2,1,2]"


def test_a_write_leaves_no_producer_behind(spark: SparkSession, lake_server: RunningServer, bucket: str) -> None:
    name = f"{bucket}/x"
    table = spark.createDataFrame([(name, "1")], "stream string, value string")
    write(table, lake_server)
    with pytest.raises(PySparkException, match="is not valid JSON"):
        write(spark.createDataFrame([(name, "2"), (f"{bucket}/y", "no JSON")], table.schema).coalesce(1), lake_server)
    with Link(LinkSettings(lake_server.url)) as link:
        facts = described(lake_server, name)[name]
        assert isinstance(facts["incarnation"], int)
        with link.scan([ScanRange(name, facts["incarnation"], 0, 2)], ["producer_id"]) as batches:
            committed, aborted = (one for batch in batches for one in batch["producer_id"].to_pylist())
        for producer in (committed, aborted):
            late = Delivery(link, Producer(producer, 1), create=True, content_type="application/json")
            with pytest.raises(
                WriteFailed, match="refuses epoch 1: a later run has taken over, or this write has ended"
            ):
                late.send(pa.Table.from_pylist([CHUNK | {"stream": name}], CHUNKS))


def test_two_tasks_on_one_stream_fail_the_commit(spark: SparkSession, lake_server: RunningServer, bucket: str) -> None:
    table = spark.range(100, numPartitions=2).selectExpr(f"'{bucket}/x' AS stream", "'1' AS value")
    with pytest.raises(PySparkException, match=f"WriteFailed: Two tasks wrote to the stream '{bucket}/x', so rows"):
        write(table, lake_server)
    different = spark.range(100, numPartitions=2).selectExpr(f"'{bucket}/y' AS stream", "string(id) AS value")
    with pytest.raises(
        PySparkException, match=f"The stream '{bucket}/y' has other rows in .*: two tasks wrote to it, "
    ):
        write(different, lake_server)


def test_an_option_that_does_not_exist_is_refused_by_name(spark: SparkSession, lake_server: RunningServer) -> None:
    table = spark.createDataFrame([("a/x", "1")], "stream string, value string")
    with pytest.raises(PySparkException, match=r"OptionRefused: There is no option 'bukket'; did you mean bucket\?"):
        write(table, lake_server, bukket="b")


def test_many_tiny_streams_are_written_at_once(spark: SparkSession, lake_server: RunningServer, bucket: str) -> None:
    table = spark.range(5000, numPartitions=2).selectExpr("string(id) AS stream", "string(id * 2) AS value")
    write(table, lake_server, bucket=bucket)
    found = described(lake_server, f"{bucket}/")
    assert len(found) == 5000
    assert all(facts["record_next"] == 1 for facts in found.values())
    assert content(lake_server, f"{bucket}/4321") == b"[8642]"


# -- Streaming queries -----------------------------------------------------------------------------------------------


def copy(spark: SparkSession, server: RunningServer, bucket: str, checkpoint: str) -> int:
    """Copy what is new in a bucket to another one; how many batches it took."""
    options = {"url": server.url, "bucket": bucket, "via": "live", "startingOffsets": "earliest"}
    source = spark.readStream.format("headwater").options(**options).load()
    rows = by_stream(source.selectExpr("stream", "payload AS value", "content_type", "offset"))
    query = (
        rows.writeStream.format("headwater")
        .options(url=server.url, bucket=f"{bucket}-copy", orderColumn="offset", checkpointLocation=checkpoint)
        .queryName(f"copy-{bucket}")
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(QUERY_SECONDS_MAX)
    return sum(progress["numInputRows"] > 0 for progress in query.recentProgress)


def test_a_retried_batch_is_not_written_twice(
    spark: SparkSession, lake_server: RunningServer, bucket: str, checkpoint: str
) -> None:
    table = spark.range(200, numPartitions=1).selectExpr("string(id % 5) AS stream", "string(id) AS value")
    write(table, lake_server, bucket=bucket)
    assert copy(spark, lake_server, bucket, checkpoint) == 1
    # As if the driver had died before it recorded the batch as committed.
    for noted in Path(checkpoint, "commits").glob("*0*"):
        noted.unlink()
    write(table.limit(5), lake_server, bucket=bucket)
    assert copy(spark, lake_server, bucket, checkpoint) == 2
    for stream in range(5):
        copied = content(lake_server, f"{bucket}-copy/{stream}")
        assert copied == content(lake_server, f"{bucket}/{stream}")
        assert len(json.loads(copied)) == 41
        assert [epoch for epoch, *_ in appends(lake_server, f"{bucket}-copy/{stream}")] == [0, 1]
