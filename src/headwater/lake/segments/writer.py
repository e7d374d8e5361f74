"""The segment writer: sorted rows of many streams become one Parquet object in memory.

Row groups are cut so that a range of one stream costs one row group where possible:

    an append is never split over two groups, whatever its size
    a life of more than GROUP_BYTES or GROUP_ROWS begins a group, and is cut before the append that exceeds either
    any other life is never cut: if it does not fit, it begins the next group when this one is half full, else it
    makes this one larger

Every byte of the object is covered by one CRC-32C: the leading magic belongs to the first group, everything after the
last group is the footer. The footer holds the checksums of the groups, the `Segment` that of the footer. A seal in the
footer lets an object be verified by itself.
"""

import json
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from io import BytesIO
from itertools import pairwise
from operator import attrgetter
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from crc32c import crc32c

from headwater.lake.format import (
    GROUP_BYTES,
    GROUP_ROWS,
    GROUPS_KEY,
    SCHEMA,
    SEAL_KEY,
    VERSION,
    VERSION_KEY,
    WORDS,
    name_of,
    split_name,
)
from headwater.lake.segments.columns import ENCODED, Life, Lives, encoded, gap, starts, view
from headwater.lake.segments.sealing import UNSEALED, seal
from headwater.streams.hot import Hot
from headwater.streams.segments import Rows, Segment

A = TypeVar("A")

_OFFSET = attrgetter("offset")
_RECORD = attrgetter("record")
_COUNTED = [name for name in SCHEMA.names if name not in ("payload", "producer_id")]
"""Columns with statistics. Those of the other columns would only make the footer longer."""
_ORDINALS = ("incarnation", "offset", "next_offset", "record", "append", "position", "committed_at")


class Written(NamedTuple):
    """A finished segment: its bytes, its description, and the rows of each life."""

    data: bytes
    segment: Segment
    rows: list[Rows]


class _Lot(NamedTuple, Generic[A]):
    """Appends of one life: the offset and row at which each begins, and those at which the last ends.

    Rows may be counted from any number.
    """

    appends: Sequence[A]
    offset: Callable[[A], int]
    row: Callable[[A], int]
    end: int
    row_end: int


def bounds_of(lives: Sequence[Rows]) -> dict[str, Any]:
    """The bounds of a segment's columns, as fields of `Segment`."""
    streams = [split_name(rows.name)[1] for rows in lives]
    incarnations = [rows.incarnation for rows in lives]
    return {
        "low_stream": min(streams),
        "high_stream": max(streams),
        "low_incarnation": min(incarnations),
        "high_incarnation": max(incarnations),
        "high_offset": max(rows.end for rows in lives) - 1,
    }


