"""Admission control for live streams: batches are within their limits, and streams take turns."""

from headwater.spark.link import Link
from headwater.spark.source.live.stream import LiveAdmission, Pending
from headwater.spark.source.portions import TriggerLimits

from ...streams import Streams
from .live_queries import LiveQuery


def test_bytes_are_limited_and_streams_take_turns(link: Link, streams: Streams) -> None:
    for name in ("x", "y", "z"):
        streams.make(name, *(b"%s%d" % (name.encode(), number) for number in range(4)))
    query = LiveQuery(link, streams.bucket, startingOffsets="earliest")
    found = list(query.batches(query.stream.initial(), TriggerLimits(bytes_max=6)))
    assert [len(batch) for batch in found] == [3, 3, 3, 3]
    assert [name for name, _ in found[0]] == ["x"] * 3 and [name for name, _ in found[1]] == ["y"] * 3
    for name in ("x", "y", "z"):
        mine = [payload for batch in found for stream, payload in batch if stream == name]
        assert mine == [b"%s%d" % (name.encode(), number) for number in range(4)]


def test_a_message_larger_than_the_limit_is_read_whole_and_once(link: Link, streams: Streams) -> None:
    streams.make("x", b"0123456789", b"ab")
    query = LiveQuery(link, streams.bucket, startingOffsets="earliest")
    found = [batch for batch in query.batches(query.stream.initial(), TriggerLimits(bytes_max=4)) if batch]
    assert found == [[("x", b"0123456789")], [("x", b"ab")]]


def test_records_are_limited_after_a_restart_too(link: Link, streams: Streams) -> None:
    for name in ("x", "y"):
        streams.make(name, *(b"%d" % number * (number + 1) for number in range(9)))
    start = LiveQuery(link, streams.bucket, startingOffsets="earliest").stream.initial()
    sizes, found = [], []
    while True:
        # A new driver, without any caches, for each batch.
        query = LiveQuery(link, streams.bucket)
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
    query = LiveQuery(link, streams.bucket, LiveAdmission(link, streams_max=0), startingOffsets="earliest")
    found = list(query.batches(query.stream.initial(), TriggerLimits(records_max=4)))
    assert [[payload[:1] for _, payload in batch] for batch in found] == [
        [b"0", b"1", b"2", b"3"],
        [b"4", b"5", b"6", b"7"],
        [b"8"],
    ]


def test_records_are_found_when_a_batch_ended_within_a_message(link: Link, streams: Streams) -> None:
    streams.make("x", *(b"%d" % number * 10 for number in range(6)))
    query = LiveQuery(link, streams.bucket, startingOffsets="earliest")
    first = query.stream.latest(query.stream.initial(), TriggerLimits(bytes_max=15))
    assert [payload[:1] for _, payload in query.batch(query.stream.initial(), first)] == [b"0", b"1"]
    second = query.stream.latest(first, TriggerLimits(records_max=3))
    assert [payload[:1] for _, payload in query.batch(first, second)] == [b"2", b"3", b"4"]
