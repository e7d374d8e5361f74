"""The compact job against a real server, whose own compactor runs at the same time."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headwater.lake.catalog import Catalog, read_catalog, read_forks, read_tombstones
from headwater.lake.compaction.planning import Rewrite
from headwater.lake.compaction.rewriting import Cuts, Keep
from headwater.lake.scanning import EVER
from headwater.lake.verify.verifier import Verifier
from headwater.spark.jobs import compact
from headwater.spark.jobs.compact import CompactConfig, Dead, Outcome, Tally, carry_out, lowest_consumer, plan_rewrites
from headwater.spark.jobs.report import JobFailed
from headwater.spark.link import Link, LinkSettings
from headwater.storage.opening import open_store
from headwater.testing import RunningServer, running_server

from ...random_streams import RandomStreams
from ...streams import JSON, Streams, streams_in

CUTS = Cuts(segment_bytes=1 << 20, streams_max=10_000)
TRIES_MAX = 50
"""The server plans rewrites every few seconds, so it cannot be first this many times in a row."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server whose lake no other test changes."""
    with running_server(data=tmp_path_factory.mktemp("compact") / "data") as server:
        yield server
        assert "Traceback" not in server.output()


@pytest.fixture
def link(server: RunningServer) -> Iterator[Link]:
    with Link(LinkSettings(server.url)) as link:
        yield link


@pytest.fixture
def streams(server: RunningServer, bucket: str) -> Iterator[Streams]:
    with streams_in(server, bucket) as streams:
        yield streams


def catalog_of(link: Link) -> Catalog:
    link.flush()
    found = read_catalog(open_store(link.status()["lake"]["url"]))
    assert found is not None
    return found


def problems(link: Link) -> list[str]:
    link.flush()
    return [str(problem) for problem in Verifier(open_store(link.status()["lake"]["url"])).problems()]


def bodies(streams: Streams, chance: RandomStreams) -> dict[str, bytes]:
    """The readable content of every stream, from its snapshot on if it was trimmed.

    Read once: a second read would be served from the page cache, not from the lake.
    """
    found = {}
    for name, life in chance.lives.items():
        stream = streams.stream(name)
        found[name] = stream.read(stream.snapshot().offset) if life.start else stream.read()
    return found


def expected_bodies(chance: RandomStreams) -> dict[str, bytes]:
    found = {}
    for name, life in chance.lives.items():
        payloads = [message.payload for message in life.messages if message.offset >= life.start]
        found[name] = b"[%b]" % b",".join(payloads) if life.content_type == JSON else b"".join(payloads)
    return found


def small_segments(streams: Streams, link: Link, times: int = 4) -> None:
    for number in range(times):
        streams.append("x", b"message %d" % number)
        link.flush()


# -- On Spark ----------------------------------------------------------------------------------------------------------


def test_streams_read_the_same_after_deletes_trims_forks_and_compactions(
    spark: SparkSession, streams: Streams, link: Link
) -> None:
    chance = RandomStreams(streams, seed=11)
    for _ in range(2):
        for _ in range(5):
            chance.act(20)
            link.flush()
        report = compact.run(spark, CompactConfig(link.settings))
        assert report.ok, report.problems
        assert report.facts["left_over"] == 0
        assert problems(link) == []
    assert bodies(streams, chance) == expected_bodies(chance)


def test_a_rewrite_replaces_small_segments(spark: SparkSession, streams: Streams, link: Link) -> None:
    streams.make("x")
    for _ in range(TRIES_MAX):
        small_segments(streams, link)
        facts = compact.run(spark, CompactConfig(link.settings)).facts
        if facts["rewrites"]:
            break
    else:
        raise AssertionError("the server came first every time")
    for fact in ("bytes_read", "bytes_written", "segments_before", "segments_after"):
        count = facts[fact]
        assert isinstance(count, int) and count > 0
    assert problems(link) == []


# -- With a server, without Spark --------------------------------------------------------------------------------------


def test_the_second_swap_of_the_same_segments_is_refused(streams: Streams, link: Link) -> None:
    streams.make("x")
    for _ in range(TRIES_MAX):
        small_segments(streams, link)
        outcomes = swapped_twice(link)
        if outcomes:
            break
    else:
        raise AssertionError("the server came first every time")
    assert outcomes[1].what == "refused", outcomes[1]
    tally = Tally()
    tally.add(outcomes)
    tally.settle(catalog_of(link))
    assert (len(tally.done), tally.refused, tally.problems) == (1, 1, [])
    assert problems(link) == []


def swapped_twice(link: Link) -> list[Outcome]:
    """The outcomes of a rewrite and of its repetition, or none if the server was first."""
    store, catalog, lowest = open_store(link.status()["lake"]["url"]), catalog_of(link), lowest_consumer(link)
    keep = Keep(Dead(read_tombstones(store, catalog), read_forks(store, catalog)).below, lowest)
    for planned in plan_rewrites(catalog, lowest):
        outcome = carry_out(planned, store, keep, CUTS, link.swap)
        if outcome.what == "swapped":
            return [outcome, carry_out(planned, store, keep, CUTS, link.swap)]
    return []


def test_a_rewrite_whose_answer_was_lost_counts_as_done(streams: Streams, link: Link) -> None:
    streams.make("x", b"1")
    catalog, nothing = catalog_of(link), Rewrite("small", ())
    lost = Outcome("refused", nothing, (catalog.segments[0].key,))
    never = Outcome("refused", nothing, (catalog.segments[0].key, "segments/another"))
    tally = Tally()
    tally.add([lost, never])
    tally.settle(catalog)
    assert (tally.done, tally.refused) == ([lost], 1)


def test_the_lowest_registered_consumer_is_found(link: Link) -> None:
    assert lowest_consumer(link) == EVER
    link.register("exports", {"0": 1})
    link.register("others", {"0": 0})
    try:
        assert lowest_consumer(link) == 0
    finally:
        link.forget("others")
        link.forget("exports")


# -- Without a lake ----------------------------------------------------------------------------------------------------


def test_a_server_without_a_lake_is_refused(spark: SparkSession) -> None:
    with running_server() as server, pytest.raises(JobFailed, match="has no lake that Spark can read"):
        compact.run(spark, CompactConfig(LinkSettings(server.url)))


def test_the_lake_of_another_server_is_refused(
    spark: SparkSession, link: Link, streams: Streams, tmp_path: Path
) -> None:
    streams.make("x", b"1")
    with pytest.raises(JobFailed, match="is not the lake of http"):
        compact.run(spark, CompactConfig(link.settings, lake=str(tmp_path)))


def test_an_empty_server_needs_no_rewrites(spark: SparkSession, tmp_path: Path) -> None:
    with running_server(data=tmp_path / "data") as server:
        report = compact.run(spark, CompactConfig(LinkSettings(server.url)))
    assert report.ok
    assert report.facts["rewrites"] == 0
