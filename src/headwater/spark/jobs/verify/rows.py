"""Rows to verify, each as a digest of all its columns, so that no payload is sent between tasks.

The digest of a row is the SHA-256 of its numbers (eight bytes each, little-endian: offset, next_offset, record, append,
position, committed_at in microseconds), its texts (content type, producer id, epoch and sequence, each followed by a
NUL, empty if null) and its payload.
"""

from collections.abc import Iterable, Iterator
from hashlib import sha256
from struct import Struct

import pyarrow as pa

from headwater.lake.format import SCHEMA
from headwater.lake.verify.rows import is_json_value
from headwater.protocol.content_types import is_json

NEEDED = tuple(SCHEMA.names)
FLAW = "flaw"
"""A column that says what is wrong with a row, if anything; not all sides have it."""
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


def digests(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Batches of rows as batches of digests."""
    for batch in batches:
        if len(batch):
            yield digest_batch(batch)


def digest_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch of rows, with all columns of the lake, as digests."""
    numbers = [batch[name].to_pylist() for name in NUMBERS]
    times = batch["committed_at"].cast(pa.int64()).to_pylist()
    texts = [batch[name].to_pylist() for name in ("content_type", "producer_id", "producer_epoch", "producer_seq")]
    payloads = batch["payload"].to_pylist()
    known = batch[FLAW].to_pylist() if FLAW in batch.schema.names else [None] * len(batch)
    found, flaws = [], []
    for head, row_texts, payload, flaw in zip(
        zip(*numbers, times, strict=True), zip(*texts, strict=True), payloads, known, strict=True
    ):
        joined = "".join("\0" if text is None else f"{text}\0" for text in row_texts)
        found.append(sha256(b"".join((_HEAD.pack(*head), joined.encode(), payload))).digest())
        flaws.append(flaw or flaw_of(head[1] - head[0], row_texts[0], payload))
    names = [
        f"{bucket}/{stream}"
        for bucket, stream in zip(*(batch[one].to_pylist() for one in ("bucket", "stream")), strict=True)
    ]
    columns = [names, batch["incarnation"], *numbers, times, *texts[1:], found, flaws]
    return pa.record_batch(
        [pa.array(column, field.type) for column, field in zip(columns, DIGESTS, strict=True)], schema=DIGESTS
    )


def flaw_of(size: int, content_type: str, payload: bytes) -> str | None:
    """What is wrong with a single row, if anything."""
    if len(payload) != size:
        return "the length of the payload does not match its offsets"
    if not payload:
        return "the payload is empty"
    if is_json(content_type) and not is_json_value(payload):
        return "the payload is not a JSON value"
    return None
