"""Which rewrites are planned, and what a series of them leaves of a lake."""

from collections.abc import Sequence
from itertools import count, pairwise
from math import log

from hypothesis import given
from hypothesis import strategies as st

from headwater.lake.compaction.planning import Candidate, Rewrite, RewriteLimits, groups_of, plan
from headwater.protocol.limits import STREAMS_PER_SEGMENT_MAX
from headwater.streams.segments import Segment

from ..lives import RANDOMLY

EVERYTHING = 2**63 - 1
UNIT = 1000
LIMITS = RewriteLimits(bytes_max=256 * UNIT, small_bytes=UNIT, sources_max=1000, lives_max=10**9)


def candidate(
    number: int, first: int, last: int, payload_bytes: int = UNIT, *, rows: int = 10, live: int | None = None
) -> Candidate:
    segment = Segment(f"id{number}", first, last, 0, 0, "a", "z", rows, payload_bytes, payload_bytes, 0, 0)
    return Candidate(number, segment, rows if live is None else live)


def flushes(*sizes: int) -> list[Candidate]:
    """One segment for each flush, of these sizes."""
    return [candidate(number, 10 * number, 10 * number + 9, size) for number, size in enumerate(sizes, 1)]


def numbers(planned: Rewrite | None) -> tuple[int, ...]:
    assert planned is not None
    return planned.numbers


class Lake:
    """Segments on which plans are carried out."""

    def __init__(self, candidates: Sequence[Candidate], lowest_consumer: int = EVERYTHING) -> None:
        self.candidates = {one.number: one for one in candidates}
        self.lowest_consumer = lowest_consumer
        self.moved_bytes = 0
        self._numbers = count(10**6)

    def add(self, one: Candidate) -> None:
        self.candidates[one.number] = one

    def step(self, limits: RewriteLimits = LIMITS, crowded: frozenset[int] = frozenset()) -> Rewrite | None:
        planned = plan(self.candidates.values(), self.lowest_consumer, limits, crowded)
        if planned is not None:
            self.carry_out(planned)
        return planned

    def settle(self, limits: RewriteLimits = LIMITS) -> None:
        for _ in range(10_000):
            if self.step(limits) is None:
                return
        raise AssertionError("there is always something to rewrite")

    def carry_out(self, planned: Rewrite) -> None:
        """Replace segments by one with their live rows, and with the dead rows that a consumer needs."""
        taken = [self.candidates.pop(number) for number in planned.numbers]
        if planned.is_drop:
            assert not any(one.live_rows for one in taken)
            return
        self.moved_bytes += planned.payload_bytes
        dropped = [0 if one.segment.last_position > self.lowest_consumer else _dead(one) for one in taken]
        rows = sum(one.segment.rows for one in taken) - sum(dropped)
        if rows:
            size = sum(_bytes(one, one.segment.rows - gone) for one, gone in zip(taken, dropped, strict=True))
            first = min(one.segment.first_position for one in taken)
            last = max(one.segment.last_position for one in taken)
            live = sum(one.live_rows for one in taken)
            self.add(candidate(next(self._numbers), first, last, size, rows=rows, live=live))

    @property
    def groups(self) -> int:
        return len(groups_of(self.candidates.values()))


def _dead(one: Candidate) -> int:
    return one.segment.rows - one.live_rows


def _bytes(one: Candidate, rows: int) -> int:
    return one.segment.payload_bytes * rows // one.segment.rows


@st.composite
def lakes(draw: st.DrawFn) -> list[Candidate]:
    """Flushes of one or more segments. Some failed half-way, so that the next begins where they began."""
    found: list[Candidate] = []
    first, ids = 1, count(1)
    for _ in range(draw(st.integers(0, 30))):
        last = first + draw(st.integers(0, 20))
        for _ in range(draw(st.integers(1, 3))):
            rows = draw(st.integers(1, 20))
            size = draw(st.sampled_from([1, UNIT, 5 * UNIT, 70 * UNIT, 300 * UNIT]) | st.integers(1, 90 * UNIT))
            live = draw(st.just(rows) | st.integers(0, rows))
            found.append(candidate(next(ids), first, last, size, rows=rows, live=live))
        if draw(st.integers(0, 9)):
            first = last + 1
    return draw(st.permutations(found))


LOWEST = st.just(EVERYTHING) | st.integers(0, 400)

# -- What comes first --------------------------------------------------------------------------------------------------


def test_a_compact_lake_is_left_alone() -> None:
    assert plan([], EVERYTHING) is None
    assert plan(flushes(UNIT, UNIT, UNIT), EVERYTHING, LIMITS) is None


