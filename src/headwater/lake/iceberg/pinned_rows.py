"""Pinned rows: rows that are dead under the name of their stream, but that a fork inherits.

    a source        a life with dead rows that forks hold: where its rows are, and which of them are dead
    a fork          the record numbers that it inherits; a chain of forks is followed to the lives that have the rows

A row is one record, and the rows of a life are consecutive in a segment. So which rows are pinned follows from record
numbers alone, and no segment is read for it.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from headwater.lake.catalog import ForkRow
from headwater.lake.scanning import inheritance
from headwater.streams.segments import Extent

Spans = tuple[tuple[int, int], ...]
"""Ranges of rows or records, in order: from a first one up to, but without, another one."""


class Source(NamedTuple):
    """Where the rows of a life are, and the record before which they are dead."""

    extents: tuple[Extent, ...]
    dead_before: int


class PinnedRows:
    """The pinned rows of each segment; for one thread at a time."""

    def __init__(self) -> None:
        self._sources: dict[int, Source] = {}
        self._spans: dict[int, dict[int, Spans]] = {}
        """The pinned rows of each segment, by number and by incarnation."""
        self._homes: dict[int, set[int]] = {}
        """The segments with pinned rows of each incarnation."""
        self._settled: dict[int, tuple[Source, Spans]] = {}
        """What was computed of each incarnation, and from what."""

    def update(self, sources: Iterable[tuple[int, Source | None]]) -> None:
        """Take over what has changed in the state."""
        for incarnation, source in sources:
            if source is None:
                self._sources.pop(incarnation, None)
            else:
                self._sources[incarnation] = source

    def settle(self, forks: Mapping[int, ForkRow]) -> set[int]:
        """Compute the pinned rows for these forks; the numbers of the segments for which they have changed."""
        needed = _needed(forks, self._sources) if self._sources else {}
        touched: set[int] = set()
        for incarnation in [one for one in self._settled if one not in needed]:
            touched |= self._place(incarnation, {})
            del self._settled[incarnation]
        for incarnation, records in needed.items():
            basis = self._sources[incarnation], records
            if self._settled.get(incarnation) != basis:
                touched |= self._place(incarnation, pinned_rows(*basis))
                self._settled[incarnation] = basis
        return touched

    def _place(self, incarnation: int, found: Mapping[int, Spans]) -> set[int]:
        changed = set()
        for number in self._homes.pop(incarnation, set()) | set(found):
            before, after = self._spans.get(number, {}).get(incarnation), found.get(number)
            if before != after:
                changed.add(number)
            lives = self._spans.setdefault(number, {})
            if after:
                lives[incarnation] = after
            else:
                lives.pop(incarnation, None)
            if not lives:
                del self._spans[number]
        if found:
            self._homes[incarnation] = set(found)
        return changed

    @property
    def segments(self) -> Iterable[int]:
        """The numbers of the segments that have pinned rows."""
        return self._spans

    def of(self, number: int) -> Spans:
        """The pinned rows of a segment."""
        return merged(span for spans in self._spans.get(number, {}).values() for span in spans)


def _needed(forks: Mapping[int, ForkRow], sources: Mapping[int, Source]) -> dict[int, Spans]:
    """The records of each source that living forks inherit."""
    by_record = (fork._replace(start=fork.record_start, to=fork.record_to) for fork in forks.values())
    found: dict[int, list[tuple[int, int]]] = {}
    for piece in inheritance(by_record):
        if piece.source_incarnation in sources:
            found.setdefault(piece.source_incarnation, []).append((piece.start, piece.to))
    return {incarnation: merged(spans) for incarnation, spans in found.items()}


def pinned_rows(source: Source, records: Spans) -> dict[int, Spans]:
    """The rows of a source that are dead, but among these records; by segment.

    >>> pinned_rows(Source((Extent(7, row=100, rows=10, start=0, end=0, record=20),), 28), ((0, 22), (25, 99)))
    {7: ((100, 102), (105, 108))}
    """
    found: dict[int, list[tuple[int, int]]] = {}
    for extent in source.extents:
        stop = min(extent.record + extent.rows, source.dead_before)
        shift = extent.row - extent.record
        for first, last in records:
            low, high = max(first, extent.record), min(last, stop)
            if low < high:
                found.setdefault(extent.segment, []).append((low + shift, high + shift))
    return {number: merged(spans) for number, spans in found.items()}


def merged(spans: Iterable[tuple[int, int]]) -> Spans:
    """Ranges in order, without overlaps and without gaps of nothing.

    >>> merged([(5, 7), (0, 2), (2, 3), (6, 9)])
    ((0, 3), (5, 9))
    """
    found: list[tuple[int, int]] = []
    for first, last in sorted(spans):
        if found and first <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], last)
        else:
            found.append((first, last))
    return tuple(found)


def complement(spans: Spans, rows: int) -> Spans:
    """All other rows of a segment.

    >>> complement(((0, 3), (5, 9)), 12)
    ((3, 5), (9, 12))
    """
    bounds = [0, *(bound for span in spans for bound in span), rows]
    pairs = zip(bounds[::2], bounds[1::2], strict=True)
    return tuple((first, last) for first, last in pairs if first < last)
