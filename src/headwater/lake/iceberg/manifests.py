"""Manifests: the files of a table, in Avro for other engines, and in the same object's header for our own readers.

A manifest has either data files or files of deleted rows. An entry says in which snapshot its file was added, or, in
the one manifest that is written when it leaves the table, in which it was removed.
"""

import zlib
from base64 import b64decode, b64encode
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from enum import IntEnum
from typing import Any, NamedTuple, TypeVar

import msgspec
import pyarrow as pa
from crc32c import crc32c

from headwater.lake.format import segment_key
from headwater.lake.iceberg.avro import (
    NULL,
    PRESENT,
    AvroDamaged,
    array,
    blob,
    container,
    header_of,
    integer,
    text,
)
from headwater.lake.iceberg.bounds import Bounds, NameBounds, of_names, of_segment
from headwater.lake.iceberg.schemas import ENTRY, LISTED, SORT_ORDER_ID, manifest_header
from headwater.protocol.names import bucket_of
from headwater.streams.segments import Segment

ENTRIES_KEY = "headwater.entries"
"""Where the header has our own form of the entries: MessagePack, compressed by zlib, in Base64: some
engines expect texts in a header."""

DELETED_PATH_ID = 2147483546
"""Iceberg's id of the column `file_path` in a file of deleted rows."""

T = TypeVar("T")


class Status(IntEnum):
    """What became of a file in the snapshot that wrote its entry."""

    EXISTING = 0
    ADDED = 1
    REMOVED = 2


class Content(IntEnum):
    """What the files of a manifest contain."""

    DATA = 0
    DELETES = 1


class Stamp(NamedTuple):
    """The identity of a snapshot."""

    snapshot_id: int
    sequence: int


