"""The public format of the lake, version 2: the columns of a segment, the order of its rows, the keys of objects.

`docs/reference/lake.md` describes it for readers of the files. In this package a *life* is one incarnation of a stream:
from its creation until it is deleted or expires.
"""

import re
from typing import NamedTuple

import pyarrow as pa

VERSION = "2"
VERSION_KEY = "headwater.schema"
GROUPS_KEY = "headwater.groups"
SEAL_KEY = "headwater.footer"
"""Footer metadata: the version; a JSON list of [first row, rows, first byte, bytes, CRC-32C], one per row group; and
the CRC-32C of the footer itself in hexadecimal digits, computed with zeros in their place."""

_COLUMNS = [
    pa.field("bucket", pa.string(), nullable=False),
    pa.field("stream", pa.string(), nullable=False),
    pa.field("incarnation", pa.int64(), nullable=False),
    pa.field("offset", pa.int64(), nullable=False),
    pa.field("next_offset", pa.int64(), nullable=False),
    pa.field("record", pa.int64(), nullable=False),
    pa.field("append", pa.int64(), nullable=False),
    pa.field("position", pa.int64(), nullable=False),
    pa.field("committed_at", pa.timestamp("us", tz="UTC"), nullable=False),
    pa.field("producer_id", pa.string()),
    pa.field("producer_epoch", pa.int64()),
    pa.field("producer_seq", pa.int64()),
    pa.field("content_type", pa.string(), nullable=False),
    pa.field("payload", pa.binary(), nullable=False),
]
SCHEMA = pa.schema(
    [field.with_metadata({"PARQUET:field_id": str(number)}) for number, field in enumerate(_COLUMNS, start=1)]
)
"""One row per message. Rows are sorted by `name_of(bucket, stream)`, then incarnation, then offset. The whole name
counts because listings and the state are in that order: `team-a/x` comes before `team/x`, although `team` is less.
The ids of the columns, in the files and in every table's metadata, are 1 to 14 in this order."""

WORDS = ("bucket", "stream", "content_type", "producer_id")
"""Columns with few distinct values: dictionary encoded."""

GROUP_BYTES = 1024 * 1024
GROUP_ROWS = 16_384
"""The approximate payload and rows of a row group: the least that one cold read fetches and decodes."""

ID_DIGITS = 11
"""Hexadecimal digits of a deadline in milliseconds, enough until the year 2527."""

_KEY = re.compile(rf"segments/shard=(\d+)/(\d{{20}})-(\d{{20}})-([0-9a-f]{{{ID_DIGITS}}}[0-9a-z]+)\.parquet")
_RANDOM = re.compile(r"[0-9a-z]+")


class SegmentKey(NamedTuple):
    """What the key of a segment's object says."""

    shard: int
    first_position: int
    last_position: int
    id: str


def segment_key(shard: int, first_position: int, last_position: int, id: str) -> str:
    """The key of a segment's object.

    >>> segment_key(0, 7, 1042, "19a0c3d2e00k3f9")
    'segments/shard=0/00000000000000000007-00000000000000001042-19a0c3d2e00k3f9.parquet'
    """
    return f"segments/shard={shard}/{first_position:020}-{last_position:020}-{id}.parquet"


def parse_segment_key(key: str) -> SegmentKey | None:
    """The parts of a segment's key, or None if it is another object's.

    >>> parse_segment_key(segment_key(0, 7, 1042, "19a0c3d2e00k3f9"))
    SegmentKey(shard=0, first_position=7, last_position=1042, id='19a0c3d2e00k3f9')
    """
    match = _KEY.fullmatch(key)
    return SegmentKey(int(match[1]), int(match[2]), int(match[3]), match[4]) if match else None


def new_segment_id(deadline_us: int, random: str) -> str:
    """An id that begins with the deadline of its publication, rounded up to a millisecond so that no sweep is early.

    >>> new_segment_id(1_763_251_200_000_001, "k3f9")
    '19a89f62001k3f9'
    """
    milliseconds = -(-deadline_us // 1000)
    if not 0 <= milliseconds < 16**ID_DIGITS:
        raise ValueError(f"The deadline {deadline_us} does not fit into the {ID_DIGITS} digits of a segment's id.")
    if not _RANDOM.fullmatch(random):
        raise ValueError(f"A segment's id ends in digits and lower-case letters, not in {random!r}.")
    return f"{milliseconds:0{ID_DIGITS}x}{random}"


def deadline_us_of(id: str) -> int:
    """The deadline that an id begins with.

    >>> deadline_us_of("19a89f62001k3f9")
    1763251200001000
    """
    return int(id[:ID_DIGITS], 16) * 1000


def name_of(bucket: str, stream: str) -> str:
    """The full name of a stream.

    >>> name_of("team", "notes/1"), name_of("_default", "notes")
    ('team/notes/1', '_default/notes')
    """
    return f"{bucket}/{stream}"


def split_name(name: str) -> tuple[str, str]:
    """The columns `bucket` and `stream` of a full name, which the first slash separates.

    >>> split_name("team/notes/1")
    ('team', 'notes/1')
    """
    bucket, slash, stream = name.partition("/")
    if not slash:
        raise ValueError(f"The name {name!r} has no bucket; a stream's name is bucket/stream.")
    return bucket, stream
