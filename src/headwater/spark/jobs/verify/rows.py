"""Rows to be verified, each as a digest of all that it says; so no payload travels between tasks.

The digest of a row is SHA-256 over its numbers (eight bytes each, little-endian: offset, next_offset, record, append,
position, committed_at in microseconds), its words (content type, producer's id, epoch and sequence, each ended by a
NUL, empty where null) and its payload.
"""

import json
from collections.abc import Iterable, Iterator
from hashlib import sha256
from struct import Struct

import msgspec
import pyarrow as pa

from headwater.lake.format import SCHEMA
from headwater.protocol.content_types import is_json

NEEDED = tuple(SCHEMA.names)
NUMBERS = ("offset", "next_offset", "record", "append", "position")

DIGESTS = pa.schema(
    [
        pa.field("name", pa.string()),
        pa.field("incarnation", pa.int64()),
        *(pa.field(name, pa.int64()) for name in NUMBERS),
        pa.field("at", pa.int64()),
        pa.field("producer_id", pa.string()),
        pa.field("producer_epoch", pa.int64()),
        pa.field("producer_seq", pa.int64()),
        pa.field("digest", pa.binary()),
        pa.field("flaw", pa.string()),
    ]
)
DIGESTS_DDL = (
    "name string, incarnation long, offset long, next_offset long, record long, append long, position long, at long, "
    "producer_id string, producer_epoch long, producer_seq long, digest binary, flaw string"
)

_HEAD = Struct("<6q")
_JSON = msgspec.json.Decoder(msgspec.Raw)


def digests(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows as digests, batch by batch."""
    for batch in batches:
        if len(batch):
            yield digest_batch(batch)


def digest_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """One batch of rows, with all columns of the lake, as digests."""
    numbers = [batch[name].to_pylist() for name in NUMBERS]
    times = batch["committed_at"].cast(pa.int64()).to_pylist()
    words = [batch[name].to_pylist() for name in ("content_type", "producer_id", "producer_epoch", "producer_seq")]
    payloads = batch["payload"].to_pylist()
    found, flaws = [], []
    for (head, said), payload in zip(
        zip(zip(*numbers, times, strict=True), zip(*words, strict=True), strict=True), payloads, strict=True
    ):
        text = "".join("\0" if word is None else f"{word}\0" for word in said)
        found.append(sha256(b"".join((_HEAD.pack(*head), text.encode(), payload))).digest())
        flaws.append(flaw_of(head[1] - head[0], said[0], payload))
    names = [
        f"{bucket}/{stream}"
        for bucket, stream in zip(*(batch[one].to_pylist() for one in ("bucket", "stream")), strict=True)
    ]
    columns = [names, batch["incarnation"], *numbers, times, *words[1:], found, flaws]
    return pa.record_batch(
        [pa.array(column, field.type) for column, field in zip(columns, DIGESTS, strict=True)], schema=DIGESTS
    )


def flaw_of(size: int, content_type: str, payload: bytes) -> str | None:
    """What is wrong with a row by itself, if anything."""
    if len(payload) != size:
        return "the payload is not as long as its offsets say"
    if not payload:
        return "the payload is empty"
    if is_json(content_type) and not is_json_value(payload):
        return "the payload is not a JSON value"
    return None


def is_json_value(payload: bytes) -> bool:
    r"""Whether bytes are one JSON value.

    >>> is_json_value(b'{"a": 1}'), is_json_value(b'"\\ud800"'), is_json_value(b"1 2"), is_json_value(b"NaN")
    (True, True, False, False)
    """
    try:
        _JSON.decode(payload)
    except msgspec.DecodeError:
        # It refuses lone surrogates, which are legal.
        try:
            json.loads(payload.decode(), parse_constant=_refuse)
        except ValueError:
            return False
        except RecursionError:
            return True
    return True


def _refuse(word: str) -> None:
    raise ValueError(word)
