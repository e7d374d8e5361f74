"""Spark with the URLs of several nodes, some of which die."""

import pickle
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from headwater.client import ScanRange
from headwater.spark.failures import LinkFailed, ScanBroken
from headwater.spark.link import Link, LinkSettings, parse_link
from headwater.spark.options.values import OptionRefused
from headwater.testing import RunningServer

from ..client.fronts import Front, fronts_of
from .streams import Streams


@pytest.fixture
def fronts(lake_server: RunningServer) -> Iterator[list[Front]]:
    with fronts_of(lake_server.url) as fronts:
        yield fronts


def urls_of(fronts: list[Front]) -> str:
    return ",".join(front.url for front in fronts)


def test_the_option_takes_several_urls() -> None:
    settings = parse_link({"url": "https://a:1/, https://ada:secret@b:1"})
    assert settings.url == "https://a:1,https://b:1"
    assert settings.headers == (("Authorization", "Basic YWRhOnNlY3JldA=="),)
    assert {tuple(settings.urls) for _ in range(100)} == {
        ("https://a:1", "https://b:1"),
        ("https://b:1", "https://a:1"),
    }
    assert "secret" not in repr(LinkSettings("http://a:1,http://ada:secret@b:1"))


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://a:1,http://a:1", "The option url is wrong: http://a:1 is given twice; name each node once."),
        ("http://a:1,https://b:1", "have different schemes"),
        ("http://a:1,http://b:1/ds", "have different paths"),
        ("http://a:1,b:1", "is not the URL of a server"),
    ],
)
def test_urls_that_are_not_those_of_one_cluster_are_refused(url: str, said: str) -> None:
    with pytest.raises(OptionRefused) as caught:
        parse_link({"url": url})
    assert said in str(caught.value)


def test_a_link_uses_the_nodes_that_are_alive(fronts: list[Front], streams: Streams) -> None:
    settings = LinkSettings(urls_of(fronts), retry_interval_seconds=0.01)
    for alive in range(3):
        streams.make(f"s{alive}", b"one", b"two")
        name = f"{streams.bucket}/s{alive}"
        others = [front for at, front in enumerate(fronts) if at != alive]
        others[0].kill()
        others[1].mode = "refuse"
        with Link(pickle.loads(pickle.dumps(settings))) as link:
            incarnation = link.describe([name])["incarnation"][0].as_py()
            with link.scan([ScanRange(name, incarnation, 0, 99)]) as batches:
                assert pa.Table.from_batches(batches)["payload"].to_pylist() == [b"one", b"two"]
            link.publish_snapshot(name, 3, b"state", "text/plain")
            snapshot = link.snapshot(name)
            assert snapshot is not None and snapshot.data == b"state"
        others[0].revive()
        others[1].mode = "open"


def test_a_link_says_that_all_nodes_failed(fronts: list[Front]) -> None:
    for front in fronts:
        front.kill()
    settings = LinkSettings(urls_of(fronts), retries=1, retry_interval_seconds=0.01)
    with Link(settings) as link, pytest.raises(LinkFailed, match=r"; all 3 URLs failed\.$"):
        link.log_id()


def test_a_scan_that_breaks_with_its_node_is_taken_up_at_another(fronts: list[Front], streams: Streams) -> None:
    # More than the buffers on the way hold.
    streams.make("s", *[b"x" * 1_000_000] * 40)
    name = f"{streams.bucket}/s"
    with Link(LinkSettings(urls_of(fronts), retry_interval_seconds=0.01)) as link:
        incarnation = link.describe([name])["incarnation"][0].as_py()
        ranges = [ScanRange(name, incarnation, 0, 2**40)]
        (used,) = [front for front in fronts if front.connections]
        with pytest.raises(ScanBroken), link.scan(ranges) as batches:
            next(iter(batches))
            used.kill()
            list(batches)
        with link.scan(ranges) as batches:
            assert sum(batch.num_rows for batch in batches) == 40


def test_a_query_copies_streams_while_a_node_is_dead(
    spark: SparkSession, fronts: list[Front], streams: Streams
) -> None:
    for name in ("a", "b", "c"):
        streams.make(name, b"one", b"two")
    fronts[1].kill()
    options = {"url": urls_of(fronts), "retryIntervalMs": "10"}
    rows = spark.read.format("headwater").options(**options, bucket=streams.bucket, via="live").load()
    found = rows.select("stream", "offset", "payload").withColumnRenamed("payload", "value")
    copy = f"{streams.bucket}-copy"
    found.write.format("headwater").options(**options, bucket=copy, orderColumn="offset").mode("append").save()
    copied = spark.read.format("headwater").options(**options, bucket=copy, via="live").load()
    assert sorted((row["stream"], bytes(row["payload"])) for row in copied.collect()) == [
        (name, payload) for name in ("a", "b", "c") for payload in (b"one", b"two")
    ]
