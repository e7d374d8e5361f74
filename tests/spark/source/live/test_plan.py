"""Planning a live read: the right ranges of the right streams, packed evenly."""

import pickle
from itertools import pairwise

import pyarrow as pa
import pytest

from headwater.lake.scanning import EVER
from headwater.spark.options.source import DataLost, SourceOptions, parse_source
from headwater.spark.source.filters import Bounds, Conditions
from headwater.spark.source.live.reader import (
    STREAM_BYTES,
    LiveRange,
    LiveRefused,
    StreamDescription,
    batch_ranges,
    pack_ranges,
    selected,
)


def options(**given: str) -> SourceOptions:
    chosen = given if {"bucket", "prefix", "streams"} & given.keys() else {"streamsPattern": ".*", **given}
    return parse_source({"url": "http://127.0.0.1:1", **chosen})


def described(start: int = 0, tail: int = 100, snapshot: int | None = None) -> StreamDescription:
    return StreamDescription(7, start, tail, 0, 10, snapshot)


def ranges(known: dict[str, StreamDescription], **given: str) -> list[tuple[str, int, int]]:
    return [(one.stream, one.start, one.end) for one in batch_ranges(options(**given), known)]


# -- Which ranges ------------------------------------------------------------------------------------------------------


def test_a_batch_reads_all_there_is() -> None:
    streams = {"a/x": described(), "a/y": described(40, 60), "a/z": described(5, 5)}
    assert ranges(streams) == [("a/x", 0, 100), ("a/y", 40, 60)]


def test_offsets_are_taken_stream_by_stream() -> None:
    streams = {"a/x": described(), "a/y": described(), "a/z": described()}
    starting = '{"a/x": 30, "a/y": "latest"}'
    assert ranges(streams, startingOffsets=starting) == [("a/x", 30, 100), ("a/z", 0, 100)]
    ending = '{"a/x": 30, "a/y": "earliest", "a/z": 900}'
    assert ranges(streams, endingOffsets=ending) == [("a/x", 0, 30), ("a/z", 0, 100)]


def test_an_offset_after_the_end_is_refused() -> None:
    with pytest.raises(DataLost, match="ends at offset 100, before 101"):
        ranges({"a/x": described()}, startingOffsets='{"a/x": 101}')


def test_a_trimmed_offset_fails_is_skipped_or_bootstraps() -> None:
    streams = {"a/x": described(50, 100, 60)}
    starting = '{"a/x": 20}'
    with pytest.raises(DataLost, match=r"trimmed up to offset 50, but was read only up to 20.*onTrimmed"):
        ranges(streams, startingOffsets=starting)
    assert ranges(streams, startingOffsets=starting, onTrimmed="skip") == [("a/x", 50, 100)]
    [one] = batch_ranges(options(startingOffsets=starting, onTrimmed="bootstrap"), streams)
    assert one == LiveRange("a/x", 7, 60, 100, bootstraps=True)


def test_reading_a_trimmed_stream_from_its_earliest_message_is_not_a_loss_and_may_bootstrap() -> None:
    streams = {
        "a/w": described(50, 50, 50),
        "a/x": described(50, 100, 50),
        "a/y": described(0, 100, 30),
        "a/z": described(50, 100),
    }
    assert ranges(streams) == [("a/x", 50, 100), ("a/y", 0, 100), ("a/z", 50, 100)]
    found = batch_ranges(options(onTrimmed="bootstrap"), streams)
    assert [(one.stream, one.start, one.bootstraps) for one in found] == [
        ("a/w", 50, True),
        ("a/x", 50, True),
        ("a/y", 0, False),
        ("a/z", 50, False),
    ]


def test_a_named_stream_must_exist() -> None:
    with pytest.raises(DataLost, match="no stream 'a/y'"):
        ranges({"a/x": described()}, streams="a/x,a/y")
    assert ranges({"a/x": described()}, streams="a/x,a/y", failOnDataLoss="false") == [("a/x", 0, 100)]


def test_pushed_filters_skip_streams_and_bytes() -> None:
    streams = {"a/x": described(), "a/y": described(), "b/x": described()}
    pushed = Conditions(
        strings=(("bucket", frozenset({"a"})),), prefixes=(("stream", "x"),), bounds=(("offset", Bounds(10, 20)),)
    )
    found = batch_ranges(options(), streams, pushed)
    assert [(one.stream, one.start, one.end) for one in found] == [("a/x", 10, 21)]


# -- How they are packed -----------------------------------------------------------------------------------------------


def test_small_streams_share_a_partition_and_large_ones_are_cut_at_any_byte() -> None:
    small = [LiveRange(f"a/{number}", 1, 0, 10) for number in range(8)]
    large = LiveRange("b/x", 1, 5, 5005)
    partitions = pack_ranges(options(maxBytesPerPartition="1000"), [*small, large], 3, None)
    assert [len(partition.ranges) for partition in partitions] == [4, 4, 1, 1, 1, 1, 1, 1]
    cut = [partition.ranges[0] for partition in partitions[2:]]
    assert cut[0].start == 5 and cut[-1].end == 5005
    assert all(before.end == after.start for before, after in pairwise(cut))
    assert {(partition.since, partition.until) for partition in partitions} == {(3, None)}
    assert pickle.loads(pickle.dumps(partitions)) == partitions


def test_a_range_with_a_snapshot_is_not_cut() -> None:
    one = LiveRange("b/x", 1, 5, 5005, bootstraps=True)
    assert [partition.ranges for partition in pack_ranges(options(maxBytesPerPartition="1000"), [one], None, None)] == [
        (one,)
    ]


def test_there_are_at_least_as_many_partitions_as_the_option_says() -> None:
    streams = [LiveRange(f"a/{number}", 1, 0, 1000) for number in range(3)]
    assert len(pack_ranges(options(), streams, None, None)) == 1
    assert len(pack_ranges(options(minPartitions="3"), streams, None, None)) >= 3
    assert len(pack_ranges(options(minPartitions="6"), streams, None, None)) >= 6
    assert pack_ranges(options(), [], None, None) == []


def test_no_byte_is_lost_however_small_partitions_are() -> None:
    streams = [LiveRange("a/x", 1, 0, 3), LiveRange("a/y", 1, 0, STREAM_BYTES * 7)]
    partitions = pack_ranges(options(maxBytesPerPartition="1"), streams, None, None)
    covered = [
        (one.stream, byte) for partition in partitions for one in partition.ranges for byte in range(one.start, one.end)
    ]
    assert covered == [(one.stream, byte) for one in streams for byte in range(one.end)]


# -- Which streams -----------------------------------------------------------------------------------------------------


def page(*names: str) -> pa.Table:
    columns = {"stream": list(names)} | {field: [0] * len(names) for field in StreamDescription._fields}
    return pa.table(columns)


def test_streams_are_chosen_by_name_prefix_and_pattern() -> None:
    pages = [page("a/x", "a/y"), page("b/x")]
    assert list(selected(pages, options().selection)) == ["a/x", "a/y", "b/x"]
    assert list(selected(pages, options(bucket="a", streamsPattern="x").selection)) == ["a/x"]
    assert list(selected(pages, options(streams="b/x").selection)) == ["b/x"]


def test_too_many_streams_are_refused() -> None:
    assert len(selected([page("a/x", "a/y")], options().selection, streams_max=2)) == 2
    with pytest.raises(LiveRefused, match=r"More than 2 streams .* via=lake"):
        selected([page("a/x", "a/y"), page("b/x")], options().selection, streams_max=2)
    assert Bounds().high == EVER
