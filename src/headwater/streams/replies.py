"""Replies: every outcome that is not a refusal, as frozen values; `statuses` turns each into HTTP."""

import msgspec

from headwater.protocol.lifetimes import Lifetime
from headwater.protocol.refusals import Refusal
from headwater.streams.commands import Snapshot


class _Reply(msgspec.Struct, frozen=True, gc=False):
    pass


class Entry(_Reply, frozen=True):
    """A stream in a listing."""

    stream_id: str
    status: str
    content_type: str
    tail_offset: int
    created_at_ms: int
    last_write_at_ms: int


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
    record: int | None = None
    record_next: int | None = None
    """The ordinals of the messages that were added; JSON streams only."""
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
    record: int | None = None
    record_next: int | None = None
    size: int | None = None  # The bytes that were accepted, where this is the producer's last request.


class Deleted(_Reply, frozen=True):
    """The stream is gone, for good or but for its forks."""

    incarnation: int


class Done(_Reply, frozen=True):
    """A command of our own did its work, or found it done."""


class Acknowledged(_Reply, frozen=True):
    """A request about a stream did what it asked for."""

    incarnation: int


class Published(_Reply, frozen=True):
    """A snapshot is visible, by this request or an earlier one of the same bytes."""

    incarnation: int
    snapshot_offset: int
    next_offset: int
    closed: bool


class BucketOpened(_Reply, frozen=True):
    """The bucket did not exist and now does."""


class BucketExisted(_Reply, frozen=True):
    """The bucket was there already."""


class BucketSealed(_Reply, frozen=True):
    """No stream can be made in the bucket now; how many there are."""

    streams: int


class BucketDropped(_Reply, frozen=True):
    """The bucket is gone."""


class BucketFacts(_Reply, frozen=True):
    """What one shard knows of a bucket: whether it was opened, its streams, and those that count against its end."""

    opened: bool
    streams: int
    lives: int


class Listed(_Reply, frozen=True):
    """A page of a bucket's streams; whether more follow."""

    streams: list[Entry]
    has_more: bool


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
    snapshot: Snapshot | None = None


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


class Placed(_Reply, frozen=True):
    """A publication or a swap took its place."""


class Misplaced(_Reply, frozen=True):
    """A publication or a swap does not fit what is there, or came too late; nothing happened."""

    detail: str


class Described(_Reply, frozen=True):
    """What HEAD tells of a stream."""

    incarnation: int
    content_type: str
    next_offset: int
    closed: bool
    lifetime: Lifetime
    snapshot: Snapshot | None = None
    record_first: int | None = None
    record_next: int | None = None
    attrs: bytes | None = None


class Page(_Reply, frozen=True):
    """A stretch of a stream with its bytes, ready to be sent; `start` is where it begins."""

    incarnation: int
    content_type: str
    start: int
    next_offset: int
    up_to_date: bool
    closed: bool
    body: bytes
    record_first: int | None = None
    record_next: int | None = None
    """The oldest ordinal that is retained, and the one after the last in this page; JSON streams only."""
    record: int | None = None
    """The ordinal that this page begins with, if it was asked for by ordinals."""


Reply = (
    Created
    | Existed
    | Appended
    | ClosedOnly
    | Duplicate
    | Deleted
    | Done
    | Acknowledged
    | Published
    | BucketOpened
    | BucketExisted
    | BucketSealed
    | BucketDropped
    | BucketFacts
    | Listed
    | Pinned
    | Absent
    | Anchored
    | Settled
    | Placed
    | Misplaced
    | Described
    | Page
    | Refusal
)
