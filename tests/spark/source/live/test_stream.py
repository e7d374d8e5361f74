"""Streaming from live streams of a real server: every new message once, whatever happens to the streams."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from headwater.client import Client
from headwater.spark.link import Link, LinkSettings
from headwater.spark.options.source import SourceOptions, parse_source
from headwater.spark.schemas import SourceSchema
from headwater.spark.source.data_loss import DataLost
from headwater.spark.source.filters import NO_CONDITIONS
from headwater.spark.source.limits import UNLIMITED, TriggerLimits
from headwater.spark.source.live.admission import LiveAdmission, Pending
from headwater.spark.source.live.plan import LivePartition, LiveRange, LiveRefused
from headwater.spark.source.live.reader import SCAN_RANGES, LiveReader, remaining
from headwater.spark.source.live.stream import LiveStream, parse_offset
from headwater.spark.source.row_query import RowQuery
from headwater.testing import RunningServer

from ...cut_proxy import cut_proxy
from ...streams import Streams

Found = list[tuple[str, bytes]]


class Query:
    """A query on the streams of one bucket, as Spark would run it."""

    def __init__(self, link: Link, bucket: str, admission: LiveAdmission | None = None, /, **given: str) -> None:
        self.options: SourceOptions = parse_source({"url": link.settings.url, "bucket": bucket, "via": "live", **given})
        self.link, self.stream = link, LiveStream(self.options, link, admission)
        self.schema = SourceSchema(self.options)

    def reader(self, scan_ranges: int = SCAN_RANGES) -> LiveReader:
        query = RowQuery(self.schema.sources, self.options.selection, NO_CONDITIONS)
        return LiveReader(self.link, self.options, query, scan_ranges=scan_ranges)

    def read(self, partitions: list[LivePartition], scan_ranges: int = SCAN_RANGES) -> Found:
        reader = self.reader(scan_ranges)
        batches = [batch for partition in partitions for batch in self.schema.batches(reader.read(partition))]
        return [
            (row["stream"] + ("!" if row.get("kind") == "snapshot" else ""), row["payload"])
            for batch in batches
            for row in batch.to_pylist()
        ]

    def batch(self, start: dict[str, Any], end: dict[str, Any]) -> Found:
        # Spark keeps offsets as JSON.
        return self.read(self.stream.plan(json.loads(json.dumps(start)), json.loads(json.dumps(end))))

    def batches(self, start: dict[str, Any], limits: TriggerLimits = UNLIMITED) -> Iterator[Found]:
        while (end := self.stream.latest(start, limits)) != start:
            yield self.batch(start, end)
            start = end


# -- Offsets -----------------------------------------------------------------------------------------------------------


def test_an_offset_has_an_entry_for_each_stream_in_order(link: Link, streams: Streams) -> None:
    streams.make("y", b"1")
    streams.make("x", b"22")
    query = Query(link, streams.bucket, startingOffsets="earliest")
    start = query.stream.initial()
    assert start == {"beginning": {}, "s": {}, "v": 1}
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
    query = Query(link, streams.bucket, startingOffsets="earliest")
    end = query.stream.latest(query.stream.initial())
    assert json.dumps(query.stream.latest(end)) == json.dumps(end)
    assert query.stream.plan(end, end) == []


@pytest.mark.parametrize("plain", [{}, {"shards": {"0": 1}, "v": 1}, {"v": 2, "s": {}}, {"v": 1, "s": {"a/x": [1]}}])
def test_an_offset_of_another_kind_is_refused(plain: dict[str, Any]) -> None:
    with pytest.raises(LiveRefused, match="does not belong to a live query"):
        parse_offset(plain)


def test_a_query_starts_at_the_end_and_new_streams_at_their_beginning(link: Link, streams: Streams) -> None:
    streams.make("x", b"old")
    query = Query(link, streams.bucket)
    start = query.stream.initial()
    streams.append("x", b"new")
    streams.make("y", b"first")
    assert list(query.batches(start)) == [[("x", b"new"), ("y", b"first")]]


def test_a_query_starts_at_given_offsets(link: Link, streams: Streams) -> None:
    streams.make("x", b"one", b"two")
    streams.make("y", b"one", b"two")
    query = Query(link, streams.bucket, startingOffsets='{"x": 3, "z": 7}')
    assert list(query.batches(query.stream.initial())) == [[("x", b"two"), ("y", b"one"), ("y", b"two")]]


def test_times_are_in_every_offset(link: Link, streams: Streams) -> None:
    streams.make("x", b"one")
    query = Query(link, streams.bucket, startingTimestamp="2100-01-01", endingTimestamp="2101-01-01")
    start = query.stream.initial()
    end = query.stream.latest(start)
    assert end["t"] == [4102444800000000, 4133980800000000]
    assert query.batch(start, end) == []
    streams.append("x", b"two")
    again = Query(link, streams.bucket, startingTimestamp="0")
    assert again.batch(end, again.stream.latest(end)) == [], "the times are those of the beginning"


def test_a_crash_in_the_first_batch_repeats_it_although_latest_has_moved(link: Link, streams: Streams) -> None:
    streams.make("x", b"before")
    query = Query(link, streams.bucket)
    start = query.stream.initial()
    streams.append("x", b"in the batch")
    end = query.stream.latest(start)
    streams.append("x", b"after")
    restarted = Query(link, streams.bucket)
    assert restarted.batch(restarted.stream.initial(), end) == [("x", b"in the batch")]
    assert list(restarted.batches(end)) == [[("x", b"after")]]


def test_an_available_now_trigger_reads_what_existed_when_it_started(link: Link, streams: Streams) -> None:
    streams.make("x", b"1", b"2")
    query = Query(link, streams.bucket, startingOffsets="earliest")
    query.stream.prepare()
    start = query.stream.initial()
    streams.append("x", b"3")
    streams.make("y", b"4")
    assert list(query.batches(start, TriggerLimits(records_max=1))) == [[("x", b"1")], [("x", b"2")]]


# -- Limits ------------------------------------------------------------------------------------------------------------


def test_bytes_are_limited_and_streams_take_turns(link: Link, streams: Streams) -> None:
    for name in ("x", "y", "z"):
        streams.make(name, *(b"%s%d" % (name.encode(), number) for number in range(4)))
    query = Query(link, streams.bucket, startingOffsets="earliest")
    found = list(query.batches(query.stream.initial(), TriggerLimits(bytes_max=6)))
    assert [len(batch) for batch in found] == [3, 3, 3, 3]
    assert [name for name, _ in found[0]] == ["x"] * 3 and [name for name, _ in found[1]] == ["y"] * 3
    for name in ("x", "y", "z"):
        mine = [payload for batch in found for stream, payload in batch if stream == name]
        assert mine == [b"%s%d" % (name.encode(), number) for number in range(4)]


def test_a_message_larger_than_the_limit_is_read_whole_and_once(link: Link, streams: Streams) -> None:
    streams.make("x", b"0123456789", b"ab")
    query = Query(link, streams.bucket, startingOffsets="earliest")
    found = [batch for batch in query.batches(query.stream.initial(), TriggerLimits(bytes_max=4)) if batch]
    assert found == [[("x", b"0123456789")], [("x", b"ab")]]


def test_records_are_limited_after_a_restart_too(link: Link, streams: Streams) -> None:
    for name in ("x", "y"):
        streams.make(name, *(b"%d" % number * (number + 1) for number in range(9)))
    start = Query(link, streams.bucket, startingOffsets="earliest").stream.initial()
    sizes, found = [], []
    while True:
        # A new driver, without any caches, for each batch.
        query = Query(link, streams.bucket)
        end = query.stream.latest(start, TriggerLimits(records_max=5))
        if end == start:
            break
        batch = query.batch(start, end)
        sizes.append(len(batch))
        found += batch
        start = end
    assert sizes == [5, 5, 5, 3]
    for name in ("x", "y"):
        assert [payload for stream, payload in found if stream == name] == [b"%d" % n * (n + 1) for n in range(9)]


def test_known_records_of_streams_that_are_gone_are_forgotten(link: Link, streams: Streams) -> None:
    admission = LiveAdmission(link, streams_max=3)
    for number in range(20):
        assert admission.ends([Pending(f"a/{number:02}", 1, 0, 5, 0, 0, 5)], TriggerLimits(records_max=9)) == {
            f"a/{number:02}": 5
        }
        assert len(admission._records) <= 4
    streams.make("x", *(b"%d" % number * (number + 1) for number in range(9)))
    query = Query(link, streams.bucket, LiveAdmission(link, streams_max=0), startingOffsets="earliest")
    found = list(query.batches(query.stream.initial(), TriggerLimits(records_max=4)))
    assert [[payload[:1] for _, payload in batch] for batch in found] == [
        [b"0", b"1", b"2", b"3"],
        [b"4", b"5", b"6", b"7"],
        [b"8"],
    ]


def test_records_are_found_when_a_batch_ended_within_a_message(link: Link, streams: Streams) -> None:
    streams.make("x", *(b"%d" % number * 10 for number in range(6)))
    query = Query(link, streams.bucket, startingOffsets="earliest")
    first = query.stream.latest(query.stream.initial(), TriggerLimits(bytes_max=15))
    assert [payload[:1] for _, payload in query.batch(query.stream.initial(), first)] == [b"0", b"1"]
    second = query.stream.latest(first, TriggerLimits(records_max=3))
    assert [payload[:1] for _, payload in query.batch(first, second)] == [b"2", b"3", b"4"]


# -- What happens to streams -------------------------------------------------------------------------------------------


def begun(link: Link, streams: Streams, **given: str) -> tuple[Query, dict[str, Any]]:
    """A query that has read a stream of three bytes, and another one."""
    streams.make("x", b"one")
    streams.make("y", b"1")
    query = Query(link, streams.bucket, startingOffsets="earliest", **given)
    return query, query.stream.latest(query.stream.initial())


def test_a_deleted_stream_fails_the_query_or_is_left_out(link: Link, streams: Streams) -> None:
    query, end = begun(link, streams)
    streams.stream("x").delete()
    with pytest.raises(DataLost, match=r"/x' no longer exists.*failOnDataLoss=false"):
        query.stream.latest(end)
    lenient = Query(link, streams.bucket, failOnDataLoss="false")
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
    lenient = Query(link, streams.bucket, failOnDataLoss="false")
    assert list(lenient.batches(end)) == [[("x", b"another")]]


def test_a_stream_deleted_between_planning_and_reading_fails_the_batch_or_is_left_out(
    link: Link, streams: Streams
) -> None:
    streams.make("x", b"one")
    streams.make("y", b"1")
    for given in ({}, {"failOnDataLoss": "false"}):
        query = Query(link, streams.bucket, startingOffsets="earliest", **given)
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


def trimmed(link: Link, streams: Streams, **given: str) -> tuple[Query, dict[str, Any]]:
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
        query = Query(link, streams.bucket, streams=name, startingOffsets="earliest", onTrimmed=on_trimmed)
        start = query.stream.initial()
        partitions = query.stream.plan(start, query.stream.latest(start))
        streams.trim(name, 3, b"was one")
        if on_trimmed == "fail":
            with pytest.raises(DataLost, match="trimmed up to offset 3"):
                query.read(partitions)
        else:
            bootstrapped = [("q!", b"was one")] if on_trimmed == "bootstrap" else []
            assert query.read(partitions) == [*bootstrapped, (name, b"two")]


# -- Reading -----------------------------------------------------------------------------------------------------------


def test_what_remains_of_ranges_follows_the_last_row() -> None:
    schema = SourceSchema(parse_source({"url": "http://x", "bucket": "a", "columns": "bucket,stream,offset"}))
    ranges = [LiveRange("a/x", 1, 0, 10), LiveRange("a/y", 1, 0, 10), LiveRange("a/z", 1, 0, 10)]

    def left(name: str, offset: int) -> list[tuple[str, int]]:
        plain = [{"bucket": "a", "stream": name, "offset": offset}]
        found = remaining(ranges, schema.arrow.empty_table().from_pylist(plain, schema.arrow))
        return [(one.stream, one.start) for one in found]

    assert left("x", 4) == [("a/x", 5), ("a/y", 0), ("a/z", 0)]
    assert left("y", 9) == [("a/z", 0)]
    assert left("z", 9) == []


@pytest.mark.parametrize("scan_ranges", [2, 100])
def test_a_scan_that_breaks_off_is_resumed(lake_server: RunningServer, bucket: str, scan_ranges: int) -> None:
    with Client(lake_server.url) as client:
        client.bucket(bucket).create()
        expected = []
        for name in ("a", "b", "c"):
            stream = client.bucket(bucket).stream(name, content_type="text/plain")
            stream.create()
            payloads = [b"%s%04d" % (name.encode(), number) * 400 for number in range(300)]
            stream.append_batch(payloads)
            expected += [(name, payload) for payload in payloads]
    with cut_proxy(lake_server.url) as proxy, Link(LinkSettings(proxy.url, retry_interval_seconds=0.0)) as link:
        query = Query(link, bucket, startingOffsets="earliest")
        start = query.stream.initial()
        partitions = query.stream.plan(start, query.stream.latest(start))
    with cut_proxy(lake_server.url) as proxy, Link(LinkSettings(proxy.url, retry_interval_seconds=0.0)) as link:
        proxy.plan = [500_000, 1, 3_000, 300_000]
        query = Query(link, bucket)
        assert query.read(partitions, scan_ranges) == expected
        assert proxy.cuts >= 3, "whether the last cut is reached depends on the size of batches"


def test_unselected_columns_are_not_fetched(link: Link, streams: Streams) -> None:
    streams.make("x", b"one")
    query = Query(link, streams.bucket, startingOffsets="earliest", columns="record")
    start = query.stream.initial()
    [partition] = query.stream.plan(start, query.stream.latest(start))
    [table] = query.reader().read(partition)
    assert set(table.column_names) == {"record", "bucket", "stream", "offset"}
    [batch] = query.schema.batches(iter([table]))
    assert batch.to_pylist() == [{"record": 0}]
