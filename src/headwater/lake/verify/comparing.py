"""Comparing: what became of the rows of some segments in those that are to take their place.

A rewrite keeps of each life one stretch of bytes per output, and drops the rows before it. So it takes no more than the
old rows without their payloads, and the stretches that the new segments have with the fingerprint of each, to tell
whether the new rows are old ones, and up to which position any were dropped. A payload is as long as the offsets beside
it say, which a new segment was inspected for; what its bytes are is not compared.
"""

from bisect import bisect_left
from collections.abc import Iterable
from itertools import pairwise

import pyarrow as pa

from headwater.lake.columns import starts, view
from headwater.lake.format import name_of
from headwater.lake.verify.fingerprints import MODULUS, Fingerprints
from headwater.streams.segments import Rows

_LIFE = ("bucket", "stream", "incarnation")


class Comparison:
    """Looks at the old rows one table after the other, in any order."""

    def __init__(self, rewritten: Iterable[tuple[Rows, int]]) -> None:
        self._stretches: dict[tuple[str, int], list[_Stretch]] = {}
        for rows, fingerprint in rewritten:
            self._stretches.setdefault((rows.name, rows.incarnation), []).append(_Stretch(rows, fingerprint))
        for stretches in self._stretches.values():
            stretches.sort(key=lambda stretch: stretch.rows.start)
        self.rows_dropped = 0
        self.dropped = 0
        """The highest position of a row that is in none of the new segments; 0 if there is no such row."""

    def look(self, table: pa.Table) -> None:
        """Take neighbouring rows of an old segment into account, with all that goes into fingerprints."""
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
            for stretch in self._stretches.get((name_of(bucket, stream), incarnation), ()):
                first = bisect_left(offsets, stretch.rows.start, at, row_end)
                stop = bisect_left(offsets, stretch.rows.end, first, row_end)
                self._drop(positions, at, first)
                stretch.found(stop - first, fingerprints.of(first, stop))
                at = stop
            self._drop(positions, at, row_end)

    def _drop(self, positions: memoryview, row: int, row_end: int) -> None:
        """Rows of one life that are gone; a later one never has a lower position."""
        if row < row_end:
            self.rows_dropped += row_end - row
            self.dropped = max(self.dropped, positions[row_end - 1])

    def foreign(self) -> Rows | None:
        """New rows that are not the old ones of their life, when all tables were looked at."""
        for stretches in self._stretches.values():
            for stretch in stretches:
                if not stretch.is_whole:
                    return stretch.rows
        return None


class _Stretch:
    """What a new segment has of one life, and how much of it was found among the old rows."""

    __slots__ = ("_found", "_wanted", "rows")

    def __init__(self, rows: Rows, fingerprint: int) -> None:
        self.rows, self._wanted, self._found = rows, (rows.rows, fingerprint), (0, 0)

    def found(self, count: int, fingerprint: int) -> None:
        self._found = self._found[0] + count, (self._found[1] + fingerprint) % MODULUS

    @property
    def is_whole(self) -> bool:
        return self._found == self._wanted
