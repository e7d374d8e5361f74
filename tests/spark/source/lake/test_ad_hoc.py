"""Consumers of queries that nothing can resume: they go soon after the query, and all others stay."""

import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headwater.client import Admin, ConsumerInfo
from headwater.protocol.limits import CONSUMER_IDLE_US, SECOND_US
from headwater.protocol.refusals import Code
from headwater.spark.failures import LinkRefused
from headwater.spark.link import Link, LinkSettings
from headwater.spark.options.source import DataLost
from headwater.spark.source.lake import keeping as checkpoints
from headwater.spark.source.lake.keeping import AD_HOC_SILENCE_SECONDS, Registrar, is_temporary
from headwater.streams.commands.streams import Delete
from headwater.testing import RunningServer

from ...running import Batches
from ...streams import Streams
from .lake_queries import read, registered, stream
from .small_lakes import SmallLake, small_lake

__all__ = ["small_lake"]

DEFAULT_SECONDS = CONSUMER_IDLE_US // SECOND_US
BEATS = 600
"""Ten a second for a consumer that may be silent for a minute."""


def until(what: Callable[[], object], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "it never became true"
        time.sleep(0.05)


# -- With Spark --------------------------------------------------------------------------------------------------------


def consumer_of_a_stopped_query(
    spark: SparkSession, server: RunningServer, bucket: str, checkpoint: str | None, **options: str
) -> ConsumerInfo:
    """The consumer that a query leaves when it is stopped, after it has read something."""
    given = {"url": server.url, "via": "lake", "bucket": bucket, "startingOffsets": "earliest", **options}
    with Admin(server.url) as admin:
        before = {one.name for one in admin.consumers()}
        batches = Batches()
        writer = spark.readStream.format("headwater").options(**given).load().writeStream.foreachBatch(batches)
        if checkpoint is not None:
            writer = writer.option("checkpointLocation", checkpoint)
        query = writer.start()
        try:
            until(lambda: batches.rows or query.exception())
        finally:
            query.stop()
        assert query.exception() is None
        (consumer,) = [one for one in admin.consumers() if one.name not in before]
        admin.forget_consumer(consumer.name)
    return consumer


def test_only_the_consumer_of_a_query_without_a_checkpoint_and_without_a_name_goes_soon(
    spark: SparkSession, lake_server: RunningServer, streams: Streams, checkpoint: str
) -> None:
    streams.make("x", b"1")
    bucket = streams.bucket
    ad_hoc = consumer_of_a_stopped_query(spark, lake_server, bucket, None)
    assert (ad_hoc.silence_seconds, ad_hoc.lapsed) == (AD_HOC_SILENCE_SECONDS, False)
    for where, options, seconds in (
        (checkpoint, {}, DEFAULT_SECONDS),
        (None, {"consumerName": bucket}, DEFAULT_SECONDS),
        (None, {"consumerSilence": "2h"}, 7200),
    ):
        left = consumer_of_a_stopped_query(spark, lake_server, bucket, where, **options)
        assert left.silence_seconds == seconds, (where, options)


# -- Checkpoints -------------------------------------------------------------------------------------------------------


def offsets_of(folder: Path, batch: str, consumer: str) -> None:
    """What Spark writes when it begins a batch."""
    (folder / "offsets").mkdir(parents=True, exist_ok=True)
    offset = json.dumps({"reader": consumer, "shards": {"0": 5}, "v": 2})
    (folder / "offsets" / batch).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{offset}')


def test_a_checkpoint_is_temporary_only_if_its_latest_batch_is_that_of_the_query(tmp_path: Path) -> None:
    places = [tmp_path / "none", tmp_path]
    assert not is_temporary("spark-1", places)
    offsets_of(tmp_path / "temporary-1", "9", "spark-1")
    assert is_temporary("spark-1", places)
    assert not is_temporary("spark-", places) and not is_temporary("spark-10", places)
    offsets_of(tmp_path / "temporary-1", "10", "spark-2")
    assert is_temporary("spark-2", places) and not is_temporary("spark-1", places)
    offsets_of(tmp_path / "mine", "0", "spark-3")
    assert not is_temporary("spark-3", places)


def test_folders_that_are_something_else_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "temporary-file").write_text('"spark-1"')
    (tmp_path / "temporary-empty" / "offsets").mkdir(parents=True)
    (tmp_path / "temporary-odd" / "offsets" / "5").mkdir(parents=True)
    (tmp_path / "temporary-odd" / "offsets" / ".5.crc").write_text('"spark-1"')
    os.mkfifo(tmp_path / "temporary-odd" / "offsets" / "6")
    (tmp_path / "temporary-gone").symlink_to(tmp_path / "gone")
    assert not is_temporary("spark-1", [tmp_path])
    offsets_of(tmp_path / "temporary-odd", "4", "spark-1")
    assert is_temporary("spark-1", [tmp_path])


