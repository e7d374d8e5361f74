"""Rewriting: merge the rows of several segments into one sorted sequence, without the dead ones.

Each source is read one row group at a time and cut into pieces: neighbouring rows of one life. The pieces are merged by
name, incarnation and offset. Rows of a life are dropped from its beginning only, and only as whole appends.

A life goes into one output, however large, since a swap replaces its extents by one contiguous range of rows. The
exception is a life with a gap: history that was trimmed while it was hot never reached the lake, and a consumer may
still need the dead rows before it. The rows after the gap then go into another output in parallel, cut at the same
names: the next *layer*. A segment never has gaps within a life.
"""

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import pyarrow as pa

from headwater.lake.format import GROUP_BYTES, GROUP_ROWS, name_of
from headwater.lake.segments.columns import starts, view
from headwater.lake.segments.reader import Read, SegmentDamaged, read_all
from headwater.lake.segments.writer import SegmentWriter, Written
from headwater.protocol.names import bucket_of
from headwater.streams.cold import ALL
from headwater.streams.segments import Segment

PENDING_BYTES = 2 * GROUP_BYTES
PENDING_ROWS = 2 * GROUP_ROWS
"""How many rows, kept or dropped, are collected before they go to the writer. Within one life it is four times as many,
because the writer cuts row groups best when it is given a whole life."""


BORDER_SHARE = 4
"""An output with this part of its full size ends at the border of a bucket: engines then read fewer files for one
bucket. Smaller ones go on, because many small files would cost more than that saves."""


class Keep(NamedTuple):
    """Which rows to keep: those that a life still needs, and those that a consumer has not read."""

    dead_below: Callable[[str, int], int]
    """The offset below which the rows of a life are dead, by name and incarnation; called once for each life."""
    lowest_consumer: int
    """The lowest position of any consumer: rows above it are kept in any case, except those of purged lives."""
    purged: Callable[[str, int], bool] = lambda name, incarnation: False
    """Whether to drop the dead rows of a life, given its name and incarnation, even if a consumer has not read them."""


class Cuts(NamedTuple):
    """When an output is full; it ends before the next life, and earlier where another bucket begins."""

    segment_bytes: int
    streams_max: int


class Rewritten(NamedTuple):
    """The result of a rewrite."""

    rows_read: int
    rows_dropped: int
    dropped: int
    """The highest position of a row that was dropped; 0 if none was."""


class _SourceRows(NamedTuple):
    """Neighbouring rows of one life in a row group; sorted by life and offset."""

    name: str
    incarnation: int
    offset: int
    source: int
    row: int
    row_end: int
    rows: "_Rows"


class _Rows:
    """A row group and views of its numeric columns."""

    __slots__ = ("append", "next_offset", "offset", "position", "table")

    def __init__(self, table: pa.Table) -> None:
        self.table = table
        self.offset, self.next_offset, self.append, self.position = (
            view(table[name].chunk(0)) for name in ("offset", "next_offset", "append", "position")
        )

    def first_kept(self, piece: _SourceRows, dead_below: int, lowest_consumer: int) -> int:
        """The first row of a piece that is kept: the beginning of an append, or the end of the piece."""
        row, row_end = piece.row, piece.row_end
        needed = bisect_right(self.next_offset, dead_below, row, row_end)
        unread = bisect_right(self.position, lowest_consumer, row, needed)
        return unread if unread == row_end else bisect_left(self.append, self.append[unread], row, unread)


def rewrite(
    read_of: Callable[[Segment], Read],
    sources: Sequence[Segment],
    keep: Keep,
    cuts: Cuts,
    *,
    new_id: Callable[[], str],
    put: Callable[[Written], None],
) -> Rewritten:
    """Merge segments into new ones; `put` receives each once it is finished. SegmentDamaged if a source is damaged."""
    outputs = _Outputs(sources, cuts, new_id, put)
    rows_read = rows_dropped = dropped = 0
    life: tuple[str, int] | None = None
    dead_below = unread = end = layer = 0
    for piece in heapq.merge(*(_pieces(read_of(source), source, index) for index, source in enumerate(sources))):
        name, incarnation, offset, _, row, row_end, rows = piece
        if life != (name, incarnation):
            life, end, layer = (name, incarnation), 0, 0
            dead_below = keep.dead_below(name, incarnation)
            unread = ALL if keep.purged(name, incarnation) else keep.lowest_consumer
            outputs.begin_life(name)
        kept = rows.first_kept(piece, dead_below, unread)
        rows_read += row_end - row
        if kept > row:
            rows_dropped += kept - row
            dropped = max(dropped, rows.position[kept - 1])
        if offset < end:
            raise SegmentDamaged(f"Two segments hold rows of {name!r} at {offset}; one of them is wrong.")
        if end and kept < row_end and rows.offset[kept] > end:
            layer += 1
        outputs.add(rows, row, kept, row_end, layer)
        end = rows.next_offset[row_end - 1] if kept < row_end else 0
    outputs.finish()
    if rows_read != sum(source.rows for source in sources) or rows_read != rows_dropped + outputs.rows:
        raise SegmentDamaged(f"The rewrite dropped {rows_dropped} and wrote {outputs.rows} of {rows_read} rows.")
    return Rewritten(rows_read, rows_dropped, dropped)