class SegmentEntry(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A segment in a manifest; `number` is its number in the server's state."""

    status: int
    snapshot_id: int
    sequence: int
    number: int
    segment: Segment

    def key(self, shard: int) -> str:
        segment = self.segment
        return segment_key(shard, segment.first_position, segment.last_position, segment.id)


class DeletesEntry(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A file of deleted rows in a manifest; there is at most one for each segment."""

    status: int
    snapshot_id: int
    sequence: int
    number: int
    """The segment."""
    data_key: str
    key: str
    size: int
    crc: int
    rows: int
    """How many rows it deletes."""
    live_rows: int
    """How many rows of the segment a stream or a fork needs."""
    since_ms: int
    """When the first of the deleted rows was listed."""
    digest: int = 0
    """In `pinned`: the CRC-32C of the ranges of rows that it deletes."""


class FileEntry(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A data file of a table that is written whole."""

    status: int
    snapshot_id: int
    sequence: int
    key: str
    size: int
    crc: int
    rows: int
    names: NameBounds | None = None
    """Between which values its columns `bucket` and `stream` are; None if that is unknown."""


class Coverage(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What the files of a manifest lie between. Iceberg has bounds of manifests for partitions only."""

    first_number: int
    last_number: int
    """Numbers of segments."""
    first_position: int = 0
    last_position: int = 0
    first_at: int = 0
    last_at: int = 0
    first_name: str = ""
    last_name: str = ""
    """As in `Segment`; in a manifest of deleted rows only the numbers are known."""

    def has_any(self, numbers: Sequence[int]) -> bool:
        """Whether it can have files of some of these segments, which are sorted."""
        return bisect_left(numbers, self.first_number) < bisect_right(numbers, self.last_number)


class Manifest(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A manifest as a list of manifests describes it."""

    key: str
    size: int
    crc: int
    content: int
    snapshot_id: int
    sequence: int
    min_sequence: int
    files: tuple[int, int, int]
    """How many entries are existing, added and removed ones: indexed by `Status`."""
    rows: tuple[int, int, int]
    covers: Coverage | None = None
    """None if it is unknown."""


class TableLocation(msgspec.Struct, frozen=True):
    """Where a table's objects are: the URL that other engines know the store by, and the shard; and its columns."""

    url: str
    shard: int
    schema: pa.Schema

    def path(self, key: str) -> str:
        return f"{self.url}/{key}"


# -- Entries -----------------------------------------------------------------------------------------------------------

_PARQUET = text("PARQUET")
_NO_COUNTS = NULL * 4
"""Sizes, values, nulls and NaNs by column."""
_SORTED = NULL * 3 + PRESENT + integer(SORT_ORDER_ID) + NULL
"""The end of an entry whose rows have the order of the columns: all that are of one bucket do."""


def _bounds(values: Bounds) -> bytes:
    return PRESENT + array([integer(column) + blob(value) for column, value in values.items()])


def _entry(entry: SegmentEntry | DeletesEntry | FileEntry, content: int, path: str, rows: int, size: int) -> bytes:
    """An encoded entry up to the sizes of its file."""
    sequence = PRESENT + integer(entry.sequence)
    head = integer(entry.status) + PRESENT + integer(entry.snapshot_id) + sequence + sequence
    return head + integer(content) + text(path) + _PARQUET + integer(rows) + integer(size) + _NO_COUNTS


def encode_segment(entry: SegmentEntry, location: TableLocation) -> bytes:
    """The entry of a segment in Avro."""
    segment = entry.segment
    low, high = of_segment(segment)
    head = _entry(entry, 0, location.path(entry.key(location.shard)), segment.rows, segment.size)
    is_sorted = bucket_of(segment.first_name) == bucket_of(segment.last_name)
    return head + _bounds(low) + _bounds(high) + (_SORTED if is_sorted else NULL * 5)


def encode_deletes(entry: DeletesEntry, location: TableLocation) -> bytes:
    """The entry of a file of deleted rows in Avro."""
    data_path = location.path(entry.data_key)
    both = _bounds({DELETED_PATH_ID: data_path.encode()})
    head = _entry(entry, 1, location.path(entry.key), entry.rows, entry.size)
    return head + both + both + NULL * 4 + PRESENT + text(data_path)


def encode_file(entry: FileEntry, location: TableLocation) -> bytes:
    """The entry of a file in Avro."""
    head = _entry(entry, 0, location.path(entry.key), entry.rows, entry.size)
    if entry.names is None:
        return head + NULL * 7
    low, high = of_names(entry.names)
    return head + _bounds(low) + _bounds(high) + _SORTED


# -- Objects -----------------------------------------------------------------------------------------------------------


def pack(entries: Sequence[object]) -> bytes:
    """Our own form of some entries."""
    return b64encode(zlib.compress(msgspec.msgpack.encode(entries), 1))


_DECODERS: dict[type, msgspec.msgpack.Decoder[Any]] = {
    kind: msgspec.msgpack.Decoder(list[kind])  # type: ignore[valid-type]
    for kind in (SegmentEntry, DeletesEntry, FileEntry, Manifest)
}


def unpack(data: bytes, crc: int, kind: type[T]) -> list[T]:
    """The entries in a manifest or a list of manifests. ValueError if it is damaged."""
    if crc32c(data) != crc:
        raise AvroDamaged("its checksum does not match")
    try:
        found: list[T] = _DECODERS[kind].decode(zlib.decompress(b64decode(header_of(data)[ENTRIES_KEY])))
    except (KeyError, ValueError, zlib.error) as problem:
        raise AvroDamaged(f"its entries cannot be decoded ({problem})") from problem
    return found


def segments_manifest(entries: Sequence[SegmentEntry], location: TableLocation) -> bytes:
    """A manifest of segments."""
    header = {**manifest_header(location.schema, "data"), ENTRIES_KEY: pack(entries)}
    return container(ENTRY, header, [encode_segment(entry, location) for entry in entries])


def deletes_manifest(entries: Sequence[DeletesEntry], location: TableLocation) -> bytes:
    """A manifest of files of deleted rows."""
    header = {**manifest_header(location.schema, "deletes"), ENTRIES_KEY: pack(entries)}
    return container(ENTRY, header, [encode_deletes(entry, location) for entry in entries])


def files_manifest(entries: Sequence[FileEntry], location: TableLocation) -> bytes:
    """A manifest of a table that is written whole."""
    header = {**manifest_header(location.schema, "data"), ENTRIES_KEY: pack(entries)}
    return container(ENTRY, header, [encode_file(entry, location) for entry in entries])


def described(
    key: str,
    data: bytes,
    content: Content,
    entries: Sequence[SegmentEntry] | Sequence[DeletesEntry] | Sequence[FileEntry],
    stamp: Stamp,
) -> Manifest:
    """The description of a manifest that a snapshot writes."""
    files, rows = [0, 0, 0], [0, 0, 0]
    for entry in entries:
        files[entry.status] += 1
        rows[entry.status] += entry.segment.rows if isinstance(entry, SegmentEntry) else entry.rows
    lowest = min((entry.sequence for entry in entries if entry.status != Status.REMOVED), default=stamp.sequence)
    return Manifest(
        key,
        len(data),
        crc32c(data),
        content,
        *stamp,
        lowest,
        (files[0], files[1], files[2]),
        (rows[0], rows[1], rows[2]),
        _covered([entry for entry in entries if entry.status != Status.REMOVED]),
    )


def _covered(entries: Sequence[SegmentEntry | DeletesEntry | FileEntry]) -> Coverage | None:
    """What some entries lie between."""
    numbers = [entry.number for entry in entries if not isinstance(entry, FileEntry)]
    segments = [entry.segment for entry in entries if isinstance(entry, SegmentEntry)]
    if not numbers:
        return None
    if not segments:
        return Coverage(min(numbers), max(numbers))
    return Coverage(
        min(numbers),
        max(numbers),
        min(one.first_position for one in segments),
        max(one.last_position for one in segments),
        min(one.first_at for one in segments),
        max(one.last_at for one in segments),
        min(one.first_name for one in segments),
        max(one.last_name for one in segments),
    )


def list_of(manifests: Sequence[Manifest], location: TableLocation, stamp: Stamp, parent_id: int | None) -> bytes:
    """A list of manifests: the content of one snapshot."""
    header = {
        "snapshot-id": str(stamp.snapshot_id).encode(),
        "parent-snapshot-id": b"null" if parent_id is None else str(parent_id).encode(),
        "sequence-number": str(stamp.sequence).encode(),
        "format-version": b"2",
        ENTRIES_KEY: pack(manifests),
    }
    return container(LISTED, header, [_listed(one, location) for one in manifests])


def _listed(one: Manifest, location: TableLocation) -> bytes:
    numbers = (
        one.size,
        0,
        one.content,
        one.sequence,
        one.min_sequence,
        one.snapshot_id,
        *(counts[status] for counts in (one.files, one.rows) for status in _LISTED_ORDER),
    )
    return text(location.path(one.key)) + b"".join(map(integer, numbers)) + NULL + NULL


_LISTED_ORDER = (Status.ADDED, Status.EXISTING, Status.REMOVED)
