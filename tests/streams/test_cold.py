import pytest

from headwater.protocol.limits import CONSUMER_IDLE_US
from headwater.streams.cold import ALL, Cold, Consumer, Held, Retired
from headwater.streams.segments import DeadRows, Extent, Segment

from .tombstones import Mark, first_rows, marks

ONE, TWO, THREE = (
    Segment(name, first, first + 9, 0, 0, "b/a", "b/z", 10, 100, 100, 0, 0)
    for name, first in (("one", 1), ("two", 11), ("three", 21))
)


@pytest.fixture
def cold() -> Cold:
    """Three segments with ten live rows each."""
    cold = Cold()
    assert [cold.hold(segment, 10) for segment in (ONE, TWO, THREE)] == [1, 2, 3]
    return cold


def test_a_lake_is_empty_at_first() -> None:
    cold = Cold()
    assert (cold.flushed, cold.dropped, cold.changed_at, cold.next_number) == (0, 0, 0, 1)
    assert not cold.segments
    assert not cold.tombstones
    assert not cold.retired
    assert not cold.consumers
    assert not cold.dead_in


def test_above_everything_is_the_largest_number_of_a_catalog() -> None:
    assert ALL == 0x7FFF_FFFF_FFFF_FFFF


def test_a_number_is_never_given_twice(cold: Cold) -> None:
    cold.take_out(3, 0)
    assert cold.hold(THREE, 4) == 4
    assert cold.segments == {1: Held(ONE, 10), 2: Held(TWO, 10), 4: Held(THREE, 4)}
    assert cold.next_number == 5


def test_rows_that_are_not_needed_are_no_longer_counted_as_live(cold: Cold) -> None:
    cold.release([Extent(1, 0, 3, 0, 30, 0), Extent(2, 5, 1, 30, 40, 3), Extent(1, 3, 2, 40, 60, 4)])
    assert cold.segments == {1: Held(ONE, 5), 2: Held(TWO, 9), 3: Held(THREE, 10)}


def test_a_tombstone_lists_every_segment_with_dead_rows_once(cold: Cold) -> None:
    cold.hide("b/s", 7, 10, first_rows(1, 2))
    cold.hide("b/s", 7, 20, first_rows(2, 3))
    cold.hide("b/t", 8, ALL, first_rows(3))
    assert marks(cold) == {7: Mark("b/s", 20, (1, 2, 3)), 8: Mark("b/t", ALL, (3,))}
    assert cold.dead_in == {1: {7}, 2: {7}, 3: {7, 8}}


def test_a_tombstone_reaches_further_where_it_was_before(cold: Cold) -> None:
    cold.hide("b/s", 7, 10, first_rows(1))
    cold.hide("b/s", 7, ALL, first_rows())
    assert marks(cold) == {7: Mark("b/s", ALL, (1,))}


def test_a_tombstone_in_no_segment_is_none(cold: Cold) -> None:
    cold.hide("b/s", 7, ALL, first_rows())
    assert not cold.tombstones
    assert not cold.dead_in


def test_a_segment_that_is_taken_out_takes_the_tombstones_along_that_only_it_needed(cold: Cold) -> None:
    cold.hide("b/s", 7, 20, first_rows(1, 2, 3))
    cold.hide("b/t", 8, ALL, first_rows(2))
    cold.hide("b/u", 9, ALL, first_rows(3))
    cold.take_out(2, 99)
    assert cold.segments == {1: Held(ONE, 10), 3: Held(THREE, 10)}
    assert cold.retired == {"two": Retired(TWO, 99)}
    assert marks(cold) == {7: Mark("b/s", 20, (1, 3)), 9: Mark("b/u", ALL, (3,))}
    assert cold.dead_in == {1: {7}, 3: {7, 9}}


def test_a_segment_without_dead_rows_is_taken_out_too(cold: Cold) -> None:
    cold.hide("b/s", 7, 20, first_rows(1))
    cold.take_out(3, 99)
    assert list(cold.segments) == [1, 2]
    assert marks(cold) == {7: Mark("b/s", 20, (1,))}


