"""Commands: everything that can change a shard's state, as frozen values that are written to the log.

The outcome of a command depends on the state and the command alone: its time is that of its batch, its limits are
constants of its version. The tag ends with that version. A command whose meaning changes gets a new version, so that
an old log keeps its meaning.
"""

import msgspec

from headwater.protocol.etags import Version
from headwater.protocol.lifetimes import FOREVER, Lifetime
from headwater.protocol.producers import Producer
from headwater.streams.ancestry import Ancestry, Origin
from headwater.streams.cluster import AskFlush, AskTables, Cataloged, Checkpoint, Evict, Join, Keep, RaiseLevel
from headwater.streams.logged import Logged, Row
from headwater.streams.purges import PurgeCommand
from headwater.streams.registrations import ConsumerCommand
from headwater.streams.segments import Rows, Segment


class Snapshot(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A materialised view of a stream up to an offset; its bytes are stored in a blob."""

    offset: int
    record: int
    blob: str
    content_type: str
    size: int
    digest: str


NO_SNAPSHOT = "none"
"""What a publication replaces if the stream has no snapshot yet; no digest is this."""


@Row(asked_by="client", room="takes", settles=True)
class Create(Logged, frozen=True, tag="create.1"):
    """Create a stream, optionally with its first bytes, optionally closed."""

    name: str
    content_type: str
    lifetime: Lifetime = FOREVER
    closed: bool = False
    payload: bytes = b""
    ends: bytes | None = None
    seq: str | None = None
    producer: Producer | None = None
    incarnation: int | None = None
    attrs: bytes | None = None
    needs_bucket: bool = False
    """Whether the bucket must exist already; on the flat surface buckets come into being with their first stream."""
    absent: bool = False
    """Whether a stream that exists is a failed condition, whatever its configuration."""


@Row(asked_by="client", room="takes")
class Append(Logged, frozen=True, tag="append.1"):
    """Append messages, close the stream, or both; `ends` are the packed ends of several messages in the payload."""

    name: str
    payload: bytes
    ends: bytes | None = None
    content_type: str = ""
    close: bool = False
    seq: str | None = None
    producer: Producer | None = None
    incarnation: int | None = None
    if_match: tuple[Version, ...] | None = None
    record_match: int | None = None
    asked_at: int | None = None
    """When a stream with a sliding lifetime was written to, or, while an earlier renewal is on its way to the log, when
    that was asked for: the stream is alive if it was then, however long the log took."""


@Row(asked_by="client", room="frees")
class FinishProducer(Logged, frozen=True, tag="finish-producer.1"):
    """A producer writes nothing more, to any stream: fence it off, and let streams forget it. Idempotent."""

    producer: str


@Row(asked_by="client", room="takes")
class SetAttrs(Logged, frozen=True, tag="set-attrs.1"):
    """Replace a stream's attributes, a JSON object as text."""

    name: str
    attrs: bytes
    incarnation: int | None = None
    asked_at: int | None = None
    """As in `Append`."""


@Row(asked_by="client", room="takes")
class PublishSnapshot(Logged, frozen=True, tag="publish-snapshot.1"):
    """Make a snapshot visible whose blob is already durable; `trims` says whether history before it is dropped."""

    name: str
    incarnation: int
    snapshot: Snapshot
    trims: bool
    tail: int | None = None
    """Where the stream ended when the offset was found to be a boundary; nothing is known of offsets beyond it."""
    if_match: tuple[Version, ...] | None = None
    replaces: str | None = None
    """The digest that the present snapshot must have; `NO_SNAPSHOT` if there must be none."""
    deadline: int | None = None
    """After this time it is refused: the blob may have been deleted. Blobs of earlier versions have none."""


@Row(asked_by="client", room="frees")
class Retain(Logged, frozen=True, tag="retain.1"):
    """Drop history before an offset; a snapshot must cover it."""

    name: str
    incarnation: int
    offset: int
    record: int
    tail: int | None = None
    """As in `PublishSnapshot`."""


@Row(asked_by="chore", room="frees")
class Discarded(Logged, frozen=True, tag="discarded.1"):
    """An unused blob has been deleted from disk: forget it."""

    blob: str


@Row(asked_by="client", room="frees", settles=True)
class Delete(Logged, frozen=True, tag="delete.1"):
    """Delete a stream; its bytes stay while forks need them."""

    name: str
    incarnation: int | None = None
    if_match: tuple[Version, ...] | None = None


@Row(asked_by="chore", room="frees")
class Touch(Logged, frozen=True, tag="touch.1"):
    """Renew a sliding lifetime because the stream was read at that time."""

    name: str
    incarnation: int
    asked_at: int
    alive_at: int | None = None
    """When an earlier renewal was asked for that was on its way at the time of the read; it has been applied since."""


@Row(asked_by="chore", room="frees")
class Expire(Logged, frozen=True, tag="expire.1"):
    """Make the expiry of a stream permanent; judged again when applied."""

    name: str
    incarnation: int


# -- The fork saga: Pin on the source's shard, CreateFork on the fork's, then Confirm or Unpin on the source's -------


@Row(asked_by="client", room="frees")
class Pin(Logged, frozen=True, tag="pin.1"):
    """Pin a range of a source for a fork that is about to be created; without `to`, up to the tail."""

    name: str
    pin: str
    fork: str
    deadline: int
    incarnation: int | None = None
    to: int | None = None
    record_to: int | None = None
    """The fork point and the number of messages before it, resolved in that incarnation."""


@Row(asked_by="chore", room="frees")
class Confirm(Logged, frozen=True, tag="confirm.1"):
    """The fork exists: its pin stays until the fork is removed."""

    name: str
    incarnation: int
    pin: str


@Row(asked_by="chore", room="frees")
class Unpin(Logged, frozen=True, tag="unpin.1"):
    """The fork does not exist (any more): release its source. Idempotent."""

    name: str
    incarnation: int
    pin: str


@Row(asked_by="client", room="takes", settles=True)
class CreateFork(Logged, frozen=True, tag="create-fork.1"):
    """Create a stream that begins with the bytes of another; refused after the deadline of its pin."""

    name: str
    content_type: str
    lifetime: Lifetime
    closed: bool
    payload: bytes
    ends: bytes | None
    origin: Origin
    ancestry: Ancestry
    deadline: int
    seq: str | None = None
    producer: Producer | None = None
    snapshot: Snapshot | None = None
    attrs: bytes | None = None
    needs_bucket: bool = False
    absent: bool = False


@Row(asked_by="chore", room="frees")
class Settle(Logged, frozen=True, tag="settle.1"):
    """Ask the fork's shard, after the pin's deadline, whether a fork holds the pin; afterwards none can take it."""

    name: str
    pin: str
    deadline: int


@Row(asked_by="chore", room="frees")
class Paid(Logged, frozen=True, tag="paid.1"):
    """The source has released this pin: the debt is settled."""

    pin: str


# -- Buckets: opened and dropped on every shard, decided on the first -------------------------------------------------


@Row(asked_by="client", room="frees")
class OpenBucket(Logged, frozen=True, tag="open-bucket.1"):
    """Create a bucket. Idempotent."""

    bucket: str


@Row(asked_by="client", room="frees")
class SealBucket(Logged, frozen=True, tag="seal-bucket.1"):
    """Block the creation of streams in a bucket that is about to be dropped, and count those in it."""

    bucket: str
    seal: str
    deadline: int
    decides: bool


@Row(asked_by="chore", room="frees")
class UnsealBucket(Logged, frozen=True, tag="unseal-bucket.1"):
    """The bucket stays: remove this seal, and no other."""

    bucket: str
    seal: str


@Row(asked_by="chore", room="frees")
class DropBucket(Logged, frozen=True, tag="drop-bucket.1"):
    """Remove a sealed bucket; on the shard that decides, only before the seal's deadline."""

    bucket: str
    seal: str
    decided: bool = False


@Row(asked_by="chore", room="frees")
class SettleBucket(Logged, frozen=True, tag="settle-bucket.1"):
    """Ask the first shard, after a seal's deadline, whether it dropped the bucket; afterwards that seal cannot."""

    bucket: str
    seal: str
    deadline: int


# -- The lake: a publication moves rows into it, a swap moves them within it -------------------------------------------


class Publication(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A segment whose object is in the store, and which rows of which streams it contains."""

    segment: Segment
    rows: tuple[Rows, ...]


@Row(asked_by="chore", room="frees")
class PublishSegment(Logged, frozen=True, tag="publish-segment.1"):
    """Release hot bytes that are now in the lake; refused as a whole after its deadline or if any part does not fit."""

    publication: Publication
    deadline: int
    flushed: int
    """With this segment, every row up to this position is in the lake; 0 while the flush has more segments to come."""
    epoch: int | None = None
    """On a shared log, since when the node that publishes does the chores; refused if another has taken them over."""


@Row(asked_by="chore", room="frees")
class SwapSegments(Logged, frozen=True, tag="swap-segments.1"):
    """Replace segments by rewritten ones, all or nothing."""

    replaced: tuple[int, ...]
    publications: tuple[Publication, ...]
    deadline: int
    dropped: int
    """The highest position of a row that is in the old segments and in none of the new ones."""


@Row(asked_by="chore", room="frees")
class ForgetSegments(Logged, frozen=True, tag="forget-segments.1"):
    """Unused objects have been deleted from the store: forget them."""

    ids: tuple[str, ...]


Command = (
    Create
    | Append
    | FinishProducer
    | SetAttrs
    | PublishSnapshot
    | Retain
    | Discarded
    | Delete
    | Touch
    | Expire
    | Pin
    | Confirm
    | Unpin
    | CreateFork
    | Settle
    | Paid
    | OpenBucket
    | SealBucket
    | UnsealBucket
    | DropBucket
    | SettleBucket
    | PublishSegment
    | SwapSegments
    | ForgetSegments
    | ConsumerCommand
    | Join
    | Evict
    | Keep
    | RaiseLevel
    | Checkpoint
    | AskFlush
    | AskTables
    | Cataloged
    | PurgeCommand
)
