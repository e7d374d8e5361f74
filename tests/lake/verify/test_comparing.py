"""Rewritten segments are compared with their sources by every column except the payload."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.lake.compaction.rewriting import Keep
from headwater.lake.format import SCHEMA, SegmentKey
from headwater.lake.segments.reader import read_all
from headwater.lake.segments.writer import Written
from headwater.lake.verify.comparing import Comparison
from headwater.lake.verify.fingerprints import COLUMNS
from headwater.lake.verify.inspecting import inspect
from headwater.protocol.producers import Producer

from ..lives import (
    EPOCH,
    ID,
    LAST_POSITION,
    LIMITS,
    RANDOMLY,
    Life,
    Limits,
    NewAppend,
    life,
    plain,
    reading,
    rows_of,
    some_lives,
    write,
    write_tables,
)
from ..rewrites import EVERYTHING, merge, segment

KEY = SegmentKey(0, 0, LAST_POSITION, ID)


def compare(sources: Sequence[Written], rewritten: Sequence[Written]) -> Comparison:
    """Compare segments with rewritten ones, of which only the objects are given."""
    found = [inspect(reading(one.data), len(one.data), KEY) for one in rewritten]
    comparison = Comparison(stretch for one in found for stretch in zip(one.rows, one.fingerprints, strict=True))
    for source in sources:
        for table in read_all(reading(source.data), source.segment):
            comparison.compare(table.select(COLUMNS))
    return comparison


def in_two(lives: Sequence[Life], cut: int) -> list[Written]:
    """Lives as two flushes write them: the first has at most this many appends of each."""
    halves = [
        [one._replace(appends=part) for one in lives if (part := one.appends[half])]
        for half in (slice(cut), slice(cut, None))
    ]
    return [segment(f"19a89f62001s{number}", half) for number, half in enumerate(halves) if half]


@RANDOMLY
@given(some_lives(), st.integers(1, 4), st.data())
def test_dropped_rows_are_found_exactly(lives: list[Life], cut: int, data: st.DataObject) -> None:
    sources = in_two(lives, cut)
    dead = {
        one.incarnation: data.draw(st.sampled_from([0, EVERYTHING, *(hot.offset for hot in one.appends)]))
        for one in lives
    }
    outcome = merge(sources, Keep(lambda name, incarnation: dead[incarnation], EVERYTHING))
    comparison = compare(sources, outcome.outputs)
    assert comparison.foreign() is None
    assert (comparison.rows_dropped, comparison.dropped) == (outcome.result.rows_dropped, outcome.result.dropped)


X, Y = plain("a/x", 1, 3, 4, 5), plain("a/y", 10, 6, 7)


def moved(one: Life, offset: int = 0, record: int = 0) -> Life:
    """A life at other offsets or ordinals."""
    appends = [
        msgspec.structs.replace(hot, offset=hot.offset + offset, record=hot.record + record) for hot in one.appends
    ]
    return one._replace(appends=appends)


@pytest.mark.parametrize(
    ("rewritten", "dropped", "foreign"),
    [
        ([[X, Y]], 0, None),
        ([[X], [Y]], 0, None),
        ([[Y]], 4, None),
        ([], 12, None),
        ([[X._replace(appends=X.appends[1:]), Y]], 2, None),
        ([[X._replace(appends=X.appends[:1]), Y]], 4, None),
        ([[X, Y._replace(incarnation=11)]], 12, "a/y"),
        ([[X, Y._replace(name="a/z")]], 12, "a/z"),
        ([[plain("a/x", 1, 3, 4, 5, 8), Y]], 0, "a/x"),
        ([[plain("a/x", 1, 3, 9), Y]], 0, "a/x"),
        ([[plain("a/x", 1, 4, 3, 5), Y]], 0, "a/x"),
        ([[moved(X, record=1), Y]], 0, "a/x"),
        ([[moved(X, offset=1), Y]], 2, "a/x"),
        ([[X, Y, plain("b/x", 30, 1)]], 0, "b/x"),
        ([[X], [X, Y]], 0, "a/x"),
    ],
)
def test_rows_that_are_not_the_old_ones_are_found(
    rewritten: list[list[Life]], dropped: int, foreign: str | None
) -> None:
    comparison = compare(in_two([X, Y], 2), [write(lives) for lives in rewritten])
    found = comparison.foreign()
    assert (comparison.dropped, found and found.name) == (dropped, foreign)


def test_a_life_in_two_ranges_is_compared_with_both() -> None:
    whole = plain("a/x", 1, 3, 4)
    halves = [write([whole._replace(appends=[hot])]) for hot in reversed(whole.appends)]
    comparison = compare([segment("19a89f62001s0", [whole])], halves)
    assert (comparison.foreign(), comparison.dropped) == (None, 0)


# -- Column by column --------------------------------------------------------------------------------------------------

OLD = [
    life(
        "a/x",
        1,
        [NewAppend([b"one", b"2"], Producer("p", 3, 4)), NewAppend([b"3"], Producer("p", 3, 5)), NewAppend([b"4"])],
    ),
    life("b/c/y", 50, [NewAppend([b"aa"]), NewAppend([b"bbb"], Producer("p", 0, 0))]),
]
TIME = OLD[0].appends[-1].at


@pytest.mark.parametrize(
    ("row", "changes"),
    [
        (1, {"append": 3}),
        (2, {"position": 4}),
        (3, {"position": 5}),
        (3, {"committed_at": EPOCH + timedelta(microseconds=TIME + 1)}),
        (0, {"committed_at": EPOCH}),
        (1, {"producer_id": "q"}),
        (1, {"producer_epoch": 2}),
        (1, {"producer_seq": 5}),
        (1, {"producer_id": None, "producer_epoch": None, "producer_seq": None}),
        (3, {"producer_id": "", "producer_epoch": 0, "producer_seq": 0}),
        (3, {"content_type": "text/plain"}),
    ],
)
def test_a_row_with_another_value_in_any_column_is_not_the_old_one(row: int, changes: dict[str, Any]) -> None:
    rows = rows_of(OLD)
    old = write(OLD)
    same = write_tables([pa.Table.from_pylist(rows, SCHEMA)])
    assert compare([old], [same]).foreign() is None
    assert all(rows[row][name] != value for name, value in changes.items())
    rows[row] |= changes
    found = compare([old], [write_tables([pa.Table.from_pylist(rows, SCHEMA)])]).foreign()
    assert found is not None
    assert found.name == "a/x"


def test_rows_that_have_exchanged_their_values_are_not_the_old_ones() -> None:
    rows = rows_of(OLD)
    rows[0]["producer_seq"], rows[2]["producer_seq"] = rows[2]["producer_seq"], rows[0]["producer_seq"]
    assert compare([write(OLD)], [write_tables([pa.Table.from_pylist(rows, SCHEMA)])]).foreign() is not None


def test_a_name_that_is_split_elsewhere_is_not_the_old_one() -> None:
    rows = [row | ({"bucket": "b/c", "stream": "y"} if row["bucket"] == "b" else {}) for row in rows_of(OLD)]
    found = compare([write(OLD)], [write_tables([pa.Table.from_pylist(rows, SCHEMA)])]).foreign()
    assert found is not None
    assert found.name == "b/c/y"


@RANDOMLY
@given(some_lives(), LIMITS, LIMITS)
def test_how_row_groups_are_cut_makes_no_difference(lives: list[Life], limits: Limits, others: Limits) -> None:
    comparison = compare([write(lives, limits)], [write(lives, others)])
    assert (comparison.foreign(), comparison.rows_dropped) == (None, 0)
