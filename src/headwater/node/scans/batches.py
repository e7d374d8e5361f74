"""Batches: the parts of a window become rows of one Arrow batch, encoded; all of it is work for a thread."""

from collections.abc import Iterable, Sequence
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from headwater.lake.columns import Life, Lives
from headwater.lake.format import SCHEMA
from headwater.lake.reader import Footer
from headwater.lake.relabeling import StreamRange, relabel
from headwater.lake.selection import Choice, RowRange, arranged
from headwater.node.scans.windows import ColdPart, HotPart, Part, Times

END = b"\xff\xff\xff\xff\x00\x00\x00\x00"
"""What an Arrow stream ends with."""

_NAMES = ("bucket", "stream")
_JUDGED_BY = ("incarnation", "offset", "next_offset")

Chosen = tuple[pa.Table, list[tuple[int, int]]]
"""Rows of one row group: which part of the window each has so many of, one behind the other."""
Needs = dict[tuple[str, int], tuple[list[int], list[Choice]]]
"""What is needed of each row group, by the segment's id and the group's index: for which parts, and which rows."""


class Projection:
    """The columns that somebody asks for, and those that must be looked at to make them."""

    def __init__(self, columns: Iterable[str] | None, times: Times) -> None:
        asked = frozenset(SCHEMA.names if columns is None else columns)
        self.times = times
        self.timed = times != Times()
        self.schema = pa.schema([field for field in SCHEMA if field.name in asked])
        needed = asked.union(_JUDGED_BY, ["committed_at"] if self.timed else []).difference(_NAMES)
        self.needed = tuple(name for name in SCHEMA.names if name in needed)
        """Names come from the plan; the other columns from where the rows are."""
        self._rows = pa.schema([SCHEMA.field(name) for name in self.needed])

    @property
    def payloads(self) -> bool:
        return "payload" in self.needed

    def hot(self, lives: Lives) -> pa.Table:
        """The columns that are needed of appends in memory."""
        return lives.table(self.needed).cast(self._rows)

    def finished(self, rows: pa.Table, heirs: Sequence[StreamRange], row_ends: Sequence[int]) -> pa.Table:
        """Rows under the names of their heirs, those of the right time, in the columns that are asked for."""
        if not self.timed:
            return relabel(rows, heirs, row_ends, self.schema)
        fields = [SCHEMA.field(name) for name in SCHEMA.names if name in {*self.schema.names, "committed_at"}]
        rows = relabel(rows, heirs, row_ends, pa.schema(fields))
        at = rows["committed_at"].cast(pa.int64())
        kept = pc.and_(pc.greater_equal(at, self.times.since), pc.less(at, self.times.until))
        return rows.filter(kept).select(self.schema.names)


def needs(window: Sequence[Part], footers: dict[str, Footer]) -> Needs:
    """Which rows of which row groups the parts of a window may have, each group once and in order."""
    found: Needs = {}
    for index, part in enumerate(window):
        if isinstance(part, ColdPart):
            for piece in footers[part.segment.id].locate(part.extent, part.start, part.until):
                indexes, choices = found.setdefault((part.segment.id, piece.group), ([], []))
                indexes.append(index)
                choices.append(Choice(piece.row, piece.rows, part.incarnation, part.start, part.until))
    # A part has its rows from one segment, group after group; another may have needed the later ones first.
    return dict(sorted(found.items()))


def encode(window: Sequence[Part], chosen: Sequence[Chosen], projection: Projection) -> pa.Buffer | None:
    """The rows of a window, in order, as a message of an Arrow stream; None if there are none.

    What was chosen of a segment's row groups stands in the order of the groups.
    """
    spans: list[list[RowRange]] = [[] for _ in window]
    lives = Lives()
    for index, part in enumerate(window):
        if isinstance(part, HotPart):
            span = part.span
            spans[index].append(RowRange(lives.rows + span.row, span.rows))
            life = Life(part.heir.bucket, part.heir.stream, part.heir.incarnation, part.content_type)
            lives.add(life, part.appends[part.first : part.stop], part.rows)
    tables, row = [projection.hot(lives)] if lives.rows else [], lives.rows
    for table, counts in chosen:
        tables.append(table)
        for index, count in counts:
            spans[index].append(RowRange(row, count))
            row += count
    heirs: list[StreamRange] = []
    row_ends: list[int] = []
    total = 0
    for part, its_spans in zip(window, spans, strict=True):
        rows = sum(span.rows for span in its_spans)
        if rows:
            total += rows
            heirs.append(part.heir)
            row_ends.append(total)
    if not total:
        return None
    together = arranged(pa.concat_tables(tables), chain.from_iterable(spans))
    finished = projection.finished(together, heirs, row_ends).combine_chunks()
    return finished.to_batches()[0].serialize() if len(finished) else None
