"""Selections: rows of row groups by life and offset, and rows of several tables in one order."""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import chain

import msgspec
import pyarrow as pa

from headwater.lake.segments.columns import view
from headwater.lake.segments.reader import SegmentDamaged


class RowRange(msgspec.Struct, frozen=True, gc=False):
    """Consecutive rows of a table."""

    row: int
    rows: int


class Choice(msgspec.Struct, frozen=True, gc=False):
    """The messages of one life that begin between two offsets, among some rows of a row group."""

    row: int
    rows: int
    incarnation: int
    start: int
    until: int


def choose(table: pa.Table, choices: Sequence[Choice]) -> tuple[pa.Table, list[int]]:
    """The rows that each choice selects from one row group, in the order of choices, and how many each selects."""
    offset, incarnation = (view(table[name].chunk(0)) for name in ("offset", "incarnation"))
    spans: list[RowRange] = []
    for choice in choices:
        row, end = choice.row, choice.row + choice.rows
        if incarnation[row] != choice.incarnation or incarnation[end - 1] != choice.incarnation:
            raise SegmentDamaged(f"The rows {row} to {end} of a row group are not of the life {choice.incarnation}.")
        if offset[row] < choice.start:
            row = bisect_left(offset, choice.start, row, end)
        if row < end and offset[end - 1] >= choice.until:
            end = bisect_left(offset, choice.until, row, end)
        spans.append(RowRange(row, end - row))
    rows = sum(span.rows for span in spans)
    # A slice keeps the whole table in memory.
    return arranged(table, spans, slices=2 * rows >= len(table)), [span.rows for span in spans]


def arranged(table: pa.Table, spans: Iterable[RowRange], *, slices: bool = True) -> pa.Table:
    """The rows of a table in another order, or some of them; not copied if they are one slice of it."""
    merged: list[RowRange] = []
    for span in spans:
        if merged and merged[-1].row + merged[-1].rows == span.row:
            merged[-1] = RowRange(merged[-1].row, merged[-1].rows + span.rows)
        elif span.rows:
            merged.append(span)
    if not merged:
        return table.slice(0, 0)
    if len(merged) == 1 and slices:
        return table.slice(merged[0].row, merged[0].rows)
    rows = array("q", chain.from_iterable(range(span.row, span.row + span.rows) for span in merged))
    return table.combine_chunks().take(pa.Array.from_buffers(pa.int64(), len(rows), [None, pa.py_buffer(rows)]))
