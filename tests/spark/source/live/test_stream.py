"""Streaming from live streams of a real server: every new message once, whatever happens to the streams."""

import json
from typing import Any

import pytest

from headwater.spark.link import Link
from headwater.spark.options.source import DataLost
from headwater.spark.source.live.reader import LiveRefused
from headwater.spark.source.live.stream import parse_offset
from headwater.spark.source.portions import TriggerLimits

from ...streams import Streams
from .live_queries import LiveQuery

# -- Offsets -----------------------------------------------------------------------------------------------------------


def test_an_offset_has_an_entry_for_each_stream_in_order(link: Link, streams: Streams) -> None:
    streams.make("y", b"1")
    streams.make("x", b"22")
    query = LiveQuery(link, streams.bucket, startingOffsets="earliest")
    start = query.stream.initial()
    assert start == {"beginning": {}, "log": link.log_id(), "s": {}, "v": 2}
    end = query.stream.latest(start)
    known = {name: streams.bucket + "/" + name for name in ("x", "y")}
    incarnations = link.describe(list(known.values()))["incarnation"].to_pylist()
    assert end["s"] == {known["x"]: [incarnations[0], 2], known["y"]: [incarnations[1], 1]}
    assert json.dumps(end) == json.dumps(end, sort_keys=True)
    assert end["beginning"] == {}
    streams.append("x", b"3")
    assert "beginning" not in query.stream.latest(end), "it matters in the first batch only"
    assert parse_offset(end).plain == end
    assert query.stream.report() == query.stream.latest(end)


def test_the_offset_stays_the_same_while_nothing_is_new(link: Link, streams: Streams) -> None:
    streams.make("x", b"1")
    streams.make("empty")
    query = LiveQuery(link, streams.bucket, startingOffsets="earliest")
    end = query.stream.latest(query.stream.initial())
    assert json.dumps(query.stream.latest(end)) == json.dumps(end)
    assert query.stream.plan(end, end) == []


@pytest.mark.parametrize("plain", [{}, {"shards": {"0": 1}, "v": 2}, {"v": 1, "s": {}}, {"v": 2, "s": {"a/x": [1]}}])
def test_an_offset_of_another_kind_is_refused(plain: dict[str, Any]) -> None:
    with pytest.raises(LiveRefused, match="does not belong to a live query"):
        parse_offset(plain)


def test_a_query_starts_at_the_end_and_new_streams_at_their_beginning(link: Link, streams: Streams) -> None:
    streams.make("x", b"old")
    query = LiveQuery(link, streams.bucket)
    start = query.stream.initial()
    streams.append("x", b"new")
    streams.make("y", b"first")
    assert list(query.batches(start)) == [[("x", b"new"), ("y", b"first")]]


def test_a_query_starts_at_given_offsets(link: Link, streams: Streams) -> None:
    streams.make("x", b"one", b"two")
    streams.make("y", b"one", b"two")
    query = LiveQuery(link, streams.bucket, startingOffsets='{"x": 3, "z": 7}')
    assert list(query.batches(query.stream.initial())) == [[("x", b"two"), ("y", b"one"), ("y", b"two")]]


def test_times_are_in_every_offset(link: Link, streams: Streams) -> None:
    streams.make("x", b"one")
    query = LiveQuery(link, streams.bucket, startingTimestamp="2100-01-01", endingTimestamp="2101-01-01")
    start = query.stream.initial()
    end = query.stream.latest(start)
    assert end["t"] == [4102444800000000, 4133980800000000]
    assert query.batch(start, end) == []
    streams.append("x", b"two")
    again = LiveQuery(link, streams.bucket, startingTimestamp="0")
    assert again.batch(end, again.stream.latest(end)) == [], "the times are those of the beginning"


def test_a_crash_in_the_first_batch_repeats_it_although_latest_has_moved(link: Link, streams: Streams) -> None:
    streams.make("x", b"before")
    query = LiveQuery(link, streams.bucket)
    start = query.stream.initial()
    streams.append("x", b"in the batch")
    end = query.stream.latest(start)
    streams.append("x", b"after")
    restarted = LiveQuery(link, streams.bucket)
    assert restarted.batch(restarted.stream.initial(), end) == [("x", b"in the batch")]
    assert list(restarted.batches(end)) == [[("x", b"after")]]


def test_an_available_now_trigger_reads_what_existed_when_it_started(link: Link, streams: Streams) -> None:
    streams.make("x", b"1", b"2")
    query = LiveQuery(link, streams.bucket, startingOffsets="earliest")
    query.stream.prepare()
    start = query.stream.initial()
    streams.append("x", b"3")
    streams.make("y", b"4")
    assert list(query.batches(start, TriggerLimits(records_max=1))) == [[("x", b"1")], [("x", b"2")]]


# -- What happens to streams -------------------------------------------------------------------------------------------


