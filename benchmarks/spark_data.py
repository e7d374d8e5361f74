"""Streams to measure: known messages, written to a server fast, and verified by the sum of their checksums."""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.servers import BenchmarkError, Server
from headwater.client import ScanRange
from headwater.spark.link import Link, LinkSettings

JSON = "application/json"
REQUEST_BYTES = 16 * 1024 * 1024
"""About how many bytes of messages one bulk append has; a server accepts 32 MiB."""
NOTE = "a note that is as long as notes are, about seventy characters of text"

APPENDS = pa.schema(
    [
        ("stream", pa.string()),
        ("messages", pa.list_(pa.binary())),
        ("content_type", pa.string()),
        ("create", pa.bool_()),
    ]
)


class Known(NamedTuple):
    """The count, size and checksum of a set of messages, in any order."""

    rows: int
    bytes: int
    checksum: int

    @classmethod
    def of(cls, payloads: pa.Array | pa.ChunkedArray) -> "Known":
        total = sum(zlib.crc32(payload.as_buffer()) for payload in payloads if payload is not None)
        return cls(len(payloads), pc.sum(pc.binary_length(payloads)).as_py() or 0, total)

    def __add__(self, other: "Known") -> "Known":  # type: ignore[override]
        return Known(*(mine + more for mine, more in zip(self, other, strict=True)))

    def compare(self, found: "Known") -> list[str]:
        """Describe a difference."""
        return [] if found == self else [f"read {found} instead of {self}"]


NOTHING = Known(0, 0, 0)


@dataclass(frozen=True, slots=True)
class Shape:
    """How many streams, how many messages in each, and how many messages in one append."""

    streams: int
    messages: int
    append_messages: int

    @property
    def rows(self) -> int:
        return self.streams * self.messages

    @property
    def label(self) -> str:
        return f"{self.streams:,} x {self.messages:,}"


def name(index: int) -> str:
    return f"s{index:06d}"


def message(stream: int, number: int) -> bytes:
    """One of a stream's messages, about 145 bytes.

    >>> len(message(7, 12))
    142
    """
    return b'{"id":%08d,"stream":"s%06d","kind":"%s","amount":%d.25,"note":"%s"}' % (
        number + 10_000_000,
        stream,
        (b"click", b"order", b"visit")[number % 3],
        number * 7 % 1000 + 1000,
        NOTE.encode(),
    )


class Filled(NamedTuple):
    """A bucket with streams of a shape."""

    server: Server
    bucket: str
    shape: Shape
    known: Known

    @property
    def url(self) -> str:
        return url_of(self.server)


def url_of(server: Server) -> str:
    return f"http://{server.address[0]}:{server.address[1]}"


def fill(server: Server, bucket: str, shape: Shape, flushes: int = 0) -> Filled:
    """Append in turns, each to all streams, with so many flushes spread evenly over the turns."""
    known, turns = NOTHING, -(-shape.messages // shape.append_messages)
    with Link(LinkSettings(url_of(server), timeout_seconds=300.0)) as link:
        for turn in range(turns):
            first = turn * shape.append_messages
            numbers = range(first, min(shape.messages, first + shape.append_messages))
            for table in requests(bucket, shape.streams, numbers):
                answer = link.append(table)
                if refused := set(answer["status"].to_pylist()) - {200}:
                    raise BenchmarkError(f"Filling was answered with {sorted(refused)}.")
                known += Known.of(table["messages"].combine_chunks().flatten())
            if flushes and (turn + 1) * flushes // turns > turn * flushes // turns:
                link.flush()
    return Filled(server, bucket, shape, known)


def requests(bucket: str, streams: int, numbers: range) -> Iterator[pa.Table]:
    """Yield tables that append messages with these numbers to every stream."""
    each = max(1, REQUEST_BYTES // (len(message(0, 0)) * len(numbers)))
    for first in range(0, streams, each):
        indexes = range(first, min(streams, first + each))
        rows = len(indexes)
        columns = [
            [f"{bucket}/{name(index)}" for index in indexes],
            [[message(index, number) for number in numbers] for index in indexes],
            [JSON] * rows,
            [True] * rows,
        ]
        yield pa.table(columns, schema=APPENDS)


def held(server: Server, bucket: str) -> Known:
    """Read back everything in a bucket."""
    found = NOTHING
    with Link(LinkSettings(url_of(server), timeout_seconds=300.0)) as link:
        for page in link.describe_all(f"{bucket}/"):
            lives = page.select(["stream", "incarnation", "start", "tail"]).to_pylist()
            ranges = [ScanRange(*life.values()) for life in lives]
            with link.scan(ranges, ["payload"]) as batches:
                for batch in batches:
                    found += Known.of(batch["payload"])
    return found
