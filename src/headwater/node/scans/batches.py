"""Batches: turns the parts of a window into one encoded Arrow batch. All of it runs in threads."""

from collections.abc import Iterable, Sequence
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from headwater.lake.format import SCHEMA
from headwater.lake.relabeling import StreamRange, relabel
from headwater.lake.segments.columns import Life, Lives
from headwater.lake.segments.reader import Footer
from headwater.lake.segments.selection import Choice, RowRange, arranged
from headwater.node.scans.windows import ColdPart, HotPart, Part, Times

END = b"\xff\xff\xff\xff\x00\x00\x00\x00"
"""The end mark of an Arrow stream."""

_NAMES = ("bucket", "stream")
_SELECTED_BY = ("incarnation", "offset", "next_offset")

Chosen = tuple[pa.Table, list[tuple[int, int]]]
"""Rows of one row group, and for each run of them the part of the window it belongs to and its length, in order."""
Needs = dict[tuple[str, int], tuple[list[int], list[Choice]]]
"""For each row group, by the segment's id and the group's index: the parts that need rows of it, and which rows."""


class Projection:
    """The columns of the result, and those that must be read to make them."""

    def __init__(self, columns: Iterable[str] | None, times: Times) -> None:
        wanted = frozenset(SCHEMA.names if columns is None else columns)
        self.times = times
        self.timed = times != Times()
        self.schema = pa.schema([field for field in SCHEMA if field.name in wanted])
        needed = wanted.union(_SELECTED_BY, ["committed_at"] if self.timed else []).difference(_NAMES)
        self.needed = tuple(name for name in SCHEMA.names if name in needed)
        """Columns to read: names come from the plan, all others from the rows."""
        self._rows = pa.schema([SCHEMA.field(name) for name in self.needed])

    @property
    def payloads(self) -> bool:
        return "payload" in self.needed

    def hot(self, lives: Lives) -> pa.Table:
        """The needed columns of appends in memory."""
        return lives.table(self.needed).cast(self._rows)

    def finished(self, rows: pa.Table, ranges: Sequence[StreamRange], row_ends: Sequence[int]) -> pa.Table:
        """The rows in the time range, under the names of the streams that inherit them, in the requested columns."""
        if not self.timed:
            return relabel(rows, ranges, row_ends, self.schema)
        fields = [SCHEMA.field(name) for name in SCHEMA.names if name in {*self.schema.names, "committed_at"}]
        rows = relabel(rows, ranges, row_ends, pa.schema(fields))
        at = rows["committed_at"].cast(pa.int64())
        kept = pc.and_(pc.greater_equal(at, self.times.since), pc.less(at, self.times.until))
        return rows.filter(kept).select(self.schema.names)


def needs(window: Sequence[Part], footers: dict[str, Footer]) -> Needs:
    """Which rows of which row groups the parts of a window may need, each group once and in order."""
    found: Needs = {}
    for index, part in enumerate(window):
        if isinstance(part, ColdPart):
            for piece in footers[part.segment.id].locate(part.extent, part.start, part.until):
                indexes, choices = found.setdefault((part.segment.id, piece.group), ([], []))
                indexes.append(index)
                choices.append(Choice(piece.row, piece.rows, part.incarnation, part.start, part.until))
    # A part takes its rows from one segment, group after group, but an earlier part may have needed a later group.
    return dict(sorted(found.items()))


def encode(window: Sequence[Part], chosen: Sequence[Chosen], projection: Projection) -> pa.Buffer | None:
    """The rows of a window, in order, as a message of an Arrow stream; None if there are none.

    `chosen` holds the row groups of a segment in their order.
    """
    spans: list[list[RowRange]] = [[] for _ in window]
    lives = Lives()
    for index, part in enumerate(window):
        if isinstance(part, HotPart):
            span = part.span
            spans[index].append(RowRange(lives.rows + span.row, span.rows))
            life = Life(part.range.bucket, part.range.stream, part.range.incarnation, part.content_type)
            lives.add(life, part.appends[part.first : part.stop], part.rows)
    tables, row = [projection.hot(lives)] if lives.rows else [], lives.rows
    for table, counts in chosen:
        tables.append(table)
        for index, count in counts:
            spans[index].append(RowRange(row, count))
            row += count
    ranges: list[StreamRange] = []
    row_ends: list[int] = []
    total = 0
    for part, its_spans in zip(window, spans, strict=True):
        rows = sum(span.rows for span in its_spans)
        if rows:
            total += rows
            ranges.append(part.range)
            row_ends.append(total)
    if not total:
        return None
    together = arranged(pa.concat_tables(tables), chain.from_iterable(spans))
    finished = projection.finished(together, ranges, row_ends).combine_chunks()
    return finished.to_batches()[0].serialize() if len(finished) else None
