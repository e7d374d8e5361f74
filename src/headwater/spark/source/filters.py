"""Filters that Spark pushes down: which of them the source applies, and what they let the planner skip.

The source applies every filter that it accepts exactly, row by row. In addition, the planner uses them to skip streams,
positions and times that cannot match.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import reduce
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from headwater.lake.format import SCHEMA
from headwater.lake.scanning import EVER
from headwater.spark.options.source import Selection
from headwater.spark.options.values import microseconds

LOWEST = -(2**63)

STRING_COLUMNS = ("bucket", "stream", "content_type")
NUMBER_COLUMNS = ("incarnation", "offset", "next_offset", "record", "append", "position", "committed_at")
"""Columns that are never null, so that a comparison is always true or false, never unknown."""


class Bounds(NamedTuple):
    """The lowest and the highest number that matches; times are in microseconds since 1970."""

    low: int = LOWEST
    high: int = EVER

    def within(self, other: "Bounds") -> "Bounds":
        """The numbers that both bounds allow."""
        return Bounds(max(self.low, other.low), min(self.high, other.high))

    def overlap(self, lowest: int, highest: int) -> bool:
        """Whether any number from `lowest` to `highest` matches."""
        return lowest <= self.high and highest >= self.low


class Conditions(NamedTuple):
    """What rows must match, by column: one of some strings, a prefix, one of some numbers, or bounds."""

    strings: tuple[tuple[str, frozenset[str]], ...] = ()
    prefixes: tuple[tuple[str, str], ...] = ()
    bounds: tuple[tuple[str, Bounds], ...] = ()
    numbers: tuple[tuple[str, frozenset[int]], ...] = ()

    @property
    def columns(self) -> frozenset[str]:
        """The columns that the conditions are on."""
        return frozenset(column for group in self for column, _ in group)

    def combined(self, other: "Conditions") -> "Conditions":
        """These conditions and the others."""
        return Conditions(
            self.strings + other.strings,
            self.prefixes + other.prefixes,
            self.bounds + other.bounds,
            self.numbers + other.numbers,
        )

    def bounds_of(self, column: str) -> Bounds:
        """The bounds of a column, from all conditions on it."""
        known = [bounds for name, bounds in self.bounds if name == column]
        known += [Bounds(min(values), max(values)) for name, values in self.numbers if name == column and values]
        return reduce(Bounds.within, known, Bounds())

    def may_match(self, column: str, value: str) -> bool:
        """Whether rows with this string in the column can match."""
        return all(value in values for name, values in self.strings if name == column) and all(
            value.startswith(prefix) for name, prefix in self.prefixes if name == column
        )

    def may_match_between(self, column: str, first: str, last: str) -> bool:
        """Whether rows with a string from `first` to `last` in the column can match."""
        return all(
            any(first <= value <= last for value in values) for name, values in self.strings if name == column
        ) and all(may_start_with(prefix, first, last) for name, prefix in self.prefixes if name == column)

    def matching(self, table: pa.Table) -> pa.Table:
        """The rows of a table that match all conditions."""
        masks = [
            pc.is_in(table[column], value_set=pa.array(sorted(values), pa.string())) for column, values in self.strings
        ]
        masks += [pc.starts_with(table[column], pattern=prefix) for column, prefix in self.prefixes]
        for column, values in self.numbers:
            masks.append(pc.is_in(_numbers(table, column), value_set=pa.array(sorted(values), pa.int64())))
        for column, bounds in self.bounds:
            numbers = _numbers(table, column)
            masks += [pc.greater_equal(numbers, bounds.low), pc.less_equal(numbers, bounds.high)]
        return table.filter(reduce(pc.and_, masks)) if masks else table


NO_CONDITIONS = Conditions()


def may_start_with(prefix: str, first: str, last: str) -> bool:
    """Whether any string from `first` to `last` can start with a prefix.

    >>> may_start_with("run-", "a", "z"), may_start_with("run-", "run-5", "run-6"), may_start_with("run-", "s", "t")
    (True, True, False)
    """
    return last >= prefix and (first <= prefix or first.startswith(prefix))


def _numbers(table: pa.Table, column: str) -> pa.ChunkedArray:
    return table[column].cast(pa.int64())


def accept(
    filters: Iterable[Filter], columns: Sequence[str], *, never_null: bool = True
) -> tuple[Conditions, list[Filter]]:
    """The filters that the source applies, as conditions, and the filters that are left to Spark.

    `never_null` says that columns that are not nullable in the lake hold no nulls. That is not so when snapshots are
    among the rows.
    """
    accepted, left = NO_CONDITIONS, []
    for one in filters:
        conditions = _conditions(one, columns, never_null)
        if conditions is None:
            left.append(one)
        else:
            accepted = accepted.combined(conditions)
    return accepted, left


def _conditions(one: Filter, columns: Sequence[str], never_null: bool) -> Conditions | None:
    """A filter as conditions; None if the source cannot apply it."""
    path: Any = getattr(one, "attribute", ())
    if len(path) != 1 or path[0] not in SCHEMA.names or path[0] not in columns:
        return None
    column = path[0]
    if isinstance(one, IsNotNull):
        return NO_CONDITIONS if never_null and not SCHEMA.field(column).nullable else None
    if column in STRING_COLUMNS:
        return _on_strings(one, column)
    return _on_numbers(one, column) if column in NUMBER_COLUMNS else None


def _on_strings(one: Filter, column: str) -> Conditions | None:
    match one:
        case EqualTo(_, str() as value) | EqualNullSafe(_, str() as value):
            return Conditions(strings=((column, frozenset({value})),))
        case In(_, values) if all(isinstance(value, str) for value in values):
            return Conditions(strings=((column, frozenset(values)),))
        case StringStartsWith(_, value):
            return Conditions(prefixes=((column, value),))
    return None


def _on_numbers(one: Filter, column: str) -> Conditions | None:
    if isinstance(one, In):
        numbers = [_number(value) for value in one.value]
        known = frozenset(number for number in numbers if number is not None)
        return Conditions(numbers=((column, known),)) if known and None not in numbers else None
    number = _number(getattr(one, "value", None))
    if number is None:
        return None
    match one:
        case EqualTo() | EqualNullSafe():
            bounds = Bounds(number, number)
        case GreaterThan() if number < EVER:
            bounds = Bounds(low=number + 1)
        case GreaterThanOrEqual():
            bounds = Bounds(low=number)
        case LessThan() if number > LOWEST:
            bounds = Bounds(high=number - 1)
        case LessThanOrEqual():
            bounds = Bounds(high=number)
        case _:
            return None
    return Conditions(bounds=((column, bounds),))


def _number(value: Any) -> int | None:
    """A number, or a time in microseconds; None for anything else, and for numbers beyond 64 bits."""
    if isinstance(value, datetime):
        return microseconds(value)
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value if is_number and LOWEST <= value <= EVER else None


# -- What a task returns -----------------------------------------------------------------------------------------------


class RowQuery(NamedTuple):
    """The columns to return, the selected streams, and the filters that Spark pushed down."""

    columns: frozenset[str]
    selection: Selection
    conditions: Conditions

    def columns_with(self, more: frozenset[str]) -> list[str]:
        """The columns to read: those returned, those that conditions check, and `more`; in the lake's order."""
        needed = self.columns | self.conditions.columns | more
        return [name for name in SCHEMA.names if name in needed]

    def matching_names(self, table: pa.Table) -> pa.Table:
        """The rows whose streams are selected; each distinct name is tested once."""
        names = pc.binary_join_element_wise(table["bucket"], table["stream"], "/")
        selected = [name for name in pc.unique(names).to_pylist() if self.selection.has(name)]
        return table.filter(pc.is_in(names, value_set=pa.array(selected, pa.string())))