class SegmentWriter:
    """Writes one segment. Lives are added in the order of name and incarnation, each with appends without a gap.

    A life may be added in several consecutive pieces; groups are cut piece by piece.
    """

    def __init__(self, id: str, first_position: int, last_position: int) -> None:
        self._id = id
        self._positions = first_position, last_position
        self._sink = BytesIO()
        self._parquet = pq.ParquetWriter(
            self._sink,
            ENCODED,
            compression="zstd",
            compression_level=1,
            use_dictionary=list(WORDS),
            write_statistics=_COUNTED,
            column_encoding=dict.fromkeys(_ORDINALS, "DELTA_BINARY_PACKED"),
            data_page_version="1.0",
            write_page_checksum=True,
            # A stored schema would say "dictionary"; without it readers derive the public types from Parquet's own.
            store_schema=False,
        )
        self._lives = Lives()
        self._spans: list[tuple[pa.Table, int, int]] = []
        self._group_rows = 0
        self._group_bytes = 0
        self._row = 0
        self._groups: list[tuple[int, int, int, int, int]] = []
        self._written_bytes = 0
        self._rows: list[Rows] = []
        self._times: list[int] = []
        self._payload_bytes = 0

    def add(self, name: str, incarnation: int, content_type: str, appends: Sequence[Hot]) -> None:
        """Add appends of one life, in order and without a gap."""
        first, last = appends[0], appends[-1]
        end, record_end = last.offset + len(last.payload), last.record + last.messages
        self._enter(Rows(name, incarnation, self._next_row, record_end - first.record, first.offset, end, first.record))
        life = Life(*split_name(name), incarnation, content_type)

        def take(start: int, stop: int) -> None:
            until = record_end if stop == len(appends) else appends[stop].record
            self._lives.add(life, appends[start:stop], until - appends[start].record)

        self._place(_Lot(appends, _OFFSET, _RECORD, end, record_end), take)

    def add_table(self, table: pa.Table) -> None:
        """Add rows of the public schema, of any number of lives, in order; the first may continue the last life."""
        if not table.schema.equals(SCHEMA):
            raise ValueError(f"The table does not have the columns of a segment, but {table.schema.names}.")
        if not len(table):
            return
        table = table.replace_schema_metadata(None).combine_chunks()
        if table["payload"].num_chunks > 1:
            raise ValueError("The table has more than 2 GiB of payload; add it in several parts.")
        column = {name: values.chunk(0) for name, values in zip(table.column_names, table.columns, strict=True)}
        life_rows = starts(column["incarnation"], column["stream"], column["bucket"])
        append_rows = starts(column["append"], column["incarnation"], column["stream"], column["bucket"])
        rows, append_offsets = view(append_rows), view(column["append"].take(append_rows))
        offsets, next_offsets, records = view(column["offset"]), view(column["next_offset"]), view(column["record"])
        names = zip(
            *(column[name].take(life_rows).to_pylist() for name in ("bucket", "stream", "incarnation")), strict=True
        )
        at = 0
        for (bucket, stream, incarnation), (row, row_end) in zip(
            names, pairwise([*view(life_rows), len(table)]), strict=True
        ):
            end = next_offsets[row_end - 1]
            name = name_of(bucket, stream)
            if append_offsets[at] != offsets[row]:
                raise ValueError(f"The rows of {name!r} begin within an append, at {offsets[row]}.")
            self._enter(Rows(name, incarnation, self._next_row, row_end - row, offsets[row], end, records[row]))
            stop = bisect_left(rows, row_end, lo=at)

            def take(start: int, stop: int, appends: range = range(at, stop), row_end: int = row_end) -> None:
                until = rows[appends[stop]] if stop < len(appends) else row_end
                self._take_rows(table, rows[appends[start]], until)

            self._place(_Lot(range(at, stop), append_offsets.__getitem__, rows.__getitem__, end, row_end), take)
            at = stop

    def finish(self) -> Written:
        """Close the object."""
        self._close_group()
        if not self._rows:
            raise ValueError(f"The segment {self._id!r} has no rows; do not write it.")
        if self._payload_bytes != sum(rows.end - rows.start for rows in self._rows):
            raise ValueError(f"The segment {self._id!r} was given a life with a gap in its offsets.")
        metadata = {VERSION_KEY: VERSION, GROUPS_KEY: json.dumps(self._groups), SEAL_KEY: UNSEALED}
        self._parquet.add_key_value_metadata(metadata)
        self._parquet.close()
        with self._sink.getbuffer() as whole, whole[self._written_bytes :] as unsealed:
            seal(unsealed)
        data = self._sink.getvalue()
        footer = memoryview(data)[self._written_bytes :]
        segment = Segment(
            id=self._id,
            first_position=self._positions[0],
            last_position=self._positions[1],
            first_at=min(self._times),
            last_at=max(self._times),
            first_name=self._rows[0].name,
            last_name=self._rows[-1].name,
            rows=self._row,
            payload_bytes=self._payload_bytes,
            size=len(data),
            footer_bytes=len(footer),
            footer_crc=crc32c(footer),
            **bounds_of(self._rows),
        )
        return Written(data, segment, self._rows)

    @property
    def _next_row(self) -> int:
        return self._row + self._group_rows

    def _enter(self, rows: Rows) -> None:
        """Record the life of the next rows; another piece of the last life extends its entry."""
        if not self._rows:
            self._rows.append(rows)
            return
        last = self._rows[-1]
        if rows.incarnation == last.incarnation and rows.name == last.name:
            if rows.start != last.end or rows.record != last.record + last.rows:
                raise ValueError(f"The rows of {rows.name!r} have a gap between {last.end} and {rows.start}.")
            self._rows[-1] = msgspec.structs.replace(last, rows=last.rows + rows.rows, end=rows.end)
            return
        # An incarnation is the log position of a creation, so no two streams of a shard share one.
        if rows.incarnation == last.incarnation or (rows.name, rows.incarnation) < (last.name, last.incarnation):
            raise ValueError(f"Rows of {rows.name!r} cannot follow rows of {last.name!r}; sort lives by name.")
        self._rows.append(rows)

    def _place(self, lot: _Lot[A], take: Callable[[int, int], None]) -> None:
        """Distribute the appends of one life over this group and new ones."""
        appends, offset, row, end, row_end = lot
        at, count = 0, len(appends)
        start, first_row = offset(appends[0]), row(appends[0])
        large = end - start > GROUP_BYTES or row_end - first_row > GROUP_ROWS
        if large or (self._half_full and not self._fits(end - start, row_end - first_row)):
            self._close_group()
        while large and count - at > 1:
            by_bytes = bisect_right(appends, start + GROUP_BYTES, lo=at, key=offset) - 1
            by_rows = bisect_right(appends, first_row + GROUP_ROWS, lo=at, key=row) - 1
            cut = max(min(by_bytes, by_rows), at + 1)
            take(at, cut)
            self._group_rows += row(appends[cut]) - first_row
            self._close_group()
            at, start, first_row = cut, offset(appends[cut]), row(appends[cut])
            large = end - start > GROUP_BYTES or row_end - first_row > GROUP_ROWS
        take(at, count)
        self._group_bytes += end - start
        self._group_rows += row_end - first_row

    @property
    def _half_full(self) -> bool:
        return 2 * self._group_bytes >= GROUP_BYTES or 2 * self._group_rows >= GROUP_ROWS

    def _fits(self, size: int, rows: int) -> bool:
        return self._group_bytes + size <= GROUP_BYTES and self._group_rows + rows <= GROUP_ROWS

    def _take_rows(self, table: pa.Table, start: int, stop: int) -> None:
        """Add rows of a table to the group, as one span with the last rows if they follow these."""
        self._flush_lives()
        if self._spans and self._spans[-1][0] is table and self._spans[-1][2] == start:
            start = self._spans.pop()[1]
        self._spans.append((table, start, stop))

    def _flush_lives(self) -> None:
        """Turn the appends added so far into rows."""
        if self._lives.rows:
            table = self._lives.table()
            self._spans.append((table, 0, len(table)))
            self._lives = Lives()

    def _close_group(self) -> None:
        """Write the collected rows as one row group, and compute its checksum."""
        self._flush_lives()
        if not self._spans:
            return
        tables = [table.slice(start, stop - start) for table, start, stop in self._spans]
        if len(tables) == 1 and tables[0].schema.equals(ENCODED):
            [table] = tables
        else:
            table = encoded(pa.concat_tables([table.cast(SCHEMA) for table in tables]).combine_chunks())
        self._check(table)
        self._parquet.write_table(table, row_group_size=len(table))
        start, self._written_bytes = self._written_bytes, self._sink.tell()
        with self._sink.getbuffer() as data, data[start : self._written_bytes] as group:
            self._groups.append((self._row, len(table), start, len(group), crc32c(group)))
        self._row += len(table)
        self._spans = []
        self._group_rows = self._group_bytes = 0

    def _check(self, table: pa.Table) -> None:
        """Refuse rows that break what readers rely on."""
        problem = gap(table)
        positions = pc.min_max(table["position"]).as_py()
        if positions["min"] < self._positions[0] or positions["max"] > self._positions[1]:
            problem = f"a row of position {positions['min']} or {positions['max']}, outside its range"
        if problem:
            raise ValueError(f"The segment {self._id!r} was given {problem}.")
        times = pc.min_max(table["committed_at"].cast(pa.int64())).as_py()
        self._times += times["min"], times["max"]
        self._payload_bytes += pc.sum(pc.binary_length(table["payload"])).as_py()
