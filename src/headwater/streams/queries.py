"""Queries: they read the state and change nothing, except that a read renews a sliding lifetime."""

from typing import Annotated

import msgspec

from headwater.protocol.offsets import NOW
from headwater.protocol.producers import Producer
from headwater.protocol.refusals import Refusal
from headwater.streams.commands.forks import Ancestry


class Head(msgspec.Struct, frozen=True, gc=False):
    """The metadata of a stream; does not renew its lifetime."""

    name: str
    incarnation: int | None = None


class Records(msgspec.Struct, frozen=True, gc=False):
    """A read of a JSON stream by record number: from `start` (`NOW`: the next record), or the last `tail` records."""

    start: int | None = None
    tail: int | None = None
    most: int | None = None
    """The most records in one page."""
    envelope: bool = False
    """Whether each message is returned with its record number."""


class Read(msgspec.Struct, frozen=True, gc=False):
    """A page of bytes from `offset`; `NOW` is the tail."""

    name: str
    offset: int = 0
    incarnation: int | None = None
    bytes_max: int | None = None
    """The client's own limit; the server's limit applies too."""
    records: Records | None = None
    bytes_limit: int | None = None
    """A page that cannot be as short as this, because of its first message, is refused: there is no memory for it."""

    @property
    def from_now(self) -> bool:
        """Whether the start depends on the tail, so that the response must not be cached."""
        if self.records is None:
            return self.offset == NOW
        return self.records.start == NOW or self.records.tail is not None

    def following(self, next_offset: int, incarnation: int) -> "Read":
        """The read that continues after a page of this one."""
        records = None if self.records is None else Records(None, None, self.records.most, self.records.envelope)
        return Read(self.name, next_offset, incarnation, self.bytes_max, records)


SplitBody = tuple[bytes, bytes | None] | Refusal
"""The messages of a JSON body and where they end, or what is wrong with it."""


class ForkTarget(msgspec.Struct, frozen=True, gc=False):
    """Whether a fork may be created under this name, or what exists there already."""

    name: str
    closed: bool
    ancestry: Ancestry
    incarnation: int | None = None
    attrs: bytes | None = None
    producer: Producer | None = None
    body: bytes = b""
    absent: bool = False
    split: SplitBody | None = None


class Anchor(msgspec.Struct, frozen=True, gc=False):
    """The byte position of a fork point: `sub_offset` messages (JSON) or bytes after an offset."""

    name: str
    offset: int
    sub_offset: int


class Boundary(msgspec.Struct, frozen=True, gc=False):
    """Whether an offset, or a record number, is a message boundary, where a snapshot may be placed."""

    name: str
    offset: int | None = None
    record: int | None = None
    incarnation: int | None = None


class Bucket(msgspec.Struct, frozen=True, gc=False):
    """What a shard knows about a bucket."""

    bucket: str


class Listing(msgspec.Struct, frozen=True, gc=False):
    """A page of a bucket's streams, by name; without a bucket of all streams, by whole name."""

    bucket: str | None
    prefix: str
    after: str
    limit: int


class Buckets(msgspec.Struct, frozen=True, gc=False):
    """A page of all buckets, by name."""

    prefix: str
    after: str
    limit: int


# -- About many streams at once; each is an array in JSON -------------------------------------------------------------

Natural = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class Range(msgspec.Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    """The messages of one incarnation of a stream that begin at or after `start` and before `until`."""

    name: str
    incarnation: Natural
    start: Natural
    until: Natural


class Ordinal(msgspec.Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    """A message of one incarnation of a stream, by its record number."""

    name: str
    incarnation: Natural
    record: Natural


Query = Head | Read | ForkTarget | Anchor | Boundary | Bucket | Listing
