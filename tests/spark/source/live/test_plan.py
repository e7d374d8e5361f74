"""Planning a live read: the right ranges of the right streams, well packed."""

import pickle
from itertools import pairwise

import pyarrow as pa
import pytest

from headwater.lake.scanning import EVER
from headwater.spark.options.reading import SourceOptions, parse_source
from headwater.spark.source.filters import Bounds, Conditions
from headwater.spark.source.live import plan as live_plan
from headwater.spark.source.live.plan import STREAM_BYTES, Known, LiveRange, LiveRefused, batch_ranges, known_of, packed
from headwater.spark.source.losses import DataLost


def options(**given: str) -> SourceOptions:
    chosen = given if {"bucket", "prefix", "streams"} & given.keys() else {"streamsPattern": ".*", **given}
    return parse_source({"url": "http://127.0.0.1:1", **chosen})


def known(start: int = 0, tail: int = 100, snapshot: int | None = None) -> Known:
    return Known(7, start, tail, 0, 10, snapshot)


def ranges(known_streams: dict[str, Known], **given: str) -> list[tuple[str, int, int]]:
    return [(one.stream, one.start, one.end) for one in batch_ranges(options(**given), known_streams)]


# -- Which ranges ------------------------------------------------------------------------------------------------------


def test_a_batch_reads_all_there_is() -> None:
    streams = {"a/x": known(), "a/y": known(40, 60), "a/z": known(5, 5)}
    assert ranges(streams) == [("a/x", 0, 100), ("a/y", 40, 60)]


def test_offsets_are_taken_stream_by_stream() -> None:
    streams = {"a/x": known(), "a/y": known(), "a/z": known()}
    starting = '{"a/x": 30, "a/y": "latest"}'
    assert ranges(streams, startingOffsets=starting) == [("a/x", 30, 100), ("a/z", 0, 100)]
    ending = '{"a/x": 30, "a/y": "earliest", "a/z": 900}'
    assert ranges(streams, endingOffsets=ending) == [("a/x", 0, 30), ("a/z", 0, 100)]


def test_an_offset_behind_the_end_is_refused() -> None:
    with pytest.raises(DataLost, match="ends at 100, before 101"):
        ranges({"a/x": known()}, startingOffsets='{"a/x": 101}')


def test_what_was_trimmed_is_a_failure_or_skipped_or_stood_in_for() -> None:
    streams = {"a/x": known(50, 100, 60)}
    asked = '{"a/x": 20}'
    with pytest.raises(DataLost, match=r"trimmed up to 50 and read up to 20 only.*onTrimmed"):
        ranges(streams, startingOffsets=asked)
    assert ranges(streams, startingOffsets=asked, onTrimmed="skip") == [("a/x", 50, 100)]
    [one] = batch_ranges(options(startingOffsets=asked, onTrimmed="bootstrap"), streams)
    assert one == LiveRange("a/x", 7, 60, 100, bootstraps=True)


def test_the_earliest_of_a_trimmed_stream_is_no_loss_and_may_be_its_snapshot() -> None:
    streams = {"a/w": known(50, 50, 50), "a/x": known(50, 100, 50), "a/y": known(0, 100, 30), "a/z": known(50, 100)}
    assert ranges(streams) == [("a/x", 50, 100), ("a/y", 0, 100), ("a/z", 50, 100)]
    found = batch_ranges(options(onTrimmed="bootstrap"), streams)
    assert [(one.stream, one.start, one.bootstraps) for one in found] == [
        ("a/w", 50, True),
        ("a/x", 50, True),
        ("a/y", 0, False),
        ("a/z", 50, False),
    ]


def test_a_stream_that_is_named_must_be_there() -> None:
    with pytest.raises(DataLost, match="no stream 'a/y'"):
        ranges({"a/x": known()}, streams="a/x,a/y")
    assert ranges({"a/x": known()}, streams="a/x,a/y", failOnDataLoss="false") == [("a/x", 0, 100)]


def test_filters_that_were_pushed_down_spare_streams_and_bytes() -> None:
    streams = {"a/x": known(), "a/y": known(), "b/x": known()}
    given = Conditions(
        words=(("bucket", frozenset({"a"})),), beginnings=(("stream", "x"),), bounds=(("offset", Bounds(10, 20)),)
    )
    found = batch_ranges(options(), streams, given)
    assert [(one.stream, one.start, one.end) for one in found] == [("a/x", 10, 21)]


# -- How they are packed -----------------------------------------------------------------------------------------------


def test_small_streams_share_a_partition_and_large_ones_are_cut_at_any_byte() -> None:
    small = [LiveRange(f"a/{number}", 1, 0, 10) for number in range(8)]
    large = LiveRange("b/x", 1, 5, 5005)
    works = packed(options(maxBytesPerPartition="1000"), [*small, large], 3, None)
    assert [len(work.ranges) for work in works] == [4, 4, 1, 1, 1, 1, 1, 1]
    cut = [work.ranges[0] for work in works[2:]]
    assert cut[0].start == 5 and cut[-1].end == 5005
    assert all(before.end == after.start for before, after in pairwise(cut))
    assert {(work.since, work.until) for work in works} == {(3, None)}
    assert pickle.loads(pickle.dumps(works)) == works


def test_what_begins_with_a_snapshot_is_not_cut() -> None:
    one = LiveRange("b/x", 1, 5, 5005, bootstraps=True)
    assert [work.ranges for work in packed(options(maxBytesPerPartition="1000"), [one], None, None)] == [(one,)]


def test_there_are_as_many_partitions_as_are_asked_for() -> None:
    streams = [LiveRange(f"a/{number}", 1, 0, 1000) for number in range(3)]
    assert len(packed(options(), streams, None, None)) == 1
    assert len(packed(options(minPartitions="3"), streams, None, None)) >= 3
    assert len(packed(options(minPartitions="6"), streams, None, None)) >= 6
    assert packed(options(), [], None, None) == []


def test_no_range_is_lost_however_small_partitions_are() -> None:
    streams = [LiveRange("a/x", 1, 0, 3), LiveRange("a/y", 1, 0, STREAM_BYTES * 7)]
    works = packed(options(maxBytesPerPartition="1"), streams, None, None)
    covered = [(one.stream, byte) for work in works for one in work.ranges for byte in range(one.start, one.end)]
    assert covered == [(one.stream, byte) for one in streams for byte in range(one.end)]


# -- Which streams -----------------------------------------------------------------------------------------------------


def page(*names: str) -> pa.Table:
    columns = {"stream": list(names)} | {field: [0] * len(names) for field in Known._fields}
    return pa.table(columns)


def test_streams_are_chosen_by_name_prefix_and_pattern() -> None:
    pages = [page("a/x", "a/y"), page("b/x")]
    assert list(known_of(pages, options().selection)) == ["a/x", "a/y", "b/x"]
    assert list(known_of(pages, options(bucket="a", streamsPattern="x").selection)) == ["a/x"]
    assert list(known_of(pages, options(streams="b/x").selection)) == ["b/x"]


def test_too_many_streams_are_for_the_lake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_plan, "LIVE_STREAMS_MAX", 2)
    assert len(known_of([page("a/x", "a/y")], options().selection)) == 2
    with pytest.raises(LiveRefused, match=r"More than 2 streams .* via=lake"):
        known_of([page("a/x", "a/y"), page("b/x")], options().selection)
    assert Bounds().high == EVER
