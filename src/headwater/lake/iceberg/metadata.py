"""The metadata file of a table: its columns, its snapshots, and which of them is current.

    <table>/metadata/<version>-<log id>.metadata.json   created once, never changed; the highest version is current
    <table>/metadata/version-hint.text                  the `<version>-<log id>` of a current or recent one

A version can be created only once, so of two servers that commit at the same time one fails. The file carries its own
CRC-32C among the table's properties.
"""

import json
import re
from typing import Any, NamedTuple

import msgspec
from crc32c import crc32c

from headwater.lake.iceberg.manifests import TableLocation
from headwater.lake.iceberg.schemas import sort_order, table_schema

FORMAT_VERSION = 2
CRC_PROPERTY = "headwater.crc"
_UNSEALED = "00000000"
PREVIOUS_MAX = 20
"""How many earlier metadata files are kept: a reader that found one by the hint may be about to read it."""

MINUTE_MS, HOUR_MS = 60_000, 3_600_000
GRAINS = ((MINUTE_MS, 1), (15 * MINUTE_MS, 5_000), (HOUR_MS, MINUTE_MS))
"""Up to which age one snapshot is kept for each stretch of time: all of the last minute, then one for every 5 seconds,
then for every minute, and later for every hour. So there are never more than a few hundred."""

_KEY = re.compile(r"(?P<table>[a-z]+)/metadata/(?P<version>\d{10})-(?P<id>[A-Za-z0-9_]+)\.metadata\.json")


class Snapshot(msgspec.Struct, frozen=True, gc=False):
    """The content of a table as of one commit."""

    id: int
    parent_id: int | None
    sequence: int
    at_ms: int
    list_key: str
    summary: dict[str, str]

    @property
    def list_crc(self) -> int:
        """The CRC-32C of the list of manifests."""
        return int(self.summary["headwater.list-crc"])

    @property
    def position(self) -> int:
        """The log position of the state that it describes."""
        return int(self.summary["headwater.position"])


class Table(msgspec.Struct, frozen=True, gc=False):
    """A table as its metadata file describes it."""

    name: str
    version: int
    uuid: str
    log_id: str
    url: str
    """The URL of the store that the paths in its manifests begin with."""
    updated_ms: int
    snapshots: tuple[Snapshot, ...]
    """In the order of their sequence numbers; the last one is current."""
    previous: tuple[tuple[int, str], ...] = ()
    """Earlier metadata files: when they were replaced, and their keys."""

    @property
    def current(self) -> Snapshot:
        return self.snapshots[-1]

    @property
    def key(self) -> str:
        return metadata_key(self.name, self.version, self.log_id)


class MetadataKey(NamedTuple):
    """What the key of a metadata file says."""

    table: str
    version: int
    log_id: str


def metadata_key(table: str, version: int, log_id: str) -> str:
    """The key of a metadata file.

    >>> metadata_key("messages", 7, "9f2c41d07be3a856")
    'messages/metadata/0000000007-9f2c41d07be3a856.metadata.json'
    """
    return f"{table}/metadata/{hint_of(version, log_id)}.metadata.json"


def parse_metadata_key(key: str) -> MetadataKey | None:
    """The parts of a metadata file's key, None if it is another object's."""
    found = _KEY.fullmatch(key)
    return MetadataKey(found["table"], int(found["version"]), found["id"]) if found else None


def hint_key(table: str) -> str:
    """The key of a table's version hint."""
    return f"{table}/metadata/version-hint.text"


def hint_of(version: int, log_id: str) -> str:
    """What the version hint says of a metadata file."""
    return f"{version:010}-{log_id}"


# -- The file ----------------------------------------------------------------------------------------------------------


