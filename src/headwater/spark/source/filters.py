"""Filters that Spark pushes down: which of them are met here, and what they spare the planner.

Those that are taken are met exactly, row by row, where rows are read. Beside that they say which streams, positions and
times need not be looked at in the first place.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
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

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LOWEST = -(2**63)

WORDS = ("bucket", "stream", "content_type")
NUMBERS = ("incarnation", "offset", "next_offset", "record", "append", "position", "committed_at")
"""Columns that are never null: what is not equal is unequal, and nothing is unknown."""


class Bounds(NamedTuple):
    """The lowest and the highest number that is asked for; times are in microseconds since 1970."""

    low: int = LOWEST
    high: int = EVER

    def within(self, other: "Bounds") -> "Bounds":
        return Bounds(max(self.low, other.low), min(self.high, other.high))

    def meet(self, lowest: int, highest: int) -> bool:
        """Whether a number between these two can be asked for."""
        return lowest <= self.high and highest >= self.low


class Conditions(NamedTuple):
    """What rows must meet: values of words, beginnings of words, and bounds of numbers, by column."""

    words: tuple[tuple[str, frozenset[str]], ...] = ()
    beginnings: tuple[tuple[str, str], ...] = ()
    bounds: tuple[tuple[str, Bounds], ...] = ()
    numbers: tuple[tuple[str, frozenset[int]], ...] = ()

    @property
    def columns(self) -> frozenset[str]:
        """The columns that must be read to know."""
        return frozenset(column for group in self for column, _ in group)

    def also(self, other: "Conditions") -> "Conditions":
        """These and others."""
        return Conditions(
            self.words + other.words,
            self.beginnings + other.beginnings,
            self.bounds + other.bounds,
            self.numbers + other.numbers,
        )

    def bounds_of(self, column: str) -> Bounds:
        """Between which numbers a column must lie."""
        known = [bounds for name, bounds in self.bounds if name == column]
        known += [Bounds(min(values), max(values)) for name, values in self.numbers if name == column and values]
        return reduce(Bounds.within, known, Bounds())

    def may_have(self, column: str, value: str) -> bool:
        """Whether rows with this word are asked for."""
        return all(value in values for name, values in self.words if name == column) and all(
            value.startswith(beginning) for name, beginning in self.beginnings if name == column
        )

    def may_have_between(self, column: str, first: str, last: str) -> bool:
        """Whether rows with a word from `first` to `last` can be asked for."""
        return all(
            any(first <= value <= last for value in values) for name, values in self.words if name == column
        ) and all(
            last >= beginning and (first <= beginning or first.startswith(beginning))
            for name, beginning in self.beginnings
            if name == column
        )

    def met_by(self, table: pa.Table) -> pa.Table:
        """The rows of a table that meet all of it."""
        masks = [
            pc.is_in(table[column], value_set=pa.array(sorted(values), pa.string())) for column, values in self.words
        ]
        masks += [pc.starts_with(table[column], pattern=beginning) for column, beginning in self.beginnings]
        for column, values in self.numbers:
            masks.append(pc.is_in(_numbers(table, column), value_set=pa.array(sorted(values), pa.int64())))
        for column, bounds in self.bounds:
            known = _numbers(table, column)
            masks += [pc.greater_equal(known, bounds.low), pc.less_equal(known, bounds.high)]
        return table.filter(reduce(pc.and_, masks)) if masks else table


ANY = Conditions()


def _numbers(table: pa.Table, column: str) -> pa.ChunkedArray:
    return table[column].cast(pa.int64())


def conditions(
    filters: Iterable[Filter], columns: Sequence[str], *, never_null: bool = True
) -> tuple[Conditions, list[Filter]]:
    """What can be met here of some filters, and the filters that are left to Spark.

    Rows of the lake are never null in a column that must not be; others may be.
    """
    found, left = ANY, []
    for one in filters:
        taken = _taken(one, columns, never_null)
        if taken is None:
            left.append(one)
        else:
            found = found.also(taken)
    return found, left


def _taken(one: Filter, columns: Sequence[str], never_null: bool) -> Conditions | None:
    """A filter as conditions; None if it is not for us."""
    path: Any = getattr(one, "attribute", ())
    if len(path) != 1 or path[0] not in SCHEMA.names or path[0] not in columns:
        return None
    column = path[0]
    if isinstance(one, IsNotNull):
        return ANY if never_null and not SCHEMA.field(column).nullable else None
    if column in WORDS:
        return _of_words(one, column)
    return _of_numbers(one, column) if column in NUMBERS else None


def _of_words(one: Filter, column: str) -> Conditions | None:
    match one:
        case EqualTo(_, str() as value) | EqualNullSafe(_, str() as value):
            return Conditions(words=((column, frozenset({value})),))
        case In(_, values) if all(isinstance(value, str) for value in values):
            return Conditions(words=((column, frozenset(values)),))
        case StringStartsWith(_, value):
            return Conditions(beginnings=((column, value),))
    return None


def _of_numbers(one: Filter, column: str) -> Conditions | None:
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
    """A number, or a time as one; None if it is neither, or would not fit."""
    if isinstance(value, datetime):
        since = (value if value.tzinfo else value.replace(tzinfo=UTC)) - EPOCH
        return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value if is_number and LOWEST <= value <= EVER else None
