"""Streaming from the lake: nothing twice, nothing missed, and the same batch again, whatever happens in between."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.protocol.limits import CONSUMER_IDLE_US
from headwater.spark.source.lake import stream as lake_stream
from headwater.spark.source.lake.admission import UNLIMITED, Limits
from headwater.spark.source.lake.plan import LakeUnusable
from headwater.spark.source.lake.stream import LakeOffset, LakeStream, parse_offset
from headwater.spark.source.losses import DataLost
from headwater.streams.commands import Delete, DropConsumer

from ....node.lake.small_lake import Chance
from .small_lakes import Row, SmallLake, opened, options, rows, small_lake, stored, tables

__all__ = ["small_lake"]

SEEDS = st.integers(0, 2**32)


class Clock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def stream(lake: SmallLake, clock: Clock | None = None, **given: str) -> LakeStream:
    return LakeStream(options(flushInterval="0s", **given), lake.link, lake.store, clock or Clock())


def read(lake: SmallLake, one: LakeStream, start: dict[str, Any], end: dict[str, Any]) -> list[Row]:
    # Spark keeps offsets as JSON.
    return rows(tables(one.plan(json.loads(json.dumps(start)), json.loads(json.dumps(end)))))


def batches(lake: SmallLake, one: LakeStream, start: dict[str, Any], limits: Limits = UNLIMITED) -> Iterator[list[Row]]:
    """Batch after batch until nothing is new, each committed when the next one is asked for."""
    while (end := one.latest(start, limits)) != start:
        yield read(lake, one, start, end)
        one.commit(end)
        start = end


def readers(lake: SmallLake) -> dict[str, int]:
    return {name: reader.position for name, reader in lake.state.cold.consumers.items()}


# -- Offsets -----------------------------------------------------------------------------------------------------------


def test_an_offset_is_small_canonical_and_says_where_the_query_began(small_lake: SmallLake) -> None:
    small_lake.append("a/x", b"1")
    one = stream(small_lake, startingOffsets="earliest", readerName="nightly")
    start = one.initial()
    end = one.latest(start)
    assert json.dumps(end) == json.dumps(end, sort_keys=True)
    assert end == {
        "beginning": {"dropped": 0, "shards": {"0": 0}, "since": None, "until": None},
        "reader": "nightly",
        "shards": {"0": small_lake.state.position},
        "v": 1,
    }
    assert parse_offset(end).plain == end


def test_nothing_new_is_the_same_offset_however_often_one_looks(small_lake: SmallLake) -> None:
    small_lake.append("a/x", b"1")
    one = stream(small_lake, startingOffsets="earliest")
    end = one.latest(one.initial())
    for _ in range(3):
        one.commit(end)
        assert json.dumps(one.latest(end)) == json.dumps(end), "that a reader is registered is no news"


@pytest.mark.parametrize("plain", [{}, {"s": {}, "v": 1}, {"v": 2}, {"beginning": None, "reader": "x", "v": 1}])
def test_an_offset_of_something_else_is_refused(plain: dict[str, Any]) -> None:
    with pytest.raises(LakeUnusable, match="not of a query on the lake"):
        parse_offset(plain)


def test_a_query_starts_at_the_end_unless_it_is_told_where(small_lake: SmallLake) -> None:
    small_lake.append("a/x", b"old")
    late = stream(small_lake)
    start = late.initial()
    small_lake.append("a/x", b"new")
    assert [[row[-1] for row in batch] for batch in batches(small_lake, late, start)] == [[b"new"]]
    early = stream(small_lake, startingOffsets="earliest")
    assert [[row[-1] for row in batch] for batch in batches(small_lake, early, early.initial())] == [[b"old", b"new"]]
    position = start["shards"]["0"]
    given = stream(small_lake, startingOffsets=json.dumps({"shards": {"0": position}}))
    assert [[row[-1] for row in batch] for batch in batches(small_lake, given, given.initial())] == [[b"new"]]


def test_times_are_kept_from_the_beginning_on(small_lake: SmallLake) -> None:
    small_lake.append("a/x", b"old")
    small_lake.now += 5_000_000
    small_lake.append("a/x", b"new")
    asked = str(small_lake.now // 1000)
    first = stream(small_lake, startingTimestamp=asked)
    start = first.initial()
    end = first.latest(start)
    assert [row[-1] for row in read(small_lake, first, start, end)] == [b"new"]
    again = stream(small_lake, startingTimestamp="0")
    assert [row[-1] for row in read(small_lake, again, again.initial(), end)] == [b"new"]


# -- Whatever happens --------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=15)
@given(SEEDS, st.sampled_from([UNLIMITED, Limits(bytes_max=20), Limits(records_max=3)]))
def test_every_row_comes_once_and_a_batch_is_the_same_again(seed: int, limits: Limits) -> None:
    with pytest.MonkeyPatch.context() as patch:
        lake = opened(SmallLake(), patch)
        chance = Chance(lake, seed)
        chance._read = lambda: None  # type: ignore[method-assign]
        for _ in range(chance.random.randint(0, 20)):
            chance.act()
        lake.compact()
        one = stream(lake, startingOffsets="earliest")
        start = one.initial()
        seen: list[Row] = []
        expected: set[Row] = set()
        for _ in range(5):
            end = one.latest(start, limits)
            expected |= set(stored(lake))
            batch = read(lake, one, start, end)
            for _ in range(chance.random.randint(0, 15)):
                chance.act()
            lake.compact(chance.random.randint(0, 3))
            lake.catalog()
            anew = stream(lake, startingOffsets=chance.random.choice(["earliest", "latest"]))
            assert read(lake, anew, start, end) == batch, "another driver reads the same batch again"
            assert read(lake, one, start, end) == batch
            seen += batch
            one.commit(end)
            start = end
        for batch in batches(lake, one, start, limits):
            expected |= set(stored(lake))
            seen += batch
        assert len(seen) == len(set(seen))
        assert set(seen) == expected


def test_a_crash_in_the_first_batch_repeats_it_though_latest_is_another_place_by_then(small_lake: SmallLake) -> None:
    small_lake.append("a/x", b"before")
    first = stream(small_lake)
    start = first.initial()
    small_lake.append("a/x", b"in the batch")
    end = first.latest(start)
    batch = read(small_lake, first, start, end)
    small_lake.append("a/x", b"after")
    restarted = stream(small_lake)
    anew = restarted.initial()
    assert anew != start
    assert read(small_lake, restarted, anew, end) == batch and [row[-1] for row in batch] == [b"in the batch"]
    assert readers(small_lake) == {end["reader"]: start["shards"]["0"]}, "only the first one is registered, and held"


# -- The registered reader ---------------------------------------------------------------------------------------------


def test_a_query_registers_before_it_reads_and_moves_on_with_each_commit(small_lake: SmallLake) -> None:
    small_lake.append("a/x", b"1")
    one = stream(small_lake, startingOffsets="earliest", readerName="nightly")
    start = one.initial()
    assert readers(small_lake) == {}
    end = one.latest(start)
    assert readers(small_lake) == {"nightly": 0}
    one.plan(start, end)
    assert readers(small_lake) == {"nightly": 0}
    one.commit(end)
    assert readers(small_lake) == {"nightly": end["shards"]["0"]}


def test_a_quiet_query_says_that_it_is_still_there(small_lake: SmallLake) -> None:
    clock = Clock()
    small_lake.append("a/x", b"1")
    one = stream(small_lake, clock, startingOffsets="earliest", readerName="nightly")
    end = one.latest(one.initial())
    one.commit(end)
    before = small_lake.state.cold.consumers["nightly"].at
    small_lake.now += 5_000_000
    assert one.latest(end) == end
    assert small_lake.state.cold.consumers["nightly"].at == before
    clock.now += lake_stream.REGISTER_SECONDS
    assert one.latest(end) == end
    assert small_lake.state.cold.consumers["nightly"].at > before


def test_a_query_whose_streams_are_quiet_lets_go_of_what_others_write(small_lake: SmallLake) -> None:
    clock = Clock()
    small_lake.append("a/x", b"1")
    one = stream(small_lake, clock, prefix="a/", startingOffsets="earliest", readerName="nightly")
    end = one.latest(one.initial())
    one.commit(end)
    small_lake.append("b/x", b"others")
    assert one.latest(end) == end, "there is nothing for it"
    clock.now += lake_stream.REGISTER_SECONDS
    later = one.latest(end)
    assert later["shards"]["0"] > end["shards"]["0"]
    assert read(small_lake, one, end, later) == []
    one.commit(later)
    assert readers(small_lake) == {"nightly": later["shards"]["0"]}


def dropped_behind(lake: SmallLake, one: LakeStream) -> tuple[dict[str, Any], dict[str, Any]]:
    """A batch whose dead rows were dropped because the reader was forgotten."""
    lake.append("a/x", b"1")
    start = one.latest(one.initial())
    one.commit(start)
    lake.append("a/y", b"2")
    end = one.latest(start)
    lake.do(DropConsumer("nightly"))
    lake.do(Delete("a/y"))
    assert lake.compact()
    lake.catalog()
    return start, end


def test_a_batch_whose_rows_were_dropped_fails(small_lake: SmallLake) -> None:
    one = stream(small_lake, startingOffsets="earliest", readerName="nightly")
    start, end = dropped_behind(small_lake, one)
    with pytest.raises(DataLost, match=r"'nightly' has read up to \d+ only.*failOnDataLoss=false"):
        one.plan(start, end)


def test_a_batch_whose_rows_were_dropped_goes_on_without_them_if_it_may(
    small_lake: SmallLake, caplog: pytest.LogCaptureFixture
) -> None:
    one = stream(small_lake, startingOffsets="earliest", readerName="nightly", failOnDataLoss="false")
    start, end = dropped_behind(small_lake, one)
    assert read(small_lake, one, start, end) == []
    assert "were dropped from the lake" in caplog.text


def test_what_was_dropped_before_a_query_began_is_not_missed(small_lake: SmallLake) -> None:
    small_lake.append("a/x", b"1")
    small_lake.append("a/y", b"2")
    small_lake.flush()
    small_lake.do(Delete("a/y"))
    small_lake.compact()
    small_lake.append("a/z", b"3")
    one = stream(small_lake, startingOffsets="earliest", maxRecordsPerTrigger="1")
    found = [[row[-1] for row in batch] for batch in batches(small_lake, one, one.initial(), Limits(records_max=1))]
    assert found in ([[b"1"], [b"3"]], [[b"1"], [b"2"], [b"3"]])


def lapsed(lake: SmallLake) -> tuple[dict[str, Any], dict[str, Any]]:
    """A batch of a query that was not heard of for too long, and before that nothing of it was dropped.

    Something was dropped before the query began, so that later drops below that position leave no trace.
    """
    for name in ("a/w", "a/x", "a/y", "a/z"):
        lake.append(name, b"1")
        lake.flush()
    lake.do(Delete("a/y"))
    assert lake.compact()
    one = stream(lake, startingOffsets="earliest", readerName="nightly")
    start = one.latest(one.initial(), Limits(records_max=1))
    end = one.latest(start, Limits(records_max=1))
    assert start["beginning"]["dropped"] > end["shards"]["0"]
    stream(lake).plan(start, end)
    lake.now += CONSUMER_IDLE_US + 1
    return start, end


def test_a_query_that_was_not_registered_all_the_time_cannot_tell_what_it_missed(small_lake: SmallLake) -> None:
    start, end = lapsed(small_lake)
    with pytest.raises(DataLost, match="not heard of for too long"):
        stream(small_lake).plan(start, end)
    small_lake.do(DropConsumer("nightly"))
    with pytest.raises(DataLost, match="not heard of for too long"):
        stream(small_lake).plan(start, end)


def test_a_query_that_lapsed_fails_whenever_it_is_started_until_it_may_go_on(
    small_lake: SmallLake, caplog: pytest.LogCaptureFixture
) -> None:
    start, end = lapsed(small_lake)
    for _ in range(2):
        one = stream(small_lake)
        for _ in range(2):
            with pytest.raises(DataLost, match="not heard of for too long"):
                one.latest(start)
            with pytest.raises(DataLost, match="not heard of for too long"):
                one.plan(start, end)
    assert readers(small_lake) == {}
    lenient = stream(small_lake, failOnDataLoss="false")
    assert [len(batch) for batch in batches(small_lake, lenient, start)] == [2]
    assert "were dropped from the lake" in caplog.text
    assert readers(small_lake)["nightly"] > end["shards"]["0"]


def away(lake: SmallLake) -> dict[str, Any]:
    """Where a query stopped that has not been heard of for too long; `a/y` was written after that."""
    lake.append("a/x", b"1")
    one = stream(lake, startingOffsets="earliest", readerName="nightly")
    start = one.latest(one.initial())
    one.commit(start)
    lake.append("a/y", b"2")
    lake.flush()
    lake.now += CONSUMER_IDLE_US + 1
    return start


def test_a_query_that_lapsed_fails_also_where_nothing_is_left_to_read(small_lake: SmallLake) -> None:
    start = away(small_lake)
    small_lake.do(Delete("a/y"))
    assert small_lake.compact()
    for _ in range(2):
        with pytest.raises(DataLost, match="not heard of for too long"):
            stream(small_lake).latest(start)


def test_what_is_dropped_while_a_query_that_lapsed_registers_is_noticed(
    small_lake: SmallLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = away(small_lake)
    late = stream(small_lake)
    register = late._register

    def after_a_drop(offset: LakeOffset) -> None:
        small_lake.do(Delete("a/y"))
        assert small_lake.compact()
        small_lake.catalog()
        register(offset)

    monkeypatch.setattr(late, "_register", after_a_drop)
    for one in (late, stream(small_lake)):
        with pytest.raises(DataLost, match="not heard of for too long"):
            one.latest(start)
    assert readers(small_lake) == {}


def test_a_query_that_lapsed_and_lost_nothing_goes_on(small_lake: SmallLake) -> None:
    start = away(small_lake)
    for _ in range(2):
        late = stream(small_lake)
        assert [row[-1] for row in read(small_lake, late, start, late.latest(start))] == [b"2"]
    assert readers(small_lake) == {"nightly": start["shards"]["0"]}


# -- Triggers ----------------------------------------------------------------------------------------------------------


def test_a_trigger_that_ends_reads_what_there_was_when_it_began(small_lake: SmallLake) -> None:
    small_lake.append("a/x", b"1")
    small_lake.append("a/x", b"2")
    one = stream(small_lake, startingOffsets="earliest")
    one.prepare()
    start = one.initial()
    small_lake.append("a/x", b"3")
    found = [[row[-1] for row in batch] for batch in batches(small_lake, one, start, Limits(records_max=1))]
    assert found == [[b"1"], [b"2"]]


def test_a_trigger_that_ends_begins_at_its_end_if_it_starts_at_the_latest(small_lake: SmallLake) -> None:
    small_lake.append("a/x", b"1")
    one = stream(small_lake)
    one.prepare()
    small_lake.append("a/x", b"2")
    start = one.initial()
    end = one.latest(start)
    assert one.plan(start, end) == []
    small_lake.append("a/x", b"3")
    following = stream(small_lake)
    following.prepare()
    found = [[row[-1] for row in batch] for batch in batches(small_lake, following, end)]
    assert found == [[b"2", b"3"]]


def test_a_flush_is_forced_only_now_and_then(small_lake: SmallLake) -> None:
    clock = Clock()
    one = LakeStream(options(startingOffsets="earliest"), small_lake.link, small_lake.store, clock)
    small_lake.append("a/x", b"1")
    end = one.latest(one.initial())
    small_lake.append("a/x", b"2")
    assert one.latest(end) == end
    small_lake.flush()
    small_lake.catalog()
    by_others = one.latest(end)
    assert by_others != end, "what others flushed is there to be read"
    small_lake.append("a/x", b"3")
    clock.now += 10.0
    assert one.latest(by_others) != by_others


def test_a_report_says_how_far_there_is_something(small_lake: SmallLake) -> None:
    one = stream(small_lake, startingOffsets="earliest")
    assert one.report() is None
    small_lake.append("a/x", b"1")
    end = one.latest(one.initial(), Limits(records_max=1))
    assert one.report() == {"shards": {"0": end["shards"]["0"]}, "v": 1}
