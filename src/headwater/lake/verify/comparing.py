"""Comparing: whether the rows of rewritten segments are those of their sources, and which rows were dropped.

A rewrite keeps one contiguous range of each life per output and drops the rows before it. So a comparison needs only
the old rows without their payloads, and the ranges of the new segments with a fingerprint of each. Inspecting a new
segment has shown that its payloads are as long as their offsets say; the bytes of payloads are not compared.
"""

from bisect import bisect_left
from collections.abc import Iterable
from itertools import pairwise

import pyarrow as pa

from headwater.lake.format import name_of
from headwater.lake.segments.columns import starts, view
from headwater.lake.verify.fingerprints import MODULUS, Fingerprints
from headwater.streams.segments import Rows

_LIFE = ("bucket", "stream", "incarnation")


class Comparison:
    """Compares old rows with new ones, given the old ones table by table in any order."""

    def __init__(self, rewritten: Iterable[tuple[Rows, int]]) -> None:
        self._ranges: dict[tuple[str, int], list[_Range]] = {}
        for rows, fingerprint in rewritten:
            self._ranges.setdefault((rows.name, rows.incarnation), []).append(_Range(rows, fingerprint))
        for ranges in self._ranges.values():
            ranges.sort(key=lambda kept: kept.rows.start)
        self.rows_dropped = 0
        self.dropped = 0
        """The highest position of a row that no new segment has; 0 if there is no such row."""

    def compare(self, table: pa.Table) -> None:
        """Compare neighbouring rows of an old segment, given all columns that fingerprints need."""
        if not len(table):
            return
        table = table.combine_chunks()
        fingerprints, column = Fingerprints(table), {name: table[name].chunk(0) for name in table.column_names}
        life_rows = starts(column["incarnation"], column["stream"], column["bucket"])
        lives = zip(*(column[name].take(life_rows).to_pylist() for name in _LIFE), strict=True)
        offsets, positions = view(column["offset"]), view(column["position"])
        for (bucket, stream, incarnation), (row, row_end) in zip(
            lives, pairwise([*view(life_rows), len(table)]), strict=True
        ):
            at = row
            for kept in self._ranges.get((name_of(bucket, stream), incarnation), ()):
                first = bisect_left(offsets, kept.rows.start, at, row_end)
                stop = bisect_left(offsets, kept.rows.end, first, row_end)
                self._drop(positions, at, first)
                kept.add(stop - first, fingerprints.of(first, stop))
                at = stop
            self._drop(positions, at, row_end)

    def _drop(self, positions: memoryview, row: int, row_end: int) -> None:
        """Count dropped rows of one life; positions never decrease within it."""
        if row < row_end:
            self.rows_dropped += row_end - row
            self.dropped = max(self.dropped, positions[row_end - 1])

    def foreign(self) -> Rows | None:
        """New rows that differ from the old rows of their life, once all tables were compared."""
        for ranges in self._ranges.values():
            for kept in ranges:
                if not kept.is_complete:
                    return kept.rows
        return None


class _Range:
    """The rows that a new segment has of one life, and how many of them were found among the old rows."""

    __slots__ = ("_expected", "_found", "rows")

    def __init__(self, rows: Rows, fingerprint: int) -> None:
        self.rows, self._expected, self._found = rows, (rows.rows, fingerprint), (0, 0)

    def add(self, count: int, fingerprint: int) -> None:
        self._found = self._found[0] + count, (self._found[1] + fingerprint) % MODULUS

    @property
    def is_complete(self) -> bool:
        return self._found == self._expected