def _pieces(read: Read, source: Segment, index: int) -> Iterator[_SourceRows]:
    """The pieces of one segment, in order, with one row group in memory."""
    for group in read_all(read, source):
        if not len(group):
            continue
        table = group.combine_chunks()
        # An incarnation is the log position of a creation, so no two streams of a shard share one.
        life_rows = starts(table["incarnation"].chunk(0))
        lives = table.select(["bucket", "stream", "incarnation"]).take(life_rows)
        rows = _Rows(table)
        boundaries = pairwise([*view(life_rows), len(table)])
        for bucket, stream, incarnation, (row, row_end) in zip(
            *(column.to_pylist() for column in lives.columns), boundaries, strict=True
        ):
            yield _SourceRows(name_of(bucket, stream), incarnation, rows.offset[row], index, row, row_end, rows)


class _Outputs:
    """The segments being written: one for each layer."""

    def __init__(
        self, sources: Sequence[Segment], cuts: Cuts, new_id: Callable[[], str], put: Callable[[Written], None]
    ) -> None:
        self._first = min(source.first_position for source in sources)
        self._last = max(source.last_position for source in sources)
        self._cuts, self._new_id, self._put = cuts, new_id, put
        self._writers: list[SegmentWriter | None] = []
        self._pending: list[list[tuple[pa.Table, int, int]]] = []
        self._pending_bytes = self._pending_rows = 0
        self._bytes = self._lives = 0
        self._life_is_kept = False
        self._bucket = ""
        self.rows = 0

    def begin_life(self, name: str) -> None:
        """Begin another life. Outputs end only here."""
        self._life_is_kept = False
        before, self._bucket = self._bucket, bucket_of(name)
        enough = self._cuts.segment_bytes if self._bucket == before else self._cuts.segment_bytes / BORDER_SHARE
        if self._bytes >= enough or self._lives >= self._cuts.streams_max:
            self.finish()
        elif self._pending_bytes >= PENDING_BYTES or self._pending_rows >= PENDING_ROWS:
            self._write()

    def add(self, rows: _Rows, row: int, kept: int, row_end: int, layer: int) -> None:
        """Add rows of one life to a layer: those from `kept` on."""
        # Dropped rows count too: a pending slice keeps its whole row group in memory.
        self._pending_bytes += rows.next_offset[row_end - 1] - rows.offset[row]
        self._pending_rows += row_end - row
        if kept < row_end:
            while len(self._pending) <= layer:
                self._pending.append([])
                self._writers.append(None)
            pending = self._pending[layer]
            if pending and pending[-1][0] is rows.table and pending[-1][2] == kept:
                kept_from = pending.pop()[1]
            else:
                kept_from = kept
            pending.append((rows.table, kept_from, row_end))
            self._bytes += rows.next_offset[row_end - 1] - rows.offset[kept]
            self._lives += not self._life_is_kept
            self._life_is_kept = True
            self.rows += row_end - kept
        if self._pending_bytes >= 4 * PENDING_BYTES or self._pending_rows >= 4 * PENDING_ROWS:
            self._write()

    def _write(self) -> None:
        """Pass the pending rows to the writers."""
        for layer, pending in enumerate(self._pending):
            if pending:
                writer = self._writers[layer]
                if writer is None:
                    writer = self._writers[layer] = SegmentWriter(self._new_id(), self._first, self._last)
                writer.add_table(_together(pending))
                pending.clear()
        self._pending_bytes = self._pending_rows = 0

    def finish(self) -> None:
        """Finish the output of every layer."""
        self._write()
        for layer, writer in enumerate(self._writers):
            if writer is not None:
                self._writers[layer] = None
                self._put(writer.finish())
        self._bytes = self._lives = 0


def _together(spans: list[tuple[pa.Table, int, int]]) -> pa.Table:
    """Slices of several tables as one table."""
    tables = [table.slice(row, row_end - row) for table, row, row_end in spans]
    if len(tables) == 1 and 2 * len(tables[0]) < len(spans[0][0]):
        # Copied, because a few rows waiting in the writer would otherwise keep a whole row group in memory.
        return tables[0].take(pa.arange(0, len(tables[0])))
    return pa.concat_tables(tables)
