"""Replies: every outcome that is not a refusal, as a frozen value; `http.wire.statuses` turns each into HTTP."""

import msgspec

from headwater.protocol.lifetimes import Lifetime
from headwater.protocol.refusals import Refusal
from headwater.streams.commands.snapshots import Snapshot


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
    """The stream was created."""

    incarnation: int
    content_type: str
    next_offset: int
    closed: bool
    producer_epoch: int | None = None
    producer_seq: int | None = None
    record: int | None = None
    record_next: int | None = None
    """The record numbers of its first messages; JSON streams only."""


class Existed(_Reply, frozen=True):
    """The stream existed already with the same configuration."""

    incarnation: int
    content_type: str
    next_offset: int
    closed: bool


class Appended(_Reply, frozen=True):
    """The messages were appended; the stream may have been closed with them."""

    incarnation: int
    next_offset: int
    closed: bool
    record: int | None = None
    record_next: int | None = None
    """The record numbers of the new messages; JSON streams only."""
    producer_epoch: int | None = None
    producer_seq: int | None = None


class ClosedOnly(_Reply, frozen=True):
    """The stream is closed, by this request or an earlier one; nothing was appended."""

    incarnation: int
    next_offset: int
    producer_epoch: int | None = None
    producer_seq: int | None = None


class Duplicate(_Reply, frozen=True):
    """This producer's request was accepted before; nothing was appended now."""

    incarnation: int
    next_offset: int
    closed: bool
    producer_epoch: int
    producer_seq: int
    record: int | None = None
    record_next: int | None = None
    size: int | None = None  # The bytes accepted then, if this is the producer's last request.


class Deleted(_Reply, frozen=True):
    """The stream was deleted; its data may be kept for its forks."""

    incarnation: int


class Done(_Reply, frozen=True):
    """An internal command was carried out, or had nothing to do."""


class Acknowledged(_Reply, frozen=True):
    """A request about a stream succeeded."""

    incarnation: int


class Published(_Reply, frozen=True):
    """A snapshot is visible, published by this request or an earlier one with the same bytes."""

    incarnation: int
    snapshot_offset: int
    next_offset: int
    closed: bool
    digest: str


class BucketOpened(_Reply, frozen=True):
    """The bucket was created."""


class BucketExisted(_Reply, frozen=True):
    """The bucket existed already."""


class BucketSealed(_Reply, frozen=True):
    """No stream can be created in the bucket now; `streams` are in it."""

    streams: int


class BucketDropped(_Reply, frozen=True):
    """The bucket was dropped."""


class BucketFacts(_Reply, frozen=True):
    """What one shard knows about a bucket: whether it was opened, its streams, and how many prevent its deletion."""

    opened: bool
    streams: int
    lives: int


class Listed(_Reply, frozen=True):
    """A page of streams, and whether more follow."""

    streams: list[Entry]
    has_more: bool


class BucketEntry(_Reply, frozen=True):
    """A bucket in a listing, and the number of its streams."""

    bucket_id: str
    streams: int


class BucketsListed(_Reply, frozen=True):
    """A page of buckets, and whether more follow."""

    buckets: list[BucketEntry]
    has_more: bool


class Pinned(_Reply, frozen=True):
    """The source of a fork at the time it was pinned."""

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
    """Nothing exists under this name."""


class Anchored(_Reply, frozen=True):
    """A fork point as a byte position, and how many messages begin before it."""

    incarnation: int
    to: int
    record_to: int
    tail: int | None = None
    """Where the stream ended then, if this is the boundary of a snapshot or a retention."""


class Settled(_Reply, frozen=True):
    """Whether a fork holds the pin."""

    held: bool


class Placed(_Reply, frozen=True):
    """A publication or a swap took effect."""


class Misplaced(_Reply, frozen=True):
    """A publication or a swap does not fit the state, or came too late; nothing changed."""

    detail: str


class Described(_Reply, frozen=True):
    """The metadata of a stream, as HEAD returns it."""

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
    """A range of a stream with its bytes, ready to send; it begins at `start`."""

    incarnation: int
    content_type: str
    start: int
    next_offset: int
    up_to_date: bool
    closed: bool
    body: bytes
    record_first: int | None = None
    record_next: int | None = None
    """The oldest retained record number, and the one after this page; JSON streams only."""
    record: int | None = None
    """The record number of the first message, if the page was requested by record number."""


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
