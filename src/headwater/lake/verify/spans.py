"""Spans: the rows of one life in one segment, summarized; and all spans of a lake in order, however many there are.

Each segment is read once, and its spans are written to a temporary file. The files are merged by name, incarnation and
offset with one batch of each in memory, so that memory does not grow with the lake.
"""

import heapq
from collections.abc import Iterator
from functools import reduce
from itertools import count, groupby, pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple, Self

import pyarrow as pa
import pyarrow.compute as pc

from headwater.lake.catalog import Catalog
from headwater.lake.format import name_of
from headwater.lake.scanning import alive, may_have
from headwater.lake.segments.columns import starts, view
from headwater.lake.segments.object_files import read_columns
from headwater.storage.store import Store

COLUMNS = ("bucket", "stream", "incarnation", "offset", "next_offset", "record", "append", "position", "committed_at")
"""The columns that spans are derived from: the first of a segment, adjacent in each row group."""
_TAKEN = ("bucket", "stream", "incarnation", "offset", "next_offset", "record", "position")
BATCH_ROWS = 250
FAN_IN = 128
"""Files that are open at the same time."""


class LifeRows(NamedTuple):
    """Neighbouring rows of one life; sorted by life and offset."""

    name: str
    incarnation: int
    start: int
    end: int
    record: int
    rows: int
    live_rows: int
    live_bytes: int
    first_position: int
    last_position: int
    first_at: int
    """The time of the first live row, if there is one."""
    last_at: int
    segment: int
    """The index of the segment in the catalog."""
    row: int

    def joined(self, other: "LifeRows") -> "LifeRows":
        """This span joined with the next one of the same life and segment."""
        return other._replace(
            start=self.start,
            record=self.record,
            rows=self.rows + other.rows,
            live_rows=self.live_rows + other.live_rows,
            live_bytes=self.live_bytes + other.live_bytes,
            first_position=self.first_position,
            first_at=self.first_at if self.live_rows else other.first_at,
            row=self.row,
        )


_SCHEMA = pa.schema([(name, pa.string() if name == "name" else pa.int64()) for name in LifeRows._fields])


def spans_of(table: pa.Table, tombstones: pa.Table, segment: int, row: int) -> list[LifeRows]:
    """The spans of neighbouring rows, the first of which is row number `row` of its segment."""
    if not len(table):
        return []
    live = alive(table, tombstones)
    live_bytes = pc.if_else(live, pc.subtract(table["next_offset"], table["offset"]), 0)
    so_far = [pc.cumulative_sum(values.combine_chunks()) for values in (live.cast(pa.int64()), live_bytes)]
    table = table.combine_chunks()
    first = starts(*(table[name].chunk(0) for name in ("incarnation", "stream", "bucket")))
    stops = [*view(first)[1:], len(table)]
    last = pa.array([stop - 1 for stop in stops], pa.int64())
    # Times are left out: Python may not be able to represent some.
    taken = table.select(_TAKEN)
    firsts, lasts = (taken.take(rows).to_pydict() for rows in (first, last))
    live_rows, sizes = ([to - since for since, to in pairwise([0, *sums.take(last).to_pylist()])] for sums in so_far)
    # The live rows of a life are its last ones.
    living = pa.array([stop - max(rows, 1) for stop, rows in zip(stops, live_rows, strict=True)], pa.int64())
    times = table["committed_at"].chunk(0).cast(pa.int64())
    first_at, last_at = (times.take(rows).to_pylist() for rows in (living, last))
    return [
        LifeRows(
            name_of(firsts["bucket"][index], firsts["stream"][index]),
            firsts["incarnation"][index],
            firsts["offset"][index],
            lasts["next_offset"][index],
            firsts["record"][index],
            stop - start,
            live_rows[index],
            sizes[index],
            firsts["position"][index],
            lasts["position"][index],
            first_at[index],
            last_at[index],
            segment,
            row + start,
        )
        for index, (start, stop) in enumerate(zip(view(first), stops, strict=True))
    ]


class Spans:
    """The spans of a lake, collected segment by segment in a temporary folder."""

    def __init__(self) -> None:
        self._folder = TemporaryDirectory(prefix="headwater-spans-")
        self._files: list[Path] = []
        self._numbers = count()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()

    def add(self, spans: Iterator[LifeRows]) -> None:
        """Add the spans of one segment, in order."""
        path = Path(self._folder.name, str(next(self._numbers)))
        batch: list[LifeRows] = []
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, _SCHEMA) as stream:
            for _, parts in groupby(spans, key=lambda span: (span.name, span.incarnation, span.segment)):
                batch.append(reduce(LifeRows.joined, parts))
                if len(batch) == BATCH_ROWS:
                    stream.write_batch(_record_batch(batch))
                    batch = []
            if batch:
                stream.write_batch(_record_batch(batch))
        self._files.append(path)

    def gather(self, store: Store, catalog: Catalog, tombstones: pa.Table, prefix: str = "") -> None:
        """Add the spans of all segments of a catalog that can have names with this prefix."""
        for number, listed in enumerate(catalog.segments):
            if may_have(listed.segment, prefix):
                self.add(_spans_of_segment(store, catalog, tombstones, number))

    def in_order(self) -> Iterator[LifeRows]:
        """All spans, sorted by name, incarnation and offset."""
        while len(self._files) > FAN_IN:
            several, self._files = self._files[:FAN_IN], self._files[FAN_IN:]
            self.add(heapq.merge(*map(_read, several)))
            for path in several:
                path.unlink()
        return heapq.merge(*map(_read, self._files))


def _record_batch(spans: list[LifeRows]) -> pa.RecordBatch:
    return pa.record_batch([list(column) for column in zip(*spans, strict=True)], schema=_SCHEMA)


def _read(path: Path) -> Iterator[LifeRows]:
    with pa.memory_map(str(path)) as file, pa.ipc.open_stream(file) as stream:
        for batch in stream:
            yield from map(LifeRows._make, zip(*(column.to_pylist() for column in batch.columns), strict=True))


def _spans_of_segment(store: Store, catalog: Catalog, tombstones: pa.Table, number: int) -> Iterator[LifeRows]:
    row = 0
    for table in read_columns(store, catalog.segments[number], COLUMNS):
        yield from spans_of(table, tombstones, number, row)
        row += len(table)