def begun(link: Link, streams: Streams, **given: str) -> tuple[LiveQuery, dict[str, Any]]:
    """A query that has read a stream of three bytes, and another one."""
    streams.make("x", b"one")
    streams.make("y", b"1")
    query = LiveQuery(link, streams.bucket, startingOffsets="earliest", **given)
    return query, query.stream.latest(query.stream.initial())


def test_a_deleted_stream_fails_the_query_or_is_left_out(link: Link, streams: Streams) -> None:
    query, end = begun(link, streams)
    streams.stream("x").delete()
    with pytest.raises(DataLost, match=r"/x' no longer exists.*failOnDataLoss=false"):
        query.stream.latest(end)
    lenient = LiveQuery(link, streams.bucket, failOnDataLoss="false")
    streams.append("y", b"2")
    later = lenient.stream.latest(end)
    assert lenient.batch(end, later) == [("y", b"2")]
    assert list(later["s"]) == [f"{streams.bucket}/y"]


def test_a_recreated_stream_fails_the_query_or_is_read_from_its_beginning(link: Link, streams: Streams) -> None:
    query, end = begun(link, streams)
    streams.stream("x").delete()
    streams.make("x", b"another")
    with pytest.raises(DataLost, match="/x' was deleted and created again"):
        query.stream.latest(end)
    lenient = LiveQuery(link, streams.bucket, failOnDataLoss="false")
    assert list(lenient.batches(end)) == [[("x", b"another")]]


def test_a_stream_deleted_between_planning_and_reading_fails_the_batch_or_is_left_out(
    link: Link, streams: Streams
) -> None:
    streams.make("x", b"one")
    streams.make("y", b"1")
    for given in ({}, {"failOnDataLoss": "false"}):
        query = LiveQuery(link, streams.bucket, startingOffsets="earliest", **given)
        start = query.stream.initial()
        end = query.stream.latest(start)
        partitions = query.stream.plan(start, end)
        streams.stream("x").delete()
        if given:
            assert query.read(partitions) == [("y", b"1")]
            assert query.batch(start, end) == [("y", b"1")]
        else:
            with pytest.raises(DataLost, match="/x' no longer exists"):
                query.read(partitions)
            with pytest.raises(DataLost, match="/x' no longer exists"):
                query.batch(start, end)
            streams.make("x", b"one")


def trimmed(link: Link, streams: Streams, **given: str) -> tuple[LiveQuery, dict[str, Any]]:
    """A query that has read less of a stream than was trimmed since."""
    query, end = begun(link, streams, **given)
    streams.append("x", b"two", b"three")
    streams.trim("x", 6, b"all so far")
    return query, end


def test_a_trim_fails_the_query(link: Link, streams: Streams) -> None:
    query, end = trimmed(link, streams)
    with pytest.raises(DataLost, match="/x' was trimmed up to offset 6, but was read only up to 3"):
        query.stream.latest(end)


def test_a_trim_is_skipped(link: Link, streams: Streams) -> None:
    query, end = trimmed(link, streams, onTrimmed="skip")
    assert list(query.batches(end)) == [[("x", b"three")]]


def test_a_snapshot_replaces_what_was_trimmed(link: Link, streams: Streams) -> None:
    query, end = trimmed(link, streams, onTrimmed="bootstrap")
    assert list(query.batches(end)) == [[("x!", b"all so far"), ("x", b"three")]]
    streams.append("x", b"four")
    later = query.stream.latest(end)
    streams.trim("x", 15, b"and more")
    assert query.batch(end, later) == [("x!", b"and more")], "no message follows it yet"


def test_a_new_stream_begins_with_its_snapshot_if_it_was_trimmed_before(link: Link, streams: Streams) -> None:
    query, end = begun(link, streams, onTrimmed="bootstrap")
    streams.make("z", b"gone", b"kept")
    streams.trim("z", 4, b"was gone")
    streams.make("zz", b"gone")
    streams.trim("zz", 4, b"all of it")
    found = list(query.batches(end))
    assert [sorted(batch) for batch in found] == [[("z", b"kept"), ("z!", b"was gone"), ("zz!", b"all of it")]]


def test_a_trim_between_planning_and_reading(link: Link, streams: Streams) -> None:
    for name, on_trimmed in (("p", "skip"), ("q", "bootstrap"), ("r", "fail")):
        streams.make(name, b"one", b"two")
        query = LiveQuery(link, streams.bucket, streams=name, startingOffsets="earliest", onTrimmed=on_trimmed)
        start = query.stream.initial()
        partitions = query.stream.plan(start, query.stream.latest(start))
        streams.trim(name, 3, b"was one")
        if on_trimmed == "fail":
            with pytest.raises(DataLost, match="trimmed up to offset 3"):
                query.read(partitions)
        else:
            bootstrapped = [("q!", b"was one")] if on_trimmed == "bootstrap" else []
            assert query.read(partitions) == [*bootstrapped, (name, b"two")]
