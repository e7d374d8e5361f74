"""Filters that Spark pushes down are applied exactly, or left to Spark."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringStartsWith,
)

from headwater.lake.format import SCHEMA
from headwater.spark.source.filters import NO_CONDITIONS, Bounds, Conditions, accept

COLUMNS = SCHEMA.names
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def accepted(*filters: Filter) -> Conditions:
    found, left = accept(filters, COLUMNS)
    assert left == []
    return found


@pytest.mark.parametrize(
    "one",
    [
        Not(EqualTo(("stream",), "x")),
        IsNull(("stream",)),
        StringContains(("stream",), "x"),
        EqualTo(("payload",), b"x"),
        EqualTo(("producer_id",), "x"),
        EqualTo(("producer_epoch",), 1),
        IsNotNull(("producer_id",)),
        EqualTo(("value",), "x"),
        EqualTo(("stream", "x"), "x"),
        EqualTo(("offset",), 1.5),
        EqualTo(("offset",), 2**63),
        EqualTo(("stream",), None),
        GreaterThan(("stream",), "x"),
        GreaterThan(("offset",), 2**63 - 1),
        In(("offset",), ()),
        In(("offset",), (1, None)),
        In(("stream",), ("x", None)),
    ],
)
def test_filters_that_the_source_cannot_apply_are_left_to_spark(one: Filter) -> None:
    assert accept([one], COLUMNS) == (NO_CONDITIONS, [one])


def test_a_column_that_is_not_read_is_left_to_spark() -> None:
    one = EqualTo(("stream",), "x")
    assert accept([one], ["offset"]) == (NO_CONDITIONS, [one])


def test_a_column_that_is_never_null_needs_no_condition() -> None:
    assert accepted(IsNotNull(("stream",)), IsNotNull(("position",))) == NO_CONDITIONS
    one = IsNotNull(("position",))
    assert accept([one], COLUMNS, never_null=False) == (NO_CONDITIONS, [one])


def test_bounds_are_combined() -> None:
    found = accepted(GreaterThan(("offset",), 4), LessThanOrEqual(("offset",), 9), In(("offset",), (1, 6, 8)))
    assert found.bounds_of("offset") == Bounds(5, 8)
    assert found.bounds_of("position") == Bounds()
    assert found.columns == {"offset"}


def test_times_are_microseconds_in_any_time_zone() -> None:
    at = datetime(2026, 1, 1, 12, tzinfo=UTC)
    for given_time in (at, at.astimezone(tz=None), at.replace(tzinfo=None)):
        low, _ = accepted(GreaterThanOrEqual(("committed_at",), given_time)).bounds_of("committed_at")
        assert EPOCH + timedelta(microseconds=low) == at or given_time.tzinfo is None


def test_names_that_cannot_match_are_known() -> None:
    found = accepted(In(("bucket",), ("a", "b")), StringStartsWith(("stream",), "run-"))
    assert found.may_match("bucket", "a") and not found.may_match("bucket", "c")
    assert found.may_match("stream", "run-1") and not found.may_match("stream", "ru")
    assert found.may_match_between("stream", "a", "z") and found.may_match_between("stream", "run-5", "run-6")
    assert not found.may_match_between("stream", "a", "b") and not found.may_match_between("stream", "s", "t")
    assert found.may_match_between("bucket", "b", "c") and not found.may_match_between("bucket", "c", "d")


NAMES = st.sampled_from(["a", "ab", "b", "run-1", "run-2"])
NUMBERS = st.integers(-3, 6)
TIMES = NUMBERS.map(lambda number: EPOCH + timedelta(microseconds=number))
OF_NUMBERS = (EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)
FILTERS: st.SearchStrategy[Filter] = st.one_of(
    st.builds(lambda kind, name, value: kind((name,), value), st.sampled_from(OF_NUMBERS), st.just("offset"), NUMBERS),
    st.builds(lambda kind, value: kind(("committed_at",), value), st.sampled_from(OF_NUMBERS), TIMES),
    st.builds(lambda values: In(("record",), tuple(values)), st.lists(NUMBERS, min_size=1)),
    st.builds(
        lambda column, values: In((column,), tuple(values)), st.sampled_from(["bucket", "stream"]), st.lists(NAMES)
    ),
    st.builds(lambda column, value: EqualTo((column,), value), st.sampled_from(["bucket", "stream"]), NAMES),
    st.builds(lambda value: StringStartsWith(("stream",), value[:2]), NAMES),
)


def holds(one: Any, row: dict[str, Any]) -> bool:
    """Whether a row passes a filter, according to SQL."""
    value, limit = row[one.attribute[0]], one.value
    match one:
        case EqualTo() | EqualNullSafe():
            return bool(value == limit)
        case In():
            return value in limit
        case StringStartsWith():
            return bool(value.startswith(limit))
        case GreaterThan():
            return bool(value > limit)
        case GreaterThanOrEqual():
            return bool(value >= limit)
        case LessThan():
            return bool(value < limit)
    return bool(value <= limit)


@settings(deadline=None)
@given(st.lists(st.tuples(NAMES, NAMES, NUMBERS, NUMBERS, TIMES), max_size=8), st.lists(FILTERS, max_size=3))
def test_accepted_filters_are_applied_exactly(rows: list[tuple[Any, ...]], filters: list[Filter]) -> None:
    columns = ("bucket", "stream", "offset", "record", "committed_at")
    schema = pa.schema([SCHEMA.field(name) for name in columns])
    plain = [dict(zip(columns, row, strict=True)) for row in rows]
    found = accepted(*filters)
    expected = [row for row in plain if all(holds(one, row) for one in filters)]
    assert found.matching(pa.Table.from_pylist(plain, schema)).to_pylist() == expected
    for row in expected:
        assert found.may_match("bucket", row["bucket"]) and found.may_match("stream", row["stream"])
        assert found.may_match_between("stream", row["stream"], row["stream"])
        low, high = found.bounds_of("offset")
        assert low <= row["offset"] <= high
