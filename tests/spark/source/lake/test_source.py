"""The lake through Spark: batches and queries return the rows of the streams exactly once."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater.lake.catalog import read_catalog, read_tombstones
from headwater.spark.link import Link
from headwater.spark.positions import lag_in
from headwater.storage.opening import open_store
from headwater.testing import RunningServer

from ...jobs.compact.compacting import compact, listed
from ...random_streams import Message, RandomStreams
from ...running import QUERY_SECONDS_MAX, Batches, run
from ...streams import Streams


def table(spark: SparkSession, server: RunningServer, **options: str) -> DataFrame:
    return spark.read.format("headwater").options(url=server.url, **options).load()


def messages(frame: DataFrame) -> list[Message]:
    rows = frame.select("stream", "record", "offset", "next_offset", "payload").collect()
    return sorted(Message(row[0], row[1], row[2], row[3], bytes(row[4])) for row in rows)


def test_streams_lake_and_files_agree_whatever_happened(
    spark: SparkSession, lake_server: RunningServer, streams: Streams, link: Link
) -> None:
    chance = RandomStreams(streams, seed=7)
    segments = set[str]()
    for _ in range(5):
        chance.act(30)
        segments |= listed(link)
    chance.act(10)
    for name, life in chance.lives.items():
        if life.start == 0:
            assert streams.stream(name).read() == _body(life.messages, life.content_type), "the ledger is right"
    bucket, names = streams.bucket, sorted(chance.lives)[::2]
    whole, own = chance.expected(inherited=True), chance.expected(inherited=False)
    named = [message for message in whole if message.stream in names]
    assert len(own) < len(whole)
    assert messages(table(spark, lake_server, bucket=bucket)) == own
    compact(link)
    assert segments - listed(link), "some were replaced"
    assert messages(table(spark, lake_server, bucket=bucket)) == own
    assert messages(table(spark, lake_server, bucket=bucket, streams=",".join(names), via="lake")) == named
    assert messages(table(spark, lake_server, bucket=bucket, via="live")) == whole
    assert _through_parquet(spark, link, bucket) == own


def _body(found: list[Message], content_type: str) -> bytes:
    payloads = [message.payload for message in found]
    return b"[" + b",".join(payloads) + b"]" if content_type == "application/json" else b"".join(payloads)


def _through_parquet(spark: SparkSession, link: Link, bucket: str) -> list[Message]:
    """What a reader finds who has only the files, Spark and the page about the lake."""
    url = link.status()["lake"]["url"]
    catalog = read_catalog(open_store(url))
    assert catalog is not None
    folder = Path(url.removeprefix("file://"))
    stored = spark.read.parquet(*(str(folder / one.key) for one in catalog.segments if one.live_rows)).alias("stored")
    tombstones = [(one["incarnation"], one["below"]) for one in read_tombstones(open_store(url), catalog).to_pylist()]
    dead = F.broadcast(spark.createDataFrame(tombstones, "incarnation long, below long")).alias("dead")
    is_dead = F.expr("stored.incarnation = dead.incarnation and stored.offset < dead.below")
    return messages(stored.where(F.col("bucket") == bucket).join(dead, is_dead, "left_anti"))


def test_a_table_has_the_selected_columns(spark: SparkSession, lake_server: RunningServer, streams: Streams) -> None:
    streams.make("x", content_type="application/json")
    streams.append_json("x", {"n": 1}, {"n": "two"})
    given = {"bucket": streams.bucket, "columns": "stream,record", "value": "variant"}
    frame = table(spark, lake_server, **given).selectExpr("*", "try_variant_get(value, '$.n', 'int') as n")
    assert [field.simpleString() for field in frame.schema][:3] == ["stream:string", "record:bigint", "value:variant"]
    assert [(row.stream, row.record, row.n) for row in frame.orderBy("record").collect()] == [
        ("x", 0, 1),
        ("x", 1, None),
    ]
    text = table(spark, lake_server, bucket=streams.bucket, value="string")
    assert [row.value for row in text.orderBy("record").collect()] == ['{"n":1}', '{"n":"two"}']


def test_filters_are_pushed_down_if_enabled(spark: SparkSession, lake_server: RunningServer, streams: Streams) -> None:
    for name in ("x", "y"):
        streams.make(name, *(b"%d" % number for number in range(5)))
    frame = table(spark, lake_server, bucket=streams.bucket, pushdown="true")
    some = frame.where("stream = 'y' and offset >= 2 and committed_at > timestamp'2020-01-01 00:00:00'")
    plan = some._jdf.queryExecution().executedPlan().toString()
    assert "Filter" not in plan.replace("RuntimeFilters", ""), "nothing is left to Spark"
    assert [bytes(row.payload) for row in some.orderBy("offset").collect()] == [b"2", b"3", b"4"]
    odd = frame.where("record % 2 = 1 and stream like 'x%'")
    assert sorted(bytes(row.payload) for row in odd.collect()) == [b"1", b"3"]


def test_an_unknown_option_is_refused_in_one_sentence(spark: SparkSession, lake_server: RunningServer) -> None:
    with pytest.raises(PySparkException, match="There is no option 'startingoffset'; did you mean startingOffsets"):
        table(spark, lake_server, bucket="b", startingOffset="earliest")


def test_a_query_resumes_where_it_ended_and_reads_every_row_once(
    spark: SparkSession, lake_server: RunningServer, streams: Streams, link: Link, checkpoint: str
) -> None:
    given: dict[str, Any] = {
        "bucket": streams.bucket,
        "startingOffsets": "earliest",
        "maxBytesPerTrigger": "20",
        "consumerName": streams.bucket,
    }
    streams.make("x", *(b"x%d" % number for number in range(15)))
    first = Batches()
    run(spark, lake_server, checkpoint, first, **given)
    assert len(first.rows) > 1 and all(sum(map(len, rows)) <= 20 for rows in first.rows)
    assert first.all_rows == sorted(f"x{number}" for number in range(15))
    assert streams.bucket in link.consumers(), "the registration stays for a restart"
    offset = Path(checkpoint, "offsets", str(first.found[-1][0])).read_text().splitlines()[-1]
    assert '"shards"' in offset and len(offset) < 250, "it does not grow with the streams"

    # Rows that are deleted before they are read are still read, and a batch that failed is repeated exactly.
    streams.append("x", b"more")
    streams.make("y", b"gone soon")
    link.flush()
    streams.stream("y").delete()
    compact(link)
    failing = Batches(fail_in=first.found[-1][0] + 1)
    with pytest.raises(PySparkException):
        run(spark, lake_server, checkpoint, failing, **given)
    streams.append("x", b"later")
    compact(link)
    second = Batches()
    run(spark, lake_server, checkpoint, second, **given)
    assert second.found[0] == failing.found[0]
    assert second.all_rows == ["gone soon", "later", "more"]
    link.forget(streams.bucket)


def test_the_lag_of_a_query_is_in_its_progress(
    spark: SparkSession, lake_server: RunningServer, streams: Streams, link: Link, checkpoint: str
) -> None:
    streams.make("x", b"1")
    link.flush()
    for message in (b"2", b"3"):
        streams.append("x", message)
        link.flush()
    frame = spark.readStream.format("headwater").options(
        url=lake_server.url, via="lake", bucket=streams.bucket, startingOffsets="earliest", maxRecordsPerTrigger="1"
    )
    writer = frame.load().writeStream.foreachBatch(Batches()).option("checkpointLocation", checkpoint)
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(QUERY_SECONDS_MAX)
    lags = [lag_in(progress) or 0 for progress in query.recentProgress if progress["numInputRows"]]
    assert len(lags) == 3 and lags[0] > lags[1] > lags[2]