def test_segments_without_a_live_row_are_dropped_unread_and_all_at_once() -> None:
    dead = [candidate(1, 1, 9, live=0), candidate(2, 10, 19), candidate(3, 20, 29, live=0)]
    planned = plan(dead, EVERYTHING, LIMITS)
    assert numbers(planned) == (1, 3)
    assert planned is not None
    assert planned.is_drop


def test_a_dead_segment_stays_until_every_consumer_has_passed_it() -> None:
    dead = [candidate(1, 1, 9, live=0)]
    assert plan(dead, 8, LIMITS) is None
    assert numbers(plan(dead, 9, LIMITS)) == (1,)


def test_a_segment_that_is_mostly_dead_is_rewritten_alone() -> None:
    assert plan([candidate(1, 1, 9, rows=10, live=5)], EVERYTHING, LIMITS) is None
    planned = plan([candidate(1, 1, 9, rows=10, live=4), candidate(2, 1, 9), candidate(3, 10, 19)], EVERYTHING, LIMITS)
    assert numbers(planned) == (1,)
    assert planned is not None
    assert not planned.is_drop


def test_the_most_dead_rows_go_first() -> None:
    sparse = [candidate(1, 1, 9, rows=10, live=1), candidate(2, 10, 19, rows=100, live=40)]
    assert numbers(plan(sparse, EVERYTHING, LIMITS)) == (2,)


def test_a_segment_that_is_mostly_dead_stays_until_every_consumer_has_passed_it() -> None:
    sparse = [candidate(1, 1, 9, rows=10, live=4)]
    assert plan(sparse, 8, LIMITS) is None
    assert numbers(plan(sparse, 9, LIMITS)) == (1,)


# -- Small neighbours --------------------------------------------------------------------------------------------------


def test_four_small_neighbours_are_merged_even_above_the_consumers() -> None:
    assert numbers(plan(flushes(*[UNIT] * 4), 0, LIMITS)) == (1, 2, 3, 4)


def test_as_many_as_possible_are_merged_at_once() -> None:
    assert len(numbers(plan(flushes(*[UNIT] * 50), EVERYTHING, LIMITS))) == 50


def test_a_large_group_is_not_rewritten_for_small_ones() -> None:
    assert plan(flushes(40 * UNIT, UNIT, UNIT, UNIT), EVERYTHING, LIMITS) is None
    assert numbers(plan(flushes(40 * UNIT, UNIT, UNIT, UNIT, UNIT), EVERYTHING, LIMITS)) == (2, 3, 4, 5)


def test_groups_that_are_large_enough_are_left_alone() -> None:
    assert plan(flushes(*[86 * UNIT] * 9), EVERYTHING, LIMITS) is None


def test_all_segments_of_a_flush_are_merged_together_and_with_those_of_a_flush_that_failed() -> None:
    failed, whole = candidate(7, 40, 45, 1), [candidate(8, 40, 60, 1), candidate(9, 40, 60, 1)]
    found = [*flushes(UNIT, UNIT, UNIT), failed, *whole]
    assert numbers(plan(found, EVERYTHING, LIMITS)) == (1, 2, 3, 7, 8, 9)


def test_a_rewrite_reads_only_so_many_segments_side_by_side() -> None:
    limits = LIMITS._replace(sources_max=6)
    assert len(numbers(plan(flushes(*[UNIT] * 50), EVERYTHING, limits))) == 6


def test_a_rewrite_has_only_so_many_lives() -> None:
    limits = LIMITS._replace(lives_max=5 * STREAMS_PER_SEGMENT_MAX)
    many = [candidate(number, number, number, rows=10**6) for number in range(1, 50)]
    assert len(numbers(plan(many, EVERYTHING, limits))) == 5


def test_nothing_is_merged_across_a_segment_that_is_to_be_left_alone() -> None:
    found = flushes(*[UNIT] * 7)
    assert plan(found, EVERYTHING, LIMITS, avoid={4}) is None
    assert numbers(plan(found, EVERYTHING, LIMITS, avoid={3})) == (4, 5, 6, 7)


# -- Crowded streams ---------------------------------------------------------------------------------------------------


def test_groups_that_a_crowded_stream_is_in_are_merged_though_they_are_large() -> None:
    found = flushes(*[100 * UNIT] * 6)
    assert numbers(plan(found, EVERYTHING, LIMITS, crowded={4, 5})) == (4, 5)


