"""The catalog: the contents of a lake, for engines that read it without a server. Public, versioned, never overwritten.

    catalog/shard=0/<position>.json                 live segments, and the position up to which they are complete
    catalog/shard=0/<position>.tombstones.parquet   lives, or the beginnings of lives, whose rows are dead
    catalog/shard=0/<position>.forks.parquet        forks, and the streams that hold their inherited rows

The newest catalog is in force. Its two tables are written before it.
"""

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from crc32c import crc32c

from headwater.lake.format import segment_key, split_name
from headwater.storage.store import KeyExists, Store
from headwater.streams.segments import Segment

VERSION = 2

TOMBSTONES = pa.schema(
    [
        pa.field("bucket", pa.string(), nullable=False),
        pa.field("stream", pa.string(), nullable=False),
        pa.field("incarnation", pa.int64(), nullable=False),
        pa.field("below", pa.int64(), nullable=False),
    ]
)
"""Rows of this life with an offset below `below` are dead."""

FORKS = pa.schema(
    [
        pa.field("bucket", pa.string(), nullable=False),
        pa.field("stream", pa.string(), nullable=False),
        pa.field("incarnation", pa.int64(), nullable=False),
        pa.field("deleted", pa.bool_(), nullable=False),
        pa.field("source_bucket", pa.string(), nullable=False),
        pa.field("source_stream", pa.string(), nullable=False),
        pa.field("source_incarnation", pa.int64(), nullable=False),
        pa.field("from", pa.int64(), nullable=False),
        pa.field("to", pa.int64(), nullable=False),
    ]
)
"""The fork inherits its bytes from `from` up to `to` from one life of its source, which may be a fork itself. A deleted
fork is no longer a stream; it is listed for its own forks."""

_KEY = re.compile(r"catalog/shard=(\d+)/(\d{20})\.(json|tombstones\.parquet|forks\.parquet)")


class TombstoneRow(NamedTuple):
    """A row of the tombstones."""

    name: str
    incarnation: int
    below: int


class ForkRow(NamedTuple):
    """A row of the forks."""

    name: str
    incarnation: int
    deleted: bool
    source: str
    source_incarnation: int
    start: int
    to: int


class ListedSegment(msgspec.Struct, frozen=True):
    """A segment as a catalog lists it: enough to plan a scan and to verify every byte."""

    key: str
    number: int
    live_rows: int
    segment: Segment


class Catalog(msgspec.Struct, frozen=True):
    """A catalog as it is stored."""

    shard: int
    log_id: str
    position: int
    """The position of the state that it describes."""
    flushed: int
    """Every live row up to this position is in one of the segments."""
    dropped: int
    """The highest position of any row that was ever dropped from the lake."""
    at: int
    segments: list[ListedSegment]
    tombstones_key: str
    tombstones_crc: int
    forks_key: str
    forks_crc: int
    """The CRC-32C of each of the two tables."""


class Contents(NamedTuple):
    """The contents of a new catalog, as of one position."""

    shard: int
    log_id: str
    position: int
    flushed: int
    dropped: int
    at: int
    segments: list[tuple[int, Segment, int]]
    tombstones: list[TombstoneRow]
    forks: list[ForkRow]


def catalog_key(shard: int, position: int, kind: str = "json") -> str:
    """The key of a catalog, or of one of its tables.

    >>> catalog_key(0, 42)
    'catalog/shard=0/00000000000000000042.json'
    """
    return f"catalog/shard={shard}/{position:020}.{kind}"


def parse_catalog_key(key: str) -> tuple[int, int] | None:
    """The shard and the position in the key of a catalog or of one of its tables."""
    match = _KEY.fullmatch(key)
    return (int(match[1]), int(match[2])) if match else None


def write_catalog(store: Store, contents: Contents) -> Catalog:
    """Store a catalog, its tables first."""
    shard, position = contents.shard, contents.position
    tombstones_key, forks_key = (catalog_key(shard, position, f"{kind}.parquet") for kind in ("tombstones", "forks"))
    tombstones_crc = crc32c(_create(store, tombstones_key, _parquet(_tombstones(contents.tombstones))))
    forks_crc = crc32c(_create(store, forks_key, _parquet(_forks(contents.forks))))
    listed = [
        ListedSegment(
            segment_key(shard, segment.first_position, segment.last_position, segment.id), number, live_rows, segment
        )
        for number, segment, live_rows in contents.segments
    ]
    catalog = Catalog(
        shard,
        contents.log_id,
        position,
        contents.flushed,
        contents.dropped,
        contents.at,
        listed,
        tombstones_key,
        tombstones_crc,
        forks_key,
        forks_crc,
    )
    _create(store, catalog_key(shard, position), encode(catalog))
    return catalog


def _create(store: Store, key: str, data: bytes) -> bytes:
    """Create an object and return what is stored under its key.

    An existing object of the same position describes the same state, even if another version wrote it.
    """
    try:
        store.create(key, data)
    except KeyExists:
        return store.read(key)
    return data


def encode(catalog: Catalog) -> bytes:
    """The JSON of a catalog; the fields of a segment are in one object with its key."""
    plain = msgspec.to_builtins(catalog)
    for entry, listed in zip(plain["segments"], catalog.segments, strict=True):
        del entry["segment"]
        entry |= {name: getattr(listed.segment, name) for name in Segment.__struct_fields__}
    return seal({"version": VERSION, **plain})


def seal(plain: dict[str, Any]) -> bytes:
    """The text of a catalog. Its last entry is the CRC-32C of the text without this entry."""
    plain.pop("crc", None)
    return _text(plain | {"crc": crc32c(_text(plain))})


def _text(plain: dict[str, Any]) -> bytes:
    return json.dumps(plain, indent=1).encode()


def decode(data: bytes) -> Catalog:
    """The catalog in a JSON object."""
    plain = json.loads(data)
    version = plain.get("version")
    if version != VERSION:
        raise ValueError(f"The catalog has version {version}; this version of Headwater reads version {VERSION}.")
    if data != seal(plain):
        raise ValueError("The catalog is damaged: its checksum does not match.")
    del plain["version"]
    for entry in plain["segments"]:
        entry["segment"] = [entry.pop(name) for name in Segment.__struct_fields__]
    return msgspec.convert(plain, Catalog)


def newest_catalog(store: Store, shard: int = 0) -> Catalog | None:
    """The catalog in force, None if the lake has none; `scanning.read_catalog` explains damage too."""
    key = newest_key(store, shard)
    return decode(store.read(key)) if key else None


def newest_key(store: Store, shard: int = 0) -> str | None:
    """The key of the catalog in force."""
    keys = (item.key for item in store.items(f"catalog/shard={shard}/") if item.key.endswith(".json"))
    return max(keys, default=None)


def _parquet(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", write_page_checksum=True)
    return bytes(sink.getvalue())


def _tombstones(tombstones: Iterable[TombstoneRow]) -> pa.Table:
    rows = [(*split_name(tombstone.name), tombstone.incarnation, tombstone.below) for tombstone in tombstones]
    return _table(rows, TOMBSTONES)


def _forks(forks: Iterable[ForkRow]) -> pa.Table:
    rows = [
        (
            *split_name(fork.name),
            fork.incarnation,
            fork.deleted,
            *split_name(fork.source),
            fork.source_incarnation,
            fork.start,
            fork.to,
        )
        for fork in forks
    ]
    return _table(rows, FORKS)


def _table(rows: Sequence[tuple[str | int, ...]], schema: pa.Schema) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    return pa.table([pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema)