def test_the_latest_folders_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "FOLDERS_MAX", 2)
    for number in range(4):
        offsets_of(tmp_path / f"temporary-{number}", "0", f"spark-{number}")
        os.utime(tmp_path / f"temporary-{number}", (1000 - number, 1000 - number))
    assert [is_temporary(f"spark-{number}", [tmp_path]) for number in range(4)] == [True, True, False, False]


# -- A query on a small lake -------------------------------------------------------------------------------------------


def planned(lake: SmallLake, place: Path, **given: str) -> dict[str, Any]:
    """The end of the first batch of a query with a temporary checkpoint."""
    lake.append("a/x", b"1")
    one = stream(lake, None, startingOffsets="earliest", **given)
    start = one.initial()
    end = one.latest(start)
    offsets_of(place / "temporary-1", "0", end["reader"])
    assert [row[-1] for row in read(one, start, end)] == [b"1"]
    one.commit(end)
    one.stop()
    return end


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary folders are."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_rows_are_not_kept_for_a_query_that_is_gone(small_lake: SmallLake, place: Path) -> None:
    end = planned(small_lake, place)
    (consumer,) = small_lake.state.cold.consumers.values()
    assert consumer.life_us == AD_HOC_SILENCE_SECONDS * SECOND_US
    small_lake.append("a/y", b"2")
    small_lake.flush()
    small_lake.do(Delete("a/y"))
    assert not small_lake.compact()
    small_lake.now += AD_HOC_SILENCE_SECONDS * SECOND_US
    assert small_lake.compact()
    with pytest.raises(DataLost, match="its registration expired"):
        stream(small_lake).latest(end)


def test_rows_are_kept_for_a_query_with_a_name_and_a_temporary_checkpoint(small_lake: SmallLake, place: Path) -> None:
    planned(small_lake, place, consumerName="mine")
    assert small_lake.state.cold.consumers["mine"].life_us == CONSUMER_IDLE_US


def test_a_cluster_of_an_older_version_keeps_the_rows_for_longer(
    small_lake: SmallLake, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = type(small_lake.link)
    renew = kind.renew

    def refuse(link: Link, consumer: str, positions: dict[str, int], silence_seconds: int | None = None) -> bool:
        if silence_seconds is not None:
            raise LinkRefused("PUT", 501, {"code": Code.NOT_IMPLEMENTED, "detail": "upgrade all nodes"})
        return renew(link, consumer, positions)

    monkeypatch.setattr(kind, "renew", refuse)
    end = planned(small_lake, place)
    assert registered(small_lake) == {end["reader"]: end["shards"]["0"]}
    assert small_lake.state.cold.consumers[end["reader"]].life_us == CONSUMER_IDLE_US


# -- Signs of life -----------------------------------------------------------------------------------------------------


def test_a_query_whose_batch_takes_long_gives_signs_of_life_until_it_stops(link: Link, bucket: str) -> None:
    log_id, position = link.log_id(), link.flush()["0"]
    registrar = Registrar(link, link.settings, 60, beats=BEATS)
    with Admin(link.settings.url) as admin:

        def reported_at() -> int:
            found = admin.consumer(bucket)
            assert found is not None and (found.positions, found.silence_seconds) == ({"0": position}, 60)
            return found.committed_at_ms

        registrar.register(log_id, bucket, position)
        for _ in range(3):
            before = reported_at()
            until(lambda before=before: reported_at() > before)  # type: ignore[misc]
        registrar.stop()
        assert registrar._heart is not None
        registrar._heart.join(60)
        assert not registrar._heart.is_alive()
    link.forget(bucket)


def test_a_sign_of_life_does_not_hide_that_a_query_has_lapsed(link: Link, bucket: str) -> None:
    log_id, position = link.log_id(), link.flush()["0"]
    registrar = Registrar(link, link.settings, 60, beats=BEATS)
    registrar.register(log_id, bucket, position)
    with Admin(link.settings.url) as admin:
        admin.forget_consumer(bucket)
        seen = registrar._last_at
        until(lambda: registrar._last_at > seen + 1)
        assert admin.consumer(bucket) is None
    assert not registrar.renew(log_id, bucket, position)
    assert registrar.consumer is None
    registrar.stop()


def test_a_sign_of_life_that_fails_is_repeated(link: Link, bucket: str, caplog: pytest.LogCaptureFixture) -> None:
    log_id, position = link.log_id(), link.flush()["0"]
    unreachable = LinkSettings("http://127.0.0.1:1", retries=0)
    registrar = Registrar(link, unreachable, 60, beats=BEATS)
    registrar.register(log_id, bucket, position)
    until(lambda: caplog.text.count("The registration of this query could not be renewed yet") >= 2)
    registrar.forget(bucket)
    assert registrar.consumer is None
    registrar.stop()
