"""The segment reader: ranged reads, each verified against its checksum before it is decoded.

A footer is read once and kept; then a row group costs one read of exactly its bytes. A read without payloads fetches
only the bytes before them and verifies these page by page. Damaged bytes are never decoded or served: they raise
`SegmentDamaged`. Exceptions of the store pass through.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from crc32c import crc32c

from headwater.lake.format import GROUPS_KEY, SCHEMA, VERSION, VERSION_KEY
from headwater.lake.segments.columns import view
from headwater.streams.fetched import Run
from headwater.streams.segments import Extent, Segment

Read = Callable[[int, int], bytes]
"""Bytes of the segment's object: (start, size)."""

SERVED = ("offset", "record", "append", "payload")
"""The columns that a read over HTTP needs."""

BOUNDS = ("offset", "next_offset")
"""The columns whose statistics locate an offset among the row groups of one stream."""

_PAYLOAD = SCHEMA.get_field_index("payload")
_OFFSET, _NEXT_OFFSET = map(SCHEMA.get_field_index, BOUNDS)
_COLUMN_COST_BYTES = 1000
"""The memory of a parsed footer for each column of each row group; 900 were measured, whatever the content."""
_GROUP_COST_BYTES = 2048
"""The memory of a decoded group in addition to its columns, of which Arrow's builders leave about an eighth unused."""


class SegmentDamaged(Exception):
    """An object of the lake differs from what was written."""


Natural = Annotated[int, msgspec.Meta(ge=0)]


class GroupRange(NamedTuple):
    """The rows and the bytes of a row group, and the checksum of its bytes."""

    row: Natural
    rows: Natural
    start: Natural
    size: Natural
    crc: Natural

    @property
    def row_end(self) -> int:
        return self.row + self.rows


_GROUPS = msgspec.json.Decoder(list[GroupRange])


class GroupRows(NamedTuple):
    """Rows of one row group."""

    group: int
    row: int
    rows: int


class Footer:
    """A parsed footer: where the row groups of a segment are, and what they contain."""

    def __init__(self, segment: Segment, metadata: pq.FileMetaData, groups: list[GroupRange]) -> None:
        self.segment = segment
        self.metadata = metadata
        self.groups = groups
        self.cost_bytes = segment.footer_bytes + len(groups) * len(SCHEMA) * _COLUMN_COST_BYTES
        self._rows = [group.row for group in groups]
        self._known_bounds: dict[int, tuple[int, int]] = {}

    def groups_of(self, row: int, rows: int) -> range:
        """The row groups that hold `rows` rows from `row` on."""
        if not 0 <= row < row + rows <= self.segment.rows:
            raise SegmentDamaged(f"The segment {self.segment.id!r} has no rows {row} to {row + rows}.")
        return range(bisect_right(self._rows, row) - 1, bisect_right(self._rows, row + rows - 1))

    def locate(self, extent: Extent, start: int, end: int) -> list[GroupRows]:
        """The pieces of an extent that may hold bytes from `start` up to `end`, in order."""
        groups = self.groups_of(extent.row, extent.rows)
        if not max(start, extent.start) < min(end, extent.end):
            return []
        if len(groups) > 2 or self._alone(extent, groups[0]) or self._alone(extent, groups[-1]):
            later = groups[1:]
            first = bisect_right(later, start, key=lambda group: self._boundary(extent, group))
            last = bisect_left(later, end, key=lambda group: self._boundary(extent, group))
            groups = groups[first : last + 1]
        return [self._piece(extent, group) for group in groups]

    def locate_record(self, extent: Extent, record: int) -> GroupRows:
        """The piece of an extent that holds the message with this ordinal."""
        [group] = self.groups_of(extent.row + record - extent.record, 1)
        return self._piece(extent, group)

    def _piece(self, extent: Extent, group: int) -> GroupRows:
        whole = self.groups[group]
        row, row_end = max(whole.row, extent.row), min(whole.row_end, extent.row + extent.rows)
        return GroupRows(group, row - whole.row, row_end - row)

    def _alone(self, extent: Extent, group: int) -> bool:
        """Whether a row group holds nothing but rows of the extent."""
        whole = self.groups[group]
        return extent.row <= whole.row and whole.row_end <= extent.row + extent.rows

    def _boundary(self, extent: Extent, group: int) -> int:
        """The offset at which an extent continues in this group; this group or the one before belongs to it alone."""
        return self._bounds(group - 1)[1] if self._alone(extent, group - 1) else self._bounds(group)[0]

    def _bounds(self, group: int) -> tuple[int, int]:
        """The range of offsets in a group; meaningful only if all its rows are of one stream."""
        if group not in self._known_bounds:
            columns = self.metadata.row_group(group)
            lowest, highest = columns.column(_OFFSET).statistics.min, columns.column(_NEXT_OFFSET).statistics.max
            self._known_bounds[group] = lowest, highest
        return self._known_bounds[group]


def read_footer(read: Read, segment: Segment) -> Footer:
    """Read, verify and parse a segment's footer."""
    data = read(segment.size - segment.footer_bytes, segment.footer_bytes)
    _check(segment, "footer", data, segment.footer_bytes, segment.footer_crc)
    try:
        metadata = pq.read_metadata(pa.BufferReader(data))
        version = metadata.metadata[VERSION_KEY.encode()].decode()
        groups = _GROUPS.decode(metadata.metadata[GROUPS_KEY.encode()])
    except (pa.ArrowException, OSError, KeyError, TypeError, ValueError, msgspec.DecodeError) as problem:
        raise SegmentDamaged(f"The footer of segment {segment.id!r} cannot be decoded: {problem}.") from problem
    if version != VERSION:
        raise SegmentDamaged(f"The segment {segment.id!r} has schema {version!r}; this version reads schema {VERSION}.")
    if metadata.num_rows != segment.rows or metadata.num_row_groups != len(groups):
        raise SegmentDamaged(f"The footer of segment {segment.id!r} belongs to another segment.")
    return Footer(segment, metadata, groups)