def test_a_mark_in_a_segment_that_has_it_already_costs_no_walk_over_the_others(cold: Cold) -> None:
    cold.hide("b/s", 7, 10, first_rows(1, 2, 3))
    before = cold.tombstones[7].dead
    cold.hide("b/s", 7, 20, first_rows(2))
    assert cold.tombstones[7].dead == before


def test_sums_and_ids_follow_every_change(cold: Cold) -> None:
    assert (cold.rows, cold.live_rows, cold.bytes, cold.ids) == (30, 30, 300, {"one", "two", "three"})
    cold.release([Extent(1, 0, 3, 0, 30, 0)])
    cold.take_out(2, 9)
    assert (cold.rows, cold.live_rows, cold.bytes, cold.ids) == (20, 17, 200, {"one", "three"})
    cold.keep(3, Held(TWO, 4))
    assert (cold.rows, cold.live_rows, cold.bytes, cold.ids) == (20, 11, 200, {"one", "two"})


def test_a_segment_is_known_by_its_id_until_it_is_forgotten(cold: Cold) -> None:
    cold.take_out(2, 9)
    assert [cold.names(name) for name in ("one", "two", "four")] == [True, True, False]
    del cold.retired["two"]
    assert not cold.names("two")


def test_what_changed_is_recorded_once_somebody_asks_for_it(cold: Cold) -> None:
    cold.hide("b/s", 7, 10, first_rows(1))
    unlisted = cold.record_unlisted({5: "b/fork"})
    assert (list(unlisted.segments), list(unlisted.tombstones), unlisted.forks) == ([1, 2, 3], [7], {5: "b/fork"})
    for recorded in (unlisted.segments, unlisted.tombstones, unlisted.forks):
        recorded.clear()
    cold.release([Extent(1, 0, 3, 0, 30, 0)])
    cold.hide("b/t", 8, ALL, first_rows(2))
    cold.take_out(1, 9)
    assert cold.hold(ONE, 1) == 4
    assert list(unlisted.segments) == [1, 4]
    assert list(unlisted.tombstones) == [8, 7]
    assert len(unlisted) == 4


def test_the_lowest_consumer_is_the_one_that_is_furthest_behind() -> None:
    cold = Cold()
    assert cold.lowest_consumer(0) == ALL
    cold.consumers = {"a": Consumer(30, 5), "b": Consumer(10, 6), "c": Consumer(20, 7)}
    assert cold.lowest_consumer(7) == 10


def test_a_consumer_counts_until_it_has_been_silent_for_a_week() -> None:
    cold = Cold()
    cold.consumers = {"a": Consumer(10, 5), "b": Consumer(20, 6)}
    assert CONSUMER_IDLE_US == 7 * 24 * 3600 * 1_000_000
    assert cold.lowest_consumer(5 + CONSUMER_IDLE_US - 1) == 10
    assert cold.lowest_consumer(5 + CONSUMER_IDLE_US) == 20
    assert cold.lowest_consumer(6 + CONSUMER_IDLE_US) == ALL


def test_the_dead_rows_of_a_life_in_one_segment_are_one_range(cold: Cold) -> None:
    cold.hide("b/s", 7, 10, [DeadRows(1, 4, 2), DeadRows(2, 0, 1)])
    cold.hide("b/s", 7, 20, [DeadRows(1, 6, 1)])
    cold.hide("b/s", 7, 20, [DeadRows(1, 4, 1)])
    assert cold.tombstones[7].dead == (DeadRows(1, 4, 3), DeadRows(2, 0, 1))


@pytest.mark.parametrize(("record", "rows"), [(0, 0), (5, 0), (6, 1), (8, 3), (99, 3)])
def test_rows_of_an_extent_before_a_record(record: int, rows: int) -> None:
    extent = Extent(2, 7, 3, 100, 130, 5)
    assert extent.dead_before(record) == DeadRows(2, 7, rows)
    assert extent.dead == DeadRows(2, 7, 3)
