"""A producer id belongs to one query, and what it repeats is on record."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from headwater.client import Client
from headwater.spark.link import Link
from headwater.spark.sink.delivery import WriteFailed
from headwater.spark.sink.ledger import Ledger, stream_name
from headwater.spark.writing import by_stream
from headwater.testing import RunningServer

from ..streams import JSON, Streams

QUERY_SECONDS_MAX = 300


# -- The ledger ------------------------------------------------------------------------------------------------------


def test_the_first_owner_of_an_id_stays_its_owner(link: Link, bucket: str) -> None:
    ledger = Ledger(link, bucket)
    assert ledger.owner() is None
    for _ in range(2):
        ledger.claim("the query 1")
    with pytest.raises(WriteFailed, match=f"^The producer '{bucket}' belongs to the query 1 and not to the query 2: "):
        Ledger(link, bucket).claim("the query 2")
    assert Ledger(link, bucket).owner() == "the query 1"


def test_of_two_that_claim_an_id_at_once_one_wins(link: Link, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Ledger(link, bucket).claim("the query 1")
    owner, early = Ledger.owner, iter([True])
    # The second has asked before the first claimed.
    monkeypatch.setattr(Ledger, "owner", lambda self: None if next(early, False) else owner(self))
    with pytest.raises(WriteFailed, match="belongs to the query 1 and not to the query 2"):
        Ledger(link, bucket).claim("the query 2")


def test_repeated_rows_are_counted_from_an_offset_on(link: Link, bucket: str) -> None:
    ledger = Ledger(link, bucket)
    ledger.note_repeated(3, 100)
    assert (ledger.end(), ledger.owner()) == (0, None), "there is nothing to note before a claim"
    ledger.claim("batch writes")
    ledger.note_repeated(3, 100)
    end = ledger.end()
    assert (ledger.repeated_since(0), ledger.repeated_since(end)) == (100, 0)
    ledger.note_repeated(3, 20)
    ledger.note_repeated(4, 3)
    assert ledger.repeated_since(end) == 23


def test_repeated_rows_are_noted_by_a_driver_whose_clock_is_behind(
    link: Link, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(link, bucket)
    ledger.claim("batch writes")
    ledger.note_repeated(3, 100)
    monkeypatch.setattr("headwater.spark.sink.ledger.time.time_ns", lambda: 1_000)
    for _ in range(2):
        ledger.note_repeated(3, 20)
    assert ledger.repeated_since(0) == 140


@pytest.mark.parametrize("name", ["a/b", "é ½", "x" * 255, "ü" * 127, "%2F"])
def test_every_producer_id_has_a_ledger(link: Link, bucket: str, name: str) -> None:
    ledger = Ledger(link, f"{name[: 250 - len(bucket)]}{bucket}"[:255])
    ledger.claim("batch writes")
    assert ledger.owner() == "batch writes"
    assert stream_name("a/b") != stream_name("a%2Fb")


@pytest.mark.parametrize("producer", [".", "..", "a/../b", "\0"])
def test_an_id_that_cannot_be_part_of_a_url_has_a_ledger_too(link: Link, producer: str) -> None:
    Ledger(link, producer).claim("batch writes")
    assert Ledger(link, producer).owner() == "batch writes"


# -- Queries ---------------------------------------------------------------------------------------------------------


def source(spark: SparkSession, server: RunningServer, bucket: str) -> DataFrame:
    options = {"url": server.url, "bucket": bucket, "via": "live", "startingOffsets": "earliest"}
    rows = spark.readStream.format("headwater").options(**options).load()
    return by_stream(rows.selectExpr("stream", "payload AS value", "content_type", "offset"))


def copy(spark: SparkSession, server: RunningServer, bucket: str, checkpoint: Path, producer: str) -> None:
    """Copy what is new in a bucket to another one."""
    query = (
        source(spark, server, bucket)
        .writeStream.format("headwater")
        .options(url=server.url, bucket=f"{bucket}-copy", orderColumn="offset", producerId=producer)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(QUERY_SECONDS_MAX)


def copy_each(spark: SparkSession, server: RunningServer, bucket: str, checkpoint: Path, producer: str) -> None:
    """The same with a batch write for each micro-batch."""

    def write(rows: DataFrame, batch: int) -> None:
        options = {"url": server.url, "bucket": f"{bucket}-copy", "orderColumn": "offset", "producerId": producer}
        rows.write.format("headwater").options(**options, producerEpoch=batch).mode("append").save()

    query = (
        source(spark, server, bucket)
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(QUERY_SECONDS_MAX)


def messages(server: RunningServer, name: str) -> list[object]:
    with Client(f"{server.url}/v1/stream") as client:
        return client.stream(name).read_json()


def write_batch(spark: SparkSession, server: RunningServer, name: str, values: list[int], producer: str) -> None:
    rows = spark.createDataFrame([(name, str(value), value) for value in values], "stream string, value string, n int")
    writer = rows.coalesce(1).write.format("headwater").options(url=server.url, orderColumn="n", maxAppendMessages=2)
    writer.options(producerId=producer, producerEpoch=0).mode("append").save()


@pytest.mark.parametrize("run", [copy, copy_each], ids=["stream", "foreachBatch"])
def test_a_query_without_its_checkpoint_or_with_the_name_of_another_is_refused(
    run: Callable[..., None],
    spark: SparkSession,
    lake_server: RunningServer,
    streams: Streams,
    tmp_path: Path,
) -> None:
    bucket, copied = streams.bucket, f"{streams.bucket}-copy/x"
    streams.make("x", b"1", content_type=JSON)
    run(spark, lake_server, bucket, tmp_path / "one", bucket)
    streams.append_json("x", 2)
    run(spark, lake_server, bucket, tmp_path / "one", bucket)
    assert messages(lake_server, copied) == [1, 2]

    # Another query of the same name, with rows of its own that the server would take for known ones.
    with pytest.raises(
        PySparkException, match=f"WriteFailed: The producer '{bucket}' belongs to the query .* and not "
    ):
        run(spark, lake_server, bucket, tmp_path / "other", bucket)
    shutil.rmtree(tmp_path / "one")
    with pytest.raises(PySparkException, match="a checkpoint was lost, or two writers have the same name; go on with "):
        run(spark, lake_server, bucket, tmp_path / "one", bucket)
    with pytest.raises(PySparkException, match=r"belongs to the query .* and not to batch writes"):
        write_batch(spark, lake_server, copied, [9], bucket)
    assert messages(lake_server, copied) == [1, 2]
    run(spark, lake_server, bucket, tmp_path / "another", f"{bucket}-2")
    assert messages(lake_server, copied) == [1, 2, 1, 2]


def test_a_repeated_write_is_on_record_and_one_with_other_rows_fails(
    spark: SparkSession, lake_server: RunningServer, bucket: str, link: Link
) -> None:
    name = f"{bucket}/x"
    write_batch(spark, lake_server, name, [1, 2, 3, 4, 5], bucket)
    ledger = Ledger(link, bucket)
    assert (ledger.owner(), ledger.repeated_since(0)) == ("batch writes", 0)
    write_batch(spark, lake_server, name, [5, 4, 3, 2, 1], bucket)
    assert ledger.repeated_since(0) == 5
    for other in ([1, 2], [1, 2, 3], [1, 2, 3, 4, 6], [6, 7, 8, 9, 10]):
        with pytest.raises(PySparkException, match=f"WriteFailed: The stream '{name}' has other rows in epoch 0 of "):
            write_batch(spark, lake_server, name, other, bucket)
    assert messages(lake_server, name) == [1, 2, 3, 4, 5]
