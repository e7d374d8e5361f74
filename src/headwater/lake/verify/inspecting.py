"""Inspecting: the description of a segment and of the rows in it, derived from its object alone.

Nothing is trusted: the footer is verified by its seal, the row groups by their checksums in the footer, and the rows by
the rules of a segment. So every byte is checked.
"""

import struct
from collections import Counter
from functools import reduce
from itertools import groupby
from typing import NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from crc32c import crc32c

from headwater.lake.catalog import TOMBSTONES
from headwater.lake.format import SCHEMA, SegmentKey
from headwater.lake.segments.reader import BOUNDS, Footer, Read, SegmentDamaged, read_footer, read_group
from headwater.lake.segments.sealing import is_sealed
from headwater.lake.segments.writer import bounds_of
from headwater.lake.verify.fingerprints import MODULUS, Fingerprints
from headwater.lake.verify.rows import RowChecks
from headwater.lake.verify.spans import LifeRows, spans_of
from headwater.lake.verify.verifier import footer_problems
from headwater.streams.segments import Rows, Segment

MAGIC = b"PAR1"
TRAILER = struct.Struct("<I4s")
"""The end of every Parquet file: the length of the footer before it, and the magic."""

RAW = {pa.string(): pa.binary(), SCHEMA.field("committed_at").type: pa.int64()}
"""Types as they are in the file: bytes that may not be text, and times that Python may not be able to represent."""


class Inspected(NamedTuple):
    """The description of a segment, the rows of each life in it, and the fingerprint of each of these ranges."""

    segment: Segment
    rows: tuple[Rows, ...]
    fingerprints: tuple[int, ...]


def inspect(read: Read, size: int, key: SegmentKey) -> Inspected:
    """Describe a segment as its writer would, given the size of its object. SegmentDamaged if it breaks any rule."""
    footer = _footer(read, size, key)
    checks, no_tombstones = RowChecks(footer.segment, json_values=False), TOMBSTONES.empty_table()
    spans: list[LifeRows] = []
    sums: Counter[tuple[str, int]] = Counter()
    for index, group in enumerate(footer.groups):
        table = _group(read, footer, index, checks)
        fingerprints = Fingerprints(table)
        for span in spans_of(table, no_tombstones, 0, group.row):
            spans.append(span)
            row = span.row - group.row
            sums[span.name, span.incarnation] += fingerprints.of(row, row + span.rows)
    lives = [
        reduce(LifeRows.joined, parts) for _, parts in groupby(spans, key=lambda span: (span.name, span.incarnation))
    ]
    if len({life.incarnation for life in lives}) < len(lives):
        raise SegmentDamaged(f"Two names in segment {key.id!r} have the same incarnation.")
    rows = tuple(
        Rows(life.name, life.incarnation, life.row, life.rows, life.start, life.end, life.record) for life in lives
    )
    segment = msgspec.structs.replace(_described(footer.segment, lives), **bounds_of(rows))
    return Inspected(segment, rows, tuple(value % MODULUS for value in sums.values()))


def _footer(read: Read, size: int, key: SegmentKey) -> Footer:
    """The footer of an object of which only the size is known."""
    trailer = read(max(size - TRAILER.size, 0), min(size, TRAILER.size))
    length, magic = TRAILER.unpack(trailer) if len(trailer) == TRAILER.size else (0, b"")
    if magic != MAGIC or not 0 < length < size - TRAILER.size:
        raise SegmentDamaged(f"The object of segment {key.id!r} is not a Parquet file.")
    footer_bytes = length + TRAILER.size
    data = read(size - footer_bytes, footer_bytes)
    if not is_sealed(data):
        raise SegmentDamaged(f"The footer of segment {key.id!r} is damaged or not sealed.")
    try:
        rows = pq.read_metadata(pa.BufferReader(data)).num_rows
    except (pa.ArrowException, OSError) as problem:
        raise SegmentDamaged(f"The footer of segment {key.id!r} cannot be decoded: {problem}.") from problem
    positions = key.first_position, key.last_position
    segment = Segment(key.id, *positions, 0, 0, "", "", rows, 0, size, footer_bytes, crc32c(data))
    footer = read_footer(lambda start, size: data, segment)
    for what in footer_problems(footer):
        raise SegmentDamaged(f"The footer of segment {key.id!r} is wrong: {what}.")
    if not footer.groups:
        raise SegmentDamaged(f"The segment {key.id!r} has no rows.")
    return footer


def _group(read: Read, footer: Footer, index: int, checks: RowChecks) -> pa.Table:
    """The next row group, checked against every rule."""
    table, id_ = read_group(read, footer, index), footer.segment.id
    if not table.schema.equals(SCHEMA) or not len(table):
        raise SegmentDamaged(f"Row group {index} of segment {id_!r} lacks rows or the columns of a segment.")
    try:
        table.validate(full=True)
    except pa.ArrowInvalid as problem:
        raise SegmentDamaged(f"Row group {index} of segment {id_!r} is invalid: {problem}.") from problem
    for row, what in checks.inspect(table):
        raise SegmentDamaged(f"Row {footer.groups[index].row + row} of segment {id_!r} is wrong: {what}.")
    _check_statistics(footer, index, table)
    return table


def _check_statistics(footer: Footer, index: int, table: pa.Table) -> None:
    """Our reader uses two columns' statistics, other engines may use any, so all of them must be correct."""
    columns, where = footer.metadata.row_group(index), f"row group {index} of segment {footer.segment.id!r}"
    for number, field in enumerate(SCHEMA):
        statistics = columns.column(number).statistics
        stated = None
        if statistics is not None and statistics.has_min_max:
            stated = statistics.min_raw, statistics.max_raw
        elif field.name not in BOUNDS:
            continue
        real = pc.min_max(table[field.name].cast(RAW.get(field.type, field.type)))
        if stated != (real["min"].as_py(), real["max"].as_py()):
            raise SegmentDamaged(f"The statistics of {field.name!r} in {where} are wrong or missing.")


def _described(segment: Segment, lives: list[LifeRows]) -> Segment:
    return msgspec.structs.replace(
        segment,
        first_at=min(life.first_at for life in lives),
        last_at=max(life.last_at for life in lives),
        first_name=lives[0].name,
        last_name=lives[-1].name,
        payload_bytes=sum(life.end - life.start for life in lives),
    )
