"""A query on the lake is a registered consumer: its rows are kept, and a lapsed registration is noticed."""

import time
from typing import Any

import pytest

from headwater.protocol.limits import CONSUMER_IDLE_US, SECOND_US
from headwater.spark.options.source import DataLost
from headwater.spark.source.lake.stream import REGISTER_SECONDS, LakeOffset, LakeStream
from headwater.spark.source.portions import TriggerLimits
from headwater.streams.commands.consumers import DropConsumer
from headwater.streams.commands.streams import Delete

from .lake_queries import Clock, batches, read, registered, stream
from .small_lakes import SmallLake, small_lake

__all__ = ["small_lake"]


def test_a_query_registers_before_it_reads_and_advances_with_each_commit(small_lake: SmallLake) -> None:
    small_lake.append("a/x", b"1")
    one = stream(small_lake, startingOffsets="earliest", consumerName="nightly")
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
    one = stream(small_lake, clock, startingOffsets="earliest", consumerName="nightly")
    end = one.latest(one.initial())
    one.commit(end)
    before = small_lake.state.cold.consumers["nightly"].at
    small_lake.now += 5_000_000
    assert one.latest(end) == end
    assert small_lake.state.cold.consumers["nightly"].at == before
    clock.now += REGISTER_SECONDS
    assert one.latest(end) == end
    assert small_lake.state.cold.consumers["nightly"].at > before


def test_a_query_says_in_each_report_how_long_it_may_be_silent(small_lake: SmallLake) -> None:
    known = small_lake.state.cold.consumers
    small_lake.append("a/x", b"1")
    one = stream(small_lake, startingOffsets="earliest", consumerName="nightly", consumerSilence="90s")
    end = one.latest(one.initial())
    assert known["nightly"].life_us == 90 * SECOND_US
    one.commit(end)
    assert known["nightly"].life_us == 90 * SECOND_US
    one.stop()


def test_a_query_that_was_silent_for_longer_than_it_said_finds_out_what_it_missed(small_lake: SmallLake) -> None:
    small_lake.append("a/x", b"1")
    one = stream(small_lake, startingOffsets="earliest", consumerName="nightly", consumerSilence="60s")
    start = one.latest(one.initial())
    one.commit(start)
    small_lake.append("a/y", b"2")
    small_lake.flush()
    small_lake.do(Delete("a/y"))
    small_lake.now += 59 * SECOND_US
    assert not small_lake.compact(), "the query may still read the row"
    small_lake.now += 2 * SECOND_US
    assert small_lake.compact()
    with pytest.raises(DataLost, match="its registration expired"):
        stream(small_lake, consumerSilence="60s").latest(start)


def test_a_query_whose_streams_are_idle_releases_rows_of_other_streams(small_lake: SmallLake) -> None:
    clock = Clock()
    small_lake.append("a/x", b"1")
    one = stream(small_lake, clock, prefix="a/", startingOffsets="earliest", consumerName="nightly")
    end = one.latest(one.initial())
    one.commit(end)
    small_lake.append("b/x", b"others")
    assert one.latest(end) == end, "none of its streams has new rows"
    clock.now += REGISTER_SECONDS
    later = one.latest(end)
    assert later["shards"]["0"] > end["shards"]["0"]
    assert read(one, end, later) == []
    one.commit(later)
    assert registered(small_lake) == {"nightly": later["shards"]["0"]}


def rows_dropped(lake: SmallLake, one: LakeStream) -> tuple[dict[str, Any], dict[str, Any]]:
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
    one = stream(small_lake, startingOffsets="earliest", consumerName="nightly")
    start, end = rows_dropped(small_lake, one)
    with pytest.raises(DataLost, match=r"'nightly' has read only up to \d+.*failOnDataLoss=false"):
        one.plan(start, end)


def test_a_batch_whose_rows_were_dropped_continues_without_them_if_allowed(
    small_lake: SmallLake, caplog: pytest.LogCaptureFixture
) -> None:
    one = stream(small_lake, startingOffsets="earliest", consumerName="nightly", failOnDataLoss="false")
    start, end = rows_dropped(small_lake, one)
    assert read(one, start, end) == []
    assert "were dropped from the lake" in caplog.text


def test_rows_dropped_before_a_query_began_are_not_a_loss(small_lake: SmallLake) -> None:
    small_lake.append("a/x", b"1")
    small_lake.append("a/y", b"2")
    small_lake.flush()
    small_lake.do(Delete("a/y"))
    small_lake.compact()
    small_lake.append("a/z", b"3")
    one = stream(small_lake, startingOffsets="earliest", maxRecordsPerTrigger="1")
    found = [[row[-1] for row in batch] for batch in batches(one, one.initial(), TriggerLimits(records_max=1))]
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
    one = stream(lake, startingOffsets="earliest", consumerName="nightly")
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
    assert [len(batch) for batch in batches(lenient, start)] == [2]
    assert "were dropped from the lake" in caplog.text
    assert registered(small_lake)["nightly"] > end["shards"]["0"]


def expired(lake: SmallLake) -> dict[str, Any]:
    """Where a query stopped whose registration has expired; `a/y` was written after that."""
    lake.append("a/x", b"1")
    one = stream(lake, startingOffsets="earliest", consumerName="nightly")
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


@pytest.mark.parametrize("days_off", [-30, 30])
def test_the_server_says_whether_a_query_has_lapsed_whatever_the_clock_of_its_driver_says(
    small_lake: SmallLake, monkeypatch: pytest.MonkeyPatch, days_off: int
) -> None:
    start, end = lapsed(small_lake)
    small_lake.now -= CONSUMER_IDLE_US + 1
    seconds = time.time() + days_off * 86_400
    monkeypatch.setattr(time, "time", lambda: seconds)
    assert stream(small_lake).plan(start, end)
    small_lake.now += CONSUMER_IDLE_US + 1
    with pytest.raises(DataLost, match="its registration expired"):
        stream(small_lake).plan(start, end)


def test_a_running_query_that_was_suspended_for_too_long_notices_what_was_dropped(small_lake: SmallLake) -> None:
    start, end = lapsed(small_lake)
    small_lake.now -= CONSUMER_IDLE_US + 1
    one = stream(small_lake)
    one.plan(start, end)
    small_lake.now += CONSUMER_IDLE_US + 1
    with pytest.raises(DataLost, match="its registration expired"):
        one.commit(start)
    assert registered(small_lake) == {}


def test_a_query_that_lapsed_without_loss_continues(small_lake: SmallLake) -> None:
    start = expired(small_lake)
    for _ in range(2):
        late = stream(small_lake)
        assert [row[-1] for row in read(late, start, late.latest(start))] == [b"2"]
    assert registered(small_lake) == {"nightly": start["shards"]["0"]}