def encode(table: Table, location: TableLocation) -> bytes:
    """The metadata file of a table."""
    current = table.current
    plain = {
        "format-version": FORMAT_VERSION,
        "table-uuid": table.uuid,
        "location": location.path(table.name),
        "last-sequence-number": current.sequence,
        "last-updated-ms": table.updated_ms,
        "last-column-id": len(location.schema),
        "current-schema-id": 0,
        "schemas": [table_schema(location.schema)],
        "default-spec-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": []}],
        "last-partition-id": 999,
        "default-sort-order-id": 0,
        "sort-orders": [{"order-id": 0, "fields": []}, sort_order(location.schema)],
        "properties": {
            "headwater.log-id": table.log_id,
            "headwater.shard": str(location.shard),
            "headwater.url": table.url,
            "headwater.version": str(table.version),
            # No engine may take bounds for the least and the greatest value: some are not exact.
            "write.metadata.metrics.default": "counts",
            # Only the server removes files.
            "gc.enabled": "false",
            CRC_PROPERTY: _UNSEALED,
        },
        "current-snapshot-id": current.id,
        "refs": {"main": {"snapshot-id": current.id, "type": "branch"}},
        "snapshots": [_plain(snapshot, location) for snapshot in table.snapshots],
        "snapshot-log": [{"snapshot-id": one.id, "timestamp-ms": one.at_ms} for one in table.snapshots],
        "metadata-log": [{"timestamp-ms": at, "metadata-file": location.path(key)} for at, key in table.previous],
    }
    text = json.dumps(plain, indent=1).encode()
    return text.replace(_seal(_UNSEALED), _seal(f"{crc32c(text):08x}"), 1)


def _seal(crc: str) -> bytes:
    return f'"{CRC_PROPERTY}": "{crc}"'.encode()


def _plain(snapshot: Snapshot, location: TableLocation) -> dict[str, Any]:
    plain = {
        "snapshot-id": snapshot.id,
        "sequence-number": snapshot.sequence,
        "timestamp-ms": snapshot.at_ms,
        "manifest-list": location.path(snapshot.list_key),
        "schema-id": 0,
        "summary": snapshot.summary,
    }
    return plain if snapshot.parent_id is None else {**plain, "parent-snapshot-id": snapshot.parent_id}


def decode(key: str, data: bytes) -> Table:
    """The table in a metadata file. ValueError if it is damaged."""
    named = parse_metadata_key(key)
    if named is None:
        raise ValueError("its key is not that of a metadata file")
    try:
        plain = _parsed(data)
        properties = plain["properties"]
        url = properties["headwater.url"]
        if crc32c(data.replace(_seal(properties[CRC_PROPERTY]), _seal(_UNSEALED), 1)) != int(
            properties[CRC_PROPERTY], 16
        ):
            raise ValueError("its checksum does not match")
        if (properties["headwater.log-id"], int(properties["headwater.version"])) != (named.log_id, named.version):
            raise ValueError("it belongs to another key")
        snapshots = [_snapshot(one, url) for one in plain["snapshots"]]
        previous = [(one["timestamp-ms"], _key_in(one["metadata-file"], url)) for one in plain["metadata-log"]]
        uuid, updated = plain["table-uuid"], plain["last-updated-ms"]
    except (KeyError, TypeError, AttributeError, IndexError) as problem:
        raise ValueError(f"it cannot be decoded ({type(problem).__name__}: {problem})") from problem
    if not snapshots:
        raise ValueError("it has no snapshot")
    return Table(named.table, named.version, uuid, named.log_id, url, updated, tuple(snapshots), tuple(previous))


def _parsed(data: bytes) -> dict[str, Any]:
    try:
        plain: dict[str, Any] = json.loads(data)
    except ValueError as problem:
        raise ValueError(f"it cannot be decoded ({problem})") from problem
    return plain


def _snapshot(plain: dict[str, Any], url: str) -> Snapshot:
    return Snapshot(
        plain["snapshot-id"],
        plain.get("parent-snapshot-id"),
        plain["sequence-number"],
        plain["timestamp-ms"],
        _key_in(plain["manifest-list"], url),
        plain["summary"],
    )


def _key_in(path: str, url: str) -> str:
    if not path.startswith(f"{url}/"):
        raise ValueError(f"its path {path} is outside of {url}")
    return path[len(url) + 1 :]


# -- Which snapshots stay ----------------------------------------------------------------------------------------------


def thinned(snapshots: tuple[Snapshot, ...], now_ms: int, history_ms: int) -> set[int]:
    """The ids of the snapshots that stay by their age: fewer of them the older they are, but always the last one."""
    kept: dict[tuple[int, int], int] = {}
    for snapshot in snapshots:
        age = now_ms - snapshot.at_ms
        if age > history_ms:
            continue
        grain = next((grain for limit, grain in GRAINS if age <= limit), HOUR_MS)
        # Sequence numbers distinguish commits within the same millisecond.
        kept[grain, snapshot.sequence if grain == 1 else snapshot.at_ms // grain] = snapshot.id
    return {*kept.values(), snapshots[-1].id} if snapshots else set()
