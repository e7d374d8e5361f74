"""What the methods of the client return: frozen values."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from headwater.client.errors import ProtocolViolation
from headwater.protocol import content_types

START = "-1"
"""The offset before the first byte."""
NOW = "now"
"""The offset of the tail when the request arrives."""

Live = Literal["auto", "sse", "long-poll"]
OnTrimmed = Literal["raise", "earliest", "bootstrap"]
OnDuplicate = Literal["raise", "accept"]
OnRefused = Literal["raise", "drop"]


@dataclass(frozen=True, slots=True)
class Created:
    """A stream exists; `new` if this request created it."""

    new: bool
    next_offset: str
    location: str | None
    incarnation: str | None


@dataclass(frozen=True, slots=True)
class Appended:
    """An append was accepted.

    Concurrent appends may have shared a request; `next_offset` is then the end of the request, at or after the end of
    this append. The record numbers are those of this append.
    """

    next_offset: str
    duplicate: bool = False
    record_start: int | None = None
    record_next: int | None = None


@dataclass(frozen=True, slots=True)
class BatchAck:
    """The outcome of one message of a batch."""

    status: int
    next_offset: str | None
    code: str | None = None
    error: str | None = None
    record_start: int | None = None
    record_next: int | None = None

    @property
    def ok(self) -> bool:
        return self.status < 300


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """A stream as HEAD describes it."""

    content_type: str
    next_offset: str
    closed: bool
    etag: str | None = None
    ttl_seconds: int | None = None
    expires_at: str | None = None
    incarnation: str | None = None
    snapshot_offset: str | None = None
    record_first: int | None = None
    record_next: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)

    @property
    def is_json(self) -> bool:
        return content_types.is_json(self.content_type)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of a stream at an offset."""

    data: bytes
    content_type: str
    offset: str


@dataclass(frozen=True, slots=True)
class Chunk:
    """Part of a stream: complete messages, and the offset after them.

    A follower that starts over (see `on_trimmed`) returns a chunk with a `snapshot`, whose data is what follows it.
    """

    data: bytes
    next_offset: str
    content_type: str
    up_to_date: bool = False
    closed: bool = False
    incarnation: str | None = None
    cursor: str | None = None
    etag: str | None = None
    snapshot: Snapshot | None = None

    @property
    def empty(self) -> bool:
        if content_types.is_json(self.content_type):
            return len(self.data) < 16 and b"".join(self.data.split()) in (b"", b"[]")
        return not self.data

    def json(self) -> list[Any]:
        """The messages of a JSON stream.

        >>> Chunk(b'[{"a":1},2]', "0", "application/json").json()
        [{'a': 1}, 2]
        """
        if not self.data:
            return []
        try:
            messages = json.loads(self.data)
        except ValueError as error:
            raise ProtocolViolation(f"The data before offset {self.next_offset} is not valid JSON: {error}.") from error
        if not isinstance(messages, list):
            raise ProtocolViolation(f"The data before offset {self.next_offset} is JSON, but not an array.")
        return messages

    def text(self) -> str:
        return self.data.decode()


@dataclass(frozen=True, slots=True)
class Record:
    """One message of a JSON stream with its record number."""

    number: int
    value: Any


@dataclass(frozen=True, slots=True)
class BucketInfo:
    """A bucket, and the number of its streams."""

    name: str
    streams: int


@dataclass(frozen=True, slots=True)
class ListedStream:
    """One line of a bucket's listing."""

    name: str
    closed: bool
    content_type: str
    tail_offset: int
    created_at_ms: int
    last_write_at_ms: int