def read_group(read: Read, footer: Footer, index: int, columns: Sequence[str] | None = None) -> pa.Table:
    """Read, verify and decode all columns of a row group, or some; payloads are fetched only if requested."""
    return read_groups(read, footer, (index,), columns)


def read_groups(read: Read, footer: Footer, indexes: Sequence[int], columns: Sequence[str] | None = None) -> pa.Table:
    """As `read_group` for several row groups in order, decoded together, so that their columns are contiguous."""
    segment, whole = footer.segment, columns is None or "payload" in columns
    named = f"Row group {', '.join(map(str, indexes))} of segment {segment.id!r}"
    parts: list[tuple[int, bytes]] = []
    for index in indexes:
        group = footer.groups[index]
        # Payloads are the last column of every group.
        size = group.size if whole else _first_byte(footer.metadata.row_group(index).column(_PAYLOAD)) - group.start
        data = read(group.start, size)
        _check(segment, f"row group {index}", data, size, group.crc if whole else None)
        parts.append((group.start, data))
    try:
        # Our own checksum covers the whole group; a part of it is verified by its page checksums.
        parquet = pq.ParquetFile(
            pa.PythonFile(_GroupFile(parts, segment.size), mode="r"),
            metadata=footer.metadata,
            pre_buffer=False,
            page_checksum_verification=not whole,
        )
        table = parquet.read_row_groups(list(indexes), columns=columns, use_threads=False)
    except (pa.ArrowException, OSError) as problem:
        raise SegmentDamaged(f"{named} cannot be decoded: {problem}.") from problem
    rows = sum(footer.groups[index].rows for index in indexes)
    if len(table) != rows:
        raise SegmentDamaged(f"{named} has {len(table)} rows, not {rows}.")
    return table.replace_schema_metadata(None)


def _first_byte(column: pq.ColumnChunkMetaData) -> int:
    return int(column.dictionary_page_offset or column.data_page_offset)


def read_all(read: Read, segment: Segment) -> Iterator[pa.Table]:
    """All rows, a row group at a time."""
    footer = read_footer(read, segment)
    for index in range(len(footer.groups)):
        yield read_group(read, footer, index)


class Group:
    """A decoded row group to serve reads from: views of its columns, without an object per row."""

    def __init__(self, id: str, table: pa.Table) -> None:
        table = table.select(SERVED).combine_chunks()
        offset, record, append, payload = (column.chunk(0) for column in table.columns)
        self._id = id
        self._offset, self._record, self._append = (view(column) for column in (offset, record, append))
        _, ends, self._payload = payload.buffers()
        self._ends = pa.Array.from_buffers(pa.int32(), len(payload) + 1, [None, ends], offset=payload.offset)
        self._end_view = memoryview(ends).cast("i")[payload.offset :]
        self.rows = len(table)
        self.cost_bytes = table.get_total_buffer_size() * 9 // 8 + _GROUP_COST_BYTES

    def run(self, row: int, rows: int) -> Run:
        """Neighbouring rows of one stream."""
        if not 0 <= row < row + rows <= self.rows:
            raise SegmentDamaged(f"A row group of segment {self._id!r} has {self.rows} rows, not {row + rows}.")
        last = row + rows - 1
        start, last_start, end = self._end_view[row], self._end_view[last], self._end_view[last + 1]
        offset, record = self._offset[row], self._record[row]
        if self._offset[last] - offset != last_start - start or self._record[last] - record != rows - 1:
            raise SegmentDamaged(
                f"The rows {row} to {last} of a row group of segment {self._id!r} are not of one stream."
            )
        ends = pc.subtract(self._ends.slice(row + 1, rows), pa.scalar(start, pa.int32()))
        return Run(
            offset=offset,
            payload=self._payload[start:end].to_pybytes(),
            ends=view(ends, "i").tobytes(),
            record=record,
            appends=self._append[row : row + rows].tobytes(),
        )


class _GroupFile:
    """The bytes of some row groups as a file without any others; Arrow reads buffers from it, which are not copied."""

    closed = False

    def __init__(self, parts: Sequence[tuple[int, bytes]], size: int) -> None:
        self._starts = [start for start, _ in parts]
        self._parts = [pa.py_buffer(data) for _, data in parts]
        self._size, self._at = size, 0

    def seek(self, to: int, whence: int = 0) -> int:
        self._at = to + (0, self._at, self._size)[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def read_buffer(self, size: int) -> pa.Buffer:
        part = max(bisect_right(self._starts, self._at) - 1, 0)
        at = self._at - self._starts[part]
        if not 0 <= at <= at + size <= self._parts[part].size:
            raise OSError(f"the footer points to byte {self._at}, outside the row group")
        self._at += size
        return self._parts[part].slice(at, size)


def _check(segment: Segment, what: str, data: bytes, size: int, crc: int | None) -> None:
    if len(data) != size:
        raise SegmentDamaged(f"The {what} of segment {segment.id!r} has {len(data)} bytes, not {size}.")
    if crc is not None and crc32c(data) != crc:
        raise SegmentDamaged(f"The {what} of segment {segment.id!r} is damaged: its checksum does not match.")