def test_the_rewrite_that_saves_a_crowded_stream_the_most_extents_comes_first() -> None:
    found = flushes(100 * UNIT, 100 * UNIT, 90 * UNIT, UNIT, 90 * UNIT, UNIT)
    assert numbers(plan(found, EVERYTHING, LIMITS, crowded={1, 2, 3, 4, 5, 6})) == (3, 4, 5, 6)
    assert numbers(plan(found, EVERYTHING, LIMITS, crowded={1, 2, 3, 5})) == (3, 4, 5)


def test_a_stream_stays_crowded_where_nothing_more_can_be_merged() -> None:
    assert plan(flushes(*[200 * UNIT] * 6), EVERYTHING, LIMITS, crowded={1, 2, 3, 4, 5, 6}) is None


def test_a_crowded_stream_ends_up_in_few_extents() -> None:
    lake = Lake(flushes(*[86 * UNIT if number % 2 else 20 * UNIT for number in range(100)]))
    while lake.step(crowded=frozenset(lake.candidates)):
        pass
    assert lake.groups <= 2 * 100 * 53 // 256


# -- Any lake ----------------------------------------------------------------------------------------------------------


@RANDOMLY
@given(lakes(), LOWEST, st.frozensets(st.integers(1, 40)), st.frozensets(st.integers(1, 40), max_size=3))
def test_a_plan_is_a_run_of_whole_groups_within_the_limits(
    found: list[Candidate], lowest: int, crowded: frozenset[int], avoid: frozenset[int]
) -> None:
    limits = LIMITS._replace(sources_max=12)
    planned = plan(found, lowest, limits, crowded, avoid)
    assert planned == plan(sorted(found), lowest, limits, crowded, avoid)
    if planned is None:
        return
    assert not avoid & set(planned.numbers)
    if planned.why in ("dead", "sparse"):
        assert all(one.segment.last_position <= lowest for one in planned.candidates)
        return
    assert len(planned.numbers) <= 12
    assert planned.payload_bytes <= limits.bytes_max
    touched = [
        index for index, group in enumerate(groups_of(found)) if group.holds(set(planned.numbers)) and group.candidates
    ]
    assert all(after == before + 1 for before, after in pairwise(touched))
    assert len(planned.numbers) == sum(len(groups_of(found)[index].candidates) for index in touched)


@RANDOMLY
@given(lakes(), LOWEST)
def test_plans_come_to_an_end_and_leave_few_groups(found: list[Candidate], lowest: int) -> None:
    lake = Lake(found, lowest)
    lake.settle()
    total = sum(one.segment.payload_bytes for one in lake.candidates.values())
    assert lake.groups <= 12 + 4 * total // (LIMITS.bytes_max // 3)
    readable = [one for one in lake.candidates.values() if one.segment.last_position <= lowest]
    assert all(one.live_rows for one in readable)
    small = [one for one in readable if one.segment.payload_bytes <= LIMITS.bytes_max]
    assert all(2 * one.live_rows >= one.segment.rows for one in small)


@RANDOMLY
@given(lakes(), st.integers(0, 400))
def test_no_row_above_the_lowest_consumer_is_dropped(found: list[Candidate], lowest: int) -> None:
    lake = Lake(found, lowest)
    above = sum(one.segment.rows for one in found if one.segment.last_position > lowest)
    lake.settle()
    assert sum(one.segment.rows for one in lake.candidates.values() if one.segment.last_position > lowest) >= above


@RANDOMLY
@given(st.integers(1, 600), st.integers(1, 5))
def test_a_byte_is_moved_a_logarithmic_number_of_times(flushes_made: int, per_look: int) -> None:
    lake = Lake([])
    limits = LIMITS._replace(bytes_max=10**9)
    most = 0
    for number in range(1, flushes_made + 1):
        lake.add(candidate(number, number, number, UNIT))
        if number % per_look == 0:
            lake.settle(limits)
            most = max(most, lake.groups)
    levels = log(max(flushes_made, 2), 3)
    assert lake.moved_bytes <= flushes_made * UNIT * levels
    assert most <= 3 * (levels + 1)


@RANDOMLY
@given(st.lists(st.integers(1, 80 * UNIT), max_size=300))
def test_a_byte_is_moved_a_logarithmic_number_of_times_even_if_flushes_differ(sizes: list[int]) -> None:
    lake = Lake([])
    for flushed in flushes(*sizes):
        lake.add(flushed)
        lake.settle()
    # Every move triples the group of a byte; and every merged group may count as one of the smallest size.
    assert lake.moved_bytes <= sum(sizes) * (log(LIMITS.bytes_max / LIMITS.small_bytes, 3) + 1) + 2 * UNIT * len(sizes)
