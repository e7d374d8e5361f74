"""Queries: everything that looks at a stream and changes nothing (but for renewing a sliding lifetime)."""

from typing import Annotated

import msgspec

from headwater.protocol.offsets import NOW
from headwater.streams.commands import Ancestry


class Head(msgspec.Struct, frozen=True, gc=False):
    """What a stream is; does not renew its lifetime."""

    name: str
    incarnation: int | None = None


class Records(msgspec.Struct, frozen=True, gc=False):
    """A read of a JSON stream by ordinals: from one on (`NOW`: the next) or the last few; how many, and how wrapped."""

    start: int | None = None
    tail: int | None = None
    most: int | None = None
    envelope: bool = False


class Read(msgspec.Struct, frozen=True, gc=False):
    """The bytes from `offset` on, a page of them; `NOW` is the tail."""

    name: str
    offset: int = 0
    incarnation: int | None = None
    bytes_max: int | None = None
    """What the client wants at the most; the server's own limit holds too."""
    records: Records | None = None

    @property
    def from_now(self) -> bool:
        """Whether where the read begins depends on the tail, so that its answer must not be cached."""
        if self.records is None:
            return self.offset == NOW
        return self.records.start == NOW or self.records.tail is not None

    def following(self, next_offset: int, incarnation: int) -> "Read":
        """The read that goes on behind a page of this one."""
        records = None if self.records is None else Records(None, None, self.records.most, self.records.envelope)
        return Read(self.name, next_offset, incarnation, self.bytes_max, records)


class ForkTarget(msgspec.Struct, frozen=True, gc=False):
    """Whether a fork may be made under this name, or what stands there already."""

    name: str
    closed: bool
    ancestry: Ancestry
    incarnation: int | None = None
    attrs: bytes | None = None


class Anchor(msgspec.Struct, frozen=True, gc=False):
    """The byte position of a fork point: `sub_offset` messages (JSON) or bytes past an offset."""

    name: str
    offset: int
    sub_offset: int


class Border(msgspec.Struct, frozen=True, gc=False):
    """Whether an offset, or a record, is a border between messages: where a snapshot may stand."""

    name: str
    offset: int | None = None
    record: int | None = None
    incarnation: int | None = None


class Bucket(msgspec.Struct, frozen=True, gc=False):
    """What is known of a bucket."""

    bucket: str


class Listing(msgspec.Struct, frozen=True, gc=False):
    """The streams of a bucket, by name."""

    bucket: str
    prefix: str
    after: str
    limit: int


# -- About many streams at once; each is an array in JSON -------------------------------------------------------------

Natural = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class Range(msgspec.Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    """The messages of one life of a stream that begin at or behind one offset and before another."""

    name: str
    incarnation: Natural
    start: Natural
    until: Natural


class Ordinal(msgspec.Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    """A message of one life of a stream, by how many were before it."""

    name: str
    incarnation: Natural
    record: Natural


Query = Head | Read | ForkTarget | Anchor | Border | Bucket | Listing
