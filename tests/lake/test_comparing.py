"""What became of old rows in new segments is found out from their numbers alone."""

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.lake.comparing import COLUMNS, Comparison
from headwater.lake.reader import read_all
from headwater.lake.rewriting import Keep
from headwater.lake.writer import Written
from headwater.protocol.segments import Rows

from .lives import RANDOMLY, Life, plain, reading, some_lives
from .test_rewriting import EVERYTHING, merge, segment


def compare(sources: Sequence[Written], rewritten: Sequence[Rows]) -> Comparison:
    comparison = Comparison(rewritten)
    for source in sources:
        for table in read_all(reading(source.data), source.segment):
            comparison.look(table.select(COLUMNS))
    return comparison


def in_two(lives: Sequence[Life], cut: int) -> list[Written]:
    """Lives as two flushes would have them: the first has so many appends of each at most."""
    halves = [
        [one._replace(appends=part) for one in lives if (part := one.appends[half])]
        for half in (slice(cut), slice(cut, None))
    ]
    return [segment(f"19a89f62001s{number}", half) for number, half in enumerate(halves) if half]


@RANDOMLY
@given(some_lives(), st.integers(1, 4), st.data())
def test_what_is_dropped_is_found_out_to_the_last_row(lives: list[Life], cut: int, data: st.DataObject) -> None:
    sources = in_two(lives, cut)
    dead = {
        one.incarnation: data.draw(st.sampled_from([0, EVERYTHING, *(hot.offset for hot in one.appends)]))
        for one in lives
    }
    outcome = merge(sources, Keep(lambda name, incarnation: dead[incarnation], EVERYTHING))
    comparison = compare(sources, [rows for written in outcome.outputs for rows in written.rows])
    assert comparison.foreign() is None
    assert (comparison.rows_dropped, comparison.dropped) == (outcome.told.rows_dropped, outcome.told.dropped)


LIVES = [plain("a/x", 1, 3, 4, 5), plain("a/y", 10, 6, 7)]
X = Rows("a/x", 1, 0, 3, 0, 12, 0)
Y = Rows("a/y", 10, 3, 2, 0, 13, 0)


@pytest.mark.parametrize(
    ("rewritten", "dropped", "foreign"),
    [
        ([X, Y], 0, None),
        ([Y], 4, None),
        ([], 12, None),
        ([Rows("a/x", 1, 0, 2, 3, 12, 1), Y], 2, None),
        ([Rows("a/x", 1, 0, 1, 0, 3, 0), Y], 4, None),
        ([X, Rows("a/y", 11, 3, 2, 0, 13, 0)], 12, "a/y"),
        ([X, Rows("a/z", 10, 3, 2, 0, 13, 0)], 12, "a/z"),
        ([msgspec.structs.replace(X, rows=4), Y], 0, "a/x"),
        ([msgspec.structs.replace(X, record=1), Y], 0, "a/x"),
        ([msgspec.structs.replace(X, start=1), Y], 2, "a/x"),
        ([msgspec.structs.replace(X, end=20, rows=5), Y], 0, "a/x"),
        ([X, Y, Rows("b/x", 30, 5, 1, 0, 1, 0)], 0, "b/x"),
        ([X, X, Y], 0, "a/x"),
    ],
)
def test_rows_that_are_not_the_old_ones_are_found(rewritten: list[Rows], dropped: int, foreign: str | None) -> None:
    comparison = compare(in_two(LIVES, 2), rewritten)
    found = comparison.foreign()
    assert (comparison.dropped, found and found.name) == (dropped, foreign)


def test_a_life_in_two_stretches_is_compared_with_both() -> None:
    whole = segment("19a89f62001s0", [plain("a/x", 1, 3, 4)])
    halves = [Rows("a/x", 1, 0, 1, 3, 7, 1), Rows("a/x", 1, 0, 1, 0, 3, 0)]
    comparison = compare([whole], halves)
    assert (comparison.foreign(), comparison.dropped) == (None, 0)
