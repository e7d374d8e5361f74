"""Streaming from the lake: every row once, and batches that can be repeated, whatever happens in between."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.protocol.limits import CONSUMER_IDLE_US
from headwater.spark.source.data_loss import DataLost
from headwater.spark.source.lake import stream as lake_stream
from headwater.spark.source.lake.catalogs import LakeUnusable
from headwater.spark.source.lake.stream import LakeOffset, LakeStream, parse_offset
from headwater.spark.source.limits import UNLIMITED, TriggerLimits
from headwater.streams.commands import Delete, DropConsumer

from ....node.lake.small_lake import Chance
from .small_lakes import Row, SmallLake, opened, options, rows, small_lake, stored, tables

__all__ = ["small_lake"]

SEEDS = st.integers(0, 2**32)


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def stream(lake: SmallLake, clock: Clock | None = None, **given: str) -> LakeStream:
    return LakeStream(options(flushInterval="0s", **given), lake.link, lake.store, clock or Clock())


def read(lake: SmallLake, one: LakeStream, start: dict[str, Any], end: dict[str, Any]) -> list[Row]:
    # Spark keeps offsets as JSON.
    return rows(tables(one.plan(json.loads(json.dumps(start)), json.loads(json.dumps(end)))))


def batches(
    lake: SmallLake, one: LakeStream, start: dict[str, Any], limits: TriggerLimits = UNLIMITED
) -> Iterator[list[Row]]:
    """Batch after batch until nothing is new, each committed before the next."""
    while (end := one.latest(start, limits)) != start:
        yield read(lake, one, start, end)
        one.commit(end)
        start = end


def registered(lake: SmallLake) -> dict[str, int]:
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


def test_the_offset_stays_the_same_while_nothing_is_new(small_lake: SmallLake) -> None:
    small_lake.append("a/x", b"1")
    one = stream(small_lake, startingOffsets="earliest")
    end = one.latest(one.initial())
    for _ in range(3):
        one.commit(end)
        assert json.dumps(one.latest(end)) == json.dumps(end), "a registration is nothing new to read"


@pytest.mark.parametrize("plain", [{}, {"s": {}, "v": 1}, {"v": 2}, {"beginning": None, "reader": "x", "v": 1}])
def test_an_offset_of_another_kind_is_refused(plain: dict[str, Any]) -> None:
    with pytest.raises(LakeUnusable, match="does not belong to a query on the lake"):
        parse_offset(plain)


def test_a_query_starts_at_the_end_by_default(small_lake: SmallLake) -> None:
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


def test_a_query_keeps_the_times_that_it_began_with(small_lake: SmallLake) -> None:
    small_lake.append("a/x", b"old")
    small_lake.now += 5_000_000
    small_lake.append("a/x", b"new")
    since = str(small_lake.now // 1000)
    first = stream(small_lake, startingTimestamp=since)
    start = first.initial()
    end = first.latest(start)
    assert [row[-1] for row in read(small_lake, first, start, end)] == [b"new"]
    again = stream(small_lake, startingTimestamp="0")
    assert [row[-1] for row in read(small_lake, again, again.initial(), end)] == [b"new"]


# -- Every row once ----------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=15)
@given(SEEDS, st.sampled_from([UNLIMITED, TriggerLimits(bytes_max=20), TriggerLimits(records_max=3)]))
def test_every_row_comes_once_and_a_batch_is_the_same_again(seed: int, limits: TriggerLimits) -> None:
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
            again = stream(lake, startingOffsets=chance.random.choice(["earliest", "latest"]))
            assert read(lake, again, start, end) == batch, "another driver reads the same batch"
            assert read(lake, one, start, end) == batch
            seen += batch
            one.commit(end)
            start = end
        for batch in batches(lake, one, start, limits):
            expected |= set(stored(lake))
            seen += batch
        assert len(seen) == len(set(seen))
        assert set(seen) == expected


def test_a_crash_in_the_first_batch_repeats_it_although_latest_has_moved(small_lake: SmallLake) -> None:
    small_lake.append("a/x", b"before")
    first = stream(small_lake)
    start = first.initial()
    small_lake.append("a/x", b"in the batch")
    end = first.latest(start)
    batch = read(small_lake, first, start, end)
    small_lake.append("a/x", b"after")
    restarted = stream(small_lake)
    again = restarted.initial()
    assert again != start
    assert read(small_lake, restarted, again, end) == batch and [row[-1] for row in batch] == [b"in the batch"]
    assert registered(small_lake) == {end["reader"]: start["shards"]["0"]}, "only the first reader is registered"


# -- Registration ------------------------------------------------------------------------------------------------------


def test_a_query_registers_before_it_reads_and_advances_with_each_commit(small_lake: SmallLake) -> None:
    small_lake.append("a/x", b"1")
    one = stream(small_lake, startingOffsets="earliest", readerName="nightly")
    start = one.initial()
    assert registered(small_lake) == {}
    end = one.latest(start)
    assert registered(small_lake) == {"nightly": 0}
    one.plan(start, end)
    assert registered(small_lake) == {"nightly": 0}
    one.commit(end)
    assert registered(small_lake) == {"nightly": end["shards"]["0"]}


def test_an_idle_query_renews_its_registration(small_lake: SmallLake) -> None:
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


def test_a_query_whose_streams_are_idle_releases_rows_of_other_streams(small_lake: SmallLake) -> None:
    clock = Clock()
    small_lake.append("a/x", b"1")
    one = stream(small_lake, clock, prefix="a/", startingOffsets="earliest", readerName="nightly")
    end = one.latest(one.initial())
    one.commit(end)
    small_lake.append("b/x", b"others")
    assert one.latest(end) == end, "none of its streams has new rows"
    clock.now += lake_stream.REGISTER_SECONDS
    later = one.latest(end)
    assert later["shards"]["0"] > end["shards"]["0"]
    assert read(small_lake, one, end, later) == []
    one.commit(later)
    assert registered(small_lake) == {"nightly": later["shards"]["0"]}


def dropped_behind(lake: SmallLake, one: LakeStream) -> tuple[dict[str, Any], dict[str, Any]]:
    """A batch whose dead rows were dropped because the registration was removed."""
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
    with pytest.raises(DataLost, match=r"'nightly' has read only up to \d+.*failOnDataLoss=false"):
        one.plan(start, end)


def test_a_batch_whose_rows_were_dropped_continues_without_them_if_allowed(
    small_lake: SmallLake, caplog: pytest.LogCaptureFixture
) -> None:
    one = stream(small_lake, startingOffsets="earliest", readerName="nightly", failOnDataLoss="false")
    start, end = dropped_behind(small_lake, one)
    assert read(small_lake, one, start, end) == []
    assert "were dropped from the lake" in caplog.text


def test_rows_dropped_before_a_query_began_are_no_loss(small_lake: SmallLake) -> None:
    small_lake.append("a/x", b"1")
    small_lake.append("a/y", b"2")
    small_lake.flush()
    small_lake.do(Delete("a/y"))
    small_lake.compact()
    small_lake.append("a/z", b"3")
    one = stream(small_lake, startingOffsets="earliest", maxRecordsPerTrigger="1")
    found = [
        [row[-1] for row in batch] for batch in batches(small_lake, one, one.initial(), TriggerLimits(records_max=1))
    ]
    assert found in ([[b"1"], [b"3"]], [[b"1"], [b"2"], [b"3"]])


def lapsed(lake: SmallLake) -> tuple[dict[str, Any], dict[str, Any]]:
    """A batch of a query whose registration expired, and before that none of its rows was dropped.

    Something was dropped before the query began, so that later drops below that position leave no trace.
    """
    for name in ("a/w", "a/x", "a/y", "a/z"):
        lake.append(name, b"1")
        lake.flush()
    lake.do(Delete("a/y"))
    assert lake.compact()
    one = stream(lake, startingOffsets="earliest", readerName="nightly")
    start = one.latest(one.initial(), TriggerLimits(records_max=1))
    end = one.latest(start, TriggerLimits(records_max=1))
    assert start["beginning"]["dropped"] > end["shards"]["0"]
    stream(lake).plan(start, end)
    lake.now += CONSUMER_IDLE_US + 1
    return start, end


def test_a_query_whose_registration_lapsed_cannot_tell_what_it_missed(small_lake: SmallLake) -> None:
    start, end = lapsed(small_lake)
    with pytest.raises(DataLost, match="its registration expired"):
        stream(small_lake).plan(start, end)
    small_lake.do(DropConsumer("nightly"))
    with pytest.raises(DataLost, match="its registration expired"):
        stream(small_lake).plan(start, end)


def test_a_query_that_lapsed_fails_at_every_start_until_it_is_allowed_to_continue(
    small_lake: SmallLake, caplog: pytest.LogCaptureFixture
) -> None:
    start, end = lapsed(small_lake)
    for _ in range(2):
        one = stream(small_lake)
        for _ in range(2):
            with pytest.raises(DataLost, match="its registration expired"):
                one.latest(start)
            with pytest.raises(DataLost, match="its registration expired"):
                one.plan(start, end)
    assert registered(small_lake) == {}
    lenient = stream(small_lake, failOnDataLoss="false")
    assert [len(batch) for batch in batches(small_lake, lenient, start)] == [2]
    assert "were dropped from the lake" in caplog.text
    assert registered(small_lake)["nightly"] > end["shards"]["0"]


def expired(lake: SmallLake) -> dict[str, Any]:
    """Where a query stopped whose registration has expired; `a/y` was written after that."""
    lake.append("a/x", b"1")
    one = stream(lake, startingOffsets="earliest", readerName="nightly")
    start = one.latest(one.initial())
    one.commit(start)
    lake.append("a/y", b"2")
    lake.flush()
    lake.now += CONSUMER_IDLE_US + 1
    return start


def test_a_query_that_lapsed_fails_even_if_nothing_is_left_to_read(small_lake: SmallLake) -> None:
    start = expired(small_lake)
    small_lake.do(Delete("a/y"))
    assert small_lake.compact()
    for _ in range(2):
        with pytest.raises(DataLost, match="its registration expired"):
            stream(small_lake).latest(start)


def test_a_drop_while_a_lapsed_query_registers_is_noticed(
    small_lake: SmallLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = expired(small_lake)
    late = stream(small_lake)
    register = late._register

    def after_a_drop(offset: LakeOffset) -> None:
        small_lake.do(Delete("a/y"))
        assert small_lake.compact()
        small_lake.catalog()
        register(offset)

    monkeypatch.setattr(late, "_register", after_a_drop)
    for one in (late, stream(small_lake)):
        with pytest.raises(DataLost, match="its registration expired"):
            one.latest(start)
    assert registered(small_lake) == {}


def test_a_query_that_lapsed_without_loss_continues(small_lake: SmallLake) -> None:
    start = expired(small_lake)
    for _ in range(2):
        late = stream(small_lake)
        assert [row[-1] for row in read(small_lake, late, start, late.latest(start))] == [b"2"]
    assert registered(small_lake) == {"nightly": start["shards"]["0"]}


# -- Triggers ----------------------------------------------------------------------------------------------------------


def test_an_available_now_trigger_reads_what_existed_when_it_started(small_lake: SmallLake) -> None:
    small_lake.append("a/x", b"1")
    small_lake.append("a/x", b"2")
    one = stream(small_lake, startingOffsets="earliest")
    one.prepare()
    start = one.initial()
    small_lake.append("a/x", b"3")
    found = [[row[-1] for row in batch] for batch in batches(small_lake, one, start, TriggerLimits(records_max=1))]
    assert found == [[b"1"], [b"2"]]


def test_an_available_now_trigger_from_latest_begins_at_its_own_end(small_lake: SmallLake) -> None:
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


def test_a_flush_is_requested_once_per_interval(small_lake: SmallLake) -> None:
    clock = Clock()
    one = LakeStream(options(startingOffsets="earliest"), small_lake.link, small_lake.store, clock)
    small_lake.append("a/x", b"1")
    end = one.latest(one.initial())
    small_lake.append("a/x", b"2")
    assert one.latest(end) == end
    small_lake.flush()
    small_lake.catalog()
    flushed_by_others = one.latest(end)
    assert flushed_by_others != end, "rows that others flushed are read"
    small_lake.append("a/x", b"3")
    clock.now += 10.0
    assert one.latest(flushed_by_others) != flushed_by_others


def test_a_report_has_the_end_of_the_lake(small_lake: SmallLake) -> None:
    one = stream(small_lake, startingOffsets="earliest")
    assert one.report() is None
    small_lake.append("a/x", b"1")
    end = one.latest(one.initial(), TriggerLimits(records_max=1))
    assert one.report() == {"shards": {"0": end["shards"]["0"]}, "v": 1}
