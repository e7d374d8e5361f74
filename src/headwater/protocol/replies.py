"""Replies: every outcome that is not a refusal, as frozen values; `statuses` turns each into HTTP."""

import msgspec

from headwater.protocol.lifetimes import Lifetime
from headwater.protocol.refusals import Refusal


class _Reply(msgspec.Struct, frozen=True, gc=False):
    pass


class Created(_Reply, frozen=True):
    """The stream did not exist and now does."""

    incarnation: int
    content_type: str
    next_offset: int
    closed: bool
    producer_epoch: int | None = None
    producer_seq: int | None = None


class Existed(_Reply, frozen=True):
    """The stream was there already, with the same configuration."""

    incarnation: int
    content_type: str
    next_offset: int
    closed: bool


class Appended(_Reply, frozen=True):
    """The messages are in the stream, and it may be closed now."""

    incarnation: int
    next_offset: int
    closed: bool
    record: int
    record_next: int
    producer_epoch: int | None = None
    producer_seq: int | None = None


class ClosedOnly(_Reply, frozen=True):
    """The stream is closed, by this request or an earlier one; nothing was added."""

    incarnation: int
    next_offset: int
    producer_epoch: int | None = None
    producer_seq: int | None = None


class Duplicate(_Reply, frozen=True):
    """This producer's request was accepted before; nothing was added now."""

    incarnation: int
    next_offset: int
    closed: bool
    producer_epoch: int
    producer_seq: int


class Deleted(_Reply, frozen=True):
    """The stream is gone, for good or but for its forks."""

    incarnation: int


class Done(_Reply, frozen=True):
    """A command of our own did its work, or found it done."""


class Pinned(_Reply, frozen=True):
    """What the source of a fork is, as of the pin."""

    incarnation: int
    content_type: str
    lifetime: Lifetime
    start: int
    to: int
    record_start: int
    record_to: int
    depth: int


class Absent(_Reply, frozen=True):
    """Nothing stands under this name."""


class Anchored(_Reply, frozen=True):
    """A fork point as a byte position, and how many messages begin before it."""

    incarnation: int
    to: int
    record_to: int


class Settled(_Reply, frozen=True):
    """Whether a fork holds the pin."""

    held: bool


class Described(_Reply, frozen=True):
    """What HEAD tells of a stream."""

    incarnation: int
    content_type: str
    next_offset: int
    closed: bool
    lifetime: Lifetime


class Page(_Reply, frozen=True):
    """A stretch of a stream with its bytes, ready to be sent; `start` is where it begins."""

    incarnation: int
    content_type: str
    start: int
    next_offset: int
    up_to_date: bool
    closed: bool
    body: bytes


Reply = (
    Created
    | Existed
    | Appended
    | ClosedOnly
    | Duplicate
    | Deleted
    | Done
    | Pinned
    | Absent
    | Anchored
    | Settled
    | Described
    | Page
    | Refusal
)
