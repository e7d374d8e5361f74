"""The catalog: the contents of a lake, for engines that read it without a server. Public, versioned, never overwritten.

    <position>-<generation>.json                 live segments, and the position up to which they are complete
    <position>-<generation>.tombstones.parquet   lives, or the beginnings of lives, whose rows are dead
    <position>-<generation>.forks.parquet        forks, and the streams that hold their inherited rows

All of them are below `catalog/shard=0/`. The newest catalog is in force: the last one in the order of keys. Every
attempt to write one has a generation of its own, because two catalogs of one position may differ: the later one may
know that more rows have been flushed. The two tables are written before the catalog.
"""

import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from crc32c import crc32c

from headwater.lake.format import segment_key, split_name
from headwater.storage.store import Store
from headwater.streams.segments import Segment

VERSION = 3

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

KINDS = ("json", "tombstones.parquet", "forks.parquet")
"""The objects of a catalog."""

_KEY = re.compile(r"catalog/shard=(\d+)/(\d{20})-(\d{10})\.(json|tombstones\.parquet|forks\.parquet)")


class Edition(NamedTuple):
    """Which catalog of a shard: a greater one is newer."""

    position: int
    generation: int


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
    generation: int
    """Greater than that of every catalog before it."""
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

    @property
    def edition(self) -> Edition:
        return Edition(self.position, self.generation)


class Contents(NamedTuple):
    """The contents of a new catalog, as of one position."""

    shard: int
    log_id: str
    position: int
    generation: int
    flushed: int
    dropped: int
    at: int
    segments: list[tuple[int, Segment, int]]
    tombstones: pa.Table
    forks: pa.Table


def catalog_key(shard: int, edition: Edition, kind: str = "json") -> str:
    """The key of a catalog, or of one of its tables.

    >>> catalog_key(0, Edition(42, 7))
    'catalog/shard=0/00000000000000000042-0000000007.json'
    """
    return f"catalog/shard={shard}/{edition.position:020}-{edition.generation:010}.{kind}"


def parse_catalog_key(key: str) -> tuple[int, Edition] | None:
    """The shard and the edition in the key of a catalog or of one of its tables."""
    match = _KEY.fullmatch(key)
    return (int(match[1]), Edition(int(match[2]), int(match[3]))) if match else None


def write_catalog(store: Store, contents: Contents) -> Catalog:
    """Store a catalog, its tables first. KeyExists if another one has its edition; then this one is not stored."""
    shard, edition = contents.shard, Edition(contents.position, contents.generation)
    tombstones_key, forks_key = (catalog_key(shard, edition, f"{kind}.parquet") for kind in ("tombstones", "forks"))
    tombstones, forks = _parquet(contents.tombstones), _parquet(contents.forks)
    store.create(tombstones_key, tombstones)
    store.create(forks_key, forks)
    listed = [
        ListedSegment(
            segment_key(shard, segment.first_position, segment.last_position, segment.id), number, live_rows, segment
        )
        for number, segment, live_rows in contents.segments
    ]
    catalog = Catalog(
        shard,
        contents.log_id,
        *edition,
        contents.flushed,
        contents.dropped,
        contents.at,
        listed,
        tombstones_key,
        crc32c(tombstones),
        forks_key,
        crc32c(forks),
    )
    store.create(catalog_key(shard, edition), encode(catalog))
    return catalog


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


def tombstone_columns(row: TombstoneRow) -> tuple[str | int, ...]:
    """A tombstone as a row of its table."""
    return *split_name(row.name), row.incarnation, row.below


def fork_columns(row: ForkRow) -> tuple[str | int, ...]:
    """A fork as a row of its table."""
    source = *split_name(row.source), row.source_incarnation
    return *split_name(row.name), row.incarnation, row.deleted, *source, row.start, row.to


def table_of(rows: Sequence[tuple[str | int, ...]], schema: pa.Schema) -> pa.Table:
    """The table of these rows."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    return pa.table([pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema)
