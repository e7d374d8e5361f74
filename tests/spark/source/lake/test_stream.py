"""Streaming from the lake: every row once, and batches that can be repeated, whatever happens in between."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.spark.source.lake.plan import LakeUnusable
from headwater.spark.source.lake.stream import LakeStream, parse_offset
from headwater.spark.source.portions import UNLIMITED, TriggerLimits

from ....node.lake.small_lake import Chance
from .lake_queries import Clock, batches, read, registered, stream
from .small_lakes import Row, SmallLake, opened, options, small_lake, stored

__all__ = ["small_lake"]

SEEDS = st.integers(0, 2**32)


# -- Offsets -----------------------------------------------------------------------------------------------------------


def test_an_offset_is_small_canonical_and_says_where_the_query_began(small_lake: SmallLake) -> None:
    small_lake.append("a/x", b"1")
    one = stream(small_lake, startingOffsets="earliest", consumerName="nightly")
    start = one.initial()
    end = one.latest(start)
    assert json.dumps(end) == json.dumps(end, sort_keys=True)
    assert end == {
        "beginning": {"dropped": 0, "shards": {"0": 0}, "since": None, "until": None},
        "log": small_lake.state.log_id,
        "reader": "nightly",
        "shards": {"0": small_lake.state.position},
        "v": 2,
    }
    assert parse_offset(end).plain == end


def test_the_offset_stays_the_same_while_nothing_is_new(small_lake: SmallLake) -> None:
    small_lake.append("a/x", b"1")
    one = stream(small_lake, startingOffsets="earliest")
    end = one.latest(one.initial())
    for _ in range(3):
        one.commit(end)
        assert json.dumps(one.latest(end)) == json.dumps(end), "a registration is nothing new to read"


@pytest.mark.parametrize("plain", [{}, {"s": {}, "v": 2}, {"v": 1}, {"beginning": None, "reader": "x", "v": 2}])
def test_an_offset_of_another_kind_is_refused(plain: dict[str, Any]) -> None:
    with pytest.raises(LakeUnusable, match="does not belong to a query on the lake"):
        parse_offset(plain)


def test_a_query_starts_at_the_end_by_default(small_lake: SmallLake) -> None:
    small_lake.append("a/x", b"old")
    late = stream(small_lake)
    start = late.initial()
    small_lake.append("a/x", b"new")
    assert [[row[-1] for row in batch] for batch in batches(late, start)] == [[b"new"]]
    early = stream(small_lake, startingOffsets="earliest")
    assert [[row[-1] for row in batch] for batch in batches(early, early.initial())] == [[b"old", b"new"]]
    position = start["shards"]["0"]
    given = stream(small_lake, startingOffsets=json.dumps({"shards": {"0": position}}))
    assert [[row[-1] for row in batch] for batch in batches(given, given.initial())] == [[b"new"]]


def test_a_query_keeps_the_times_that_it_began_with(small_lake: SmallLake) -> None:
    small_lake.append("a/x", b"old")
    small_lake.now += 5_000_000
    small_lake.append("a/x", b"new")
    since = str(small_lake.now // 1000)
    first = stream(small_lake, startingTimestamp=since)
    start = first.initial()
    end = first.latest(start)
    assert [row[-1] for row in read(first, start, end)] == [b"new"]
    again = stream(small_lake, startingTimestamp="0")
    assert [row[-1] for row in read(again, again.initial(), end)] == [b"new"]


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
            batch = read(one, start, end)
            for _ in range(chance.random.randint(0, 15)):
                chance.act()
            lake.compact(chance.random.randint(0, 3))
            lake.catalog()
            again = stream(lake, startingOffsets=chance.random.choice(["earliest", "latest"]))
            assert read(again, start, end) == batch, "another driver reads the same batch"
            assert read(one, start, end) == batch
            seen += batch
            one.commit(end)
            start = end
        for batch in batches(one, start, limits):
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
    batch = read(first, start, end)
    small_lake.append("a/x", b"after")
    restarted = stream(small_lake)
    again = restarted.initial()
    assert again != start
    assert read(restarted, again, end) == batch and [row[-1] for row in batch] == [b"in the batch"]
    assert registered(small_lake) == {end["reader"]: start["shards"]["0"]}, "only the first reader is registered"


# -- Triggers ----------------------------------------------------------------------------------------------------------


def test_an_available_now_trigger_reads_what_existed_when_it_started(small_lake: SmallLake) -> None:
    small_lake.append("a/x", b"1")
    small_lake.append("a/x", b"2")
    one = stream(small_lake, startingOffsets="earliest")
    one.prepare()
    start = one.initial()
    small_lake.append("a/x", b"3")
    found = [[row[-1] for row in batch] for batch in batches(one, start, TriggerLimits(records_max=1))]
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
    found = [[row[-1] for row in batch] for batch in batches(following, end)]
    assert found == [[b"2", b"3"]]


def test_a_flush_is_requested_once_per_interval(small_lake: SmallLake) -> None:
    clock = Clock()
    one = LakeStream(options(startingOffsets="earliest"), small_lake.link, small_lake.store, clock)
    small_lake.append("a/x", b"1")
    end = one.latest(one.initial())
    small_lake.append("a/x", b"2")
    assert one.latest(end) == end
    clock.now += 10.0
    assert one.latest(end) != end


def test_a_query_without_new_rows_makes_one_request_per_interval(small_lake: SmallLake) -> None:
    clock, link, requests = Clock(), small_lake.link, list[str]()
    small_lake.append("a/x", b"1")
    one = LakeStream(options(bucket="a", startingOffsets="earliest"), link, small_lake.store, clock)
    end = one.latest(one.initial())
    one.plan(one.initial(), end)
    read, flush = small_lake.store.read, link.flush

    def noted_read(key: str, start: int = 0, size: int | None = None) -> bytes:
        requests.append(key)
        return read(key, start, size)

    def noted_flush() -> dict[str, int]:
        requests.append("flush")
        flushed: dict[str, int] = flush()
        requests[:] = [request for request in requests if request == "flush"]
        return flushed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(small_lake.store, "read", noted_read)
        patch.setattr(link, "flush", noted_flush)
        for interval in range(3):
            clock.now += 10.0
            for _ in range(20):
                assert one.latest(end) == end
            assert requests == ["flush"] * (interval + 1)
    small_lake.append("b/x", b"other")
    clock.now += 10.0
    assert one.latest(end) == end
    small_lake.append("a/x", b"2")
    clock.now += 10.0
    assert one.latest(end) != end


def test_a_report_has_the_end_of_the_lake(small_lake: SmallLake) -> None:
    one = stream(small_lake, startingOffsets="earliest")
    assert one.report() is None
    small_lake.append("a/x", b"1")
    end = one.latest(one.initial(), TriggerLimits(records_max=1))
    assert one.report() == {"shards": {"0": end["shards"]["0"]}, "v": 2}
