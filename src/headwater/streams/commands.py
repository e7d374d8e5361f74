"""Commands: everything that may change a shard's state, as frozen values that go into the log.

A command carries all that its outcome depends on beside the state: its time is the batch's, its limits are constants
of its version. The tag ends in that version; a command whose meaning changes gets a new one, so an old log keeps its
meaning.
"""

import msgspec

from headwater.protocol.etags import Version
from headwater.protocol.lifetimes import FOREVER, Lifetime
from headwater.protocol.producers import Producer
from headwater.streams.segments import Rows, Segment


class _Logged(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What all commands share: encoded as an array that begins with the tag."""


class Snapshot(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A materialised view of a stream up to an offset; its bytes are in a blob of their own."""

    offset: int
    record: int
    blob: str
    content_type: str
    size: int
    digest: str


class Create(_Logged, frozen=True, tag="create.1"):
    """Make a stream, perhaps with its first bytes, perhaps closed at once."""

    name: str
    content_type: str
    lifetime: Lifetime = FOREVER
    closed: bool = False
    payload: bytes = b""
    ends: tuple[int, ...] | None = None
    seq: str | None = None
    producer: Producer | None = None
    incarnation: int | None = None
    attrs: bytes | None = None
    needs_bucket: bool = False
    """Whether the bucket must have been made before; on the flat surface any bucket is there as soon as it is used."""


class Append(_Logged, frozen=True, tag="append.1"):
    """Add messages to the end, or close, or both; `ends` says where each of several messages ends in the payload."""

    name: str
    payload: bytes
    ends: tuple[int, ...] | None = None
    content_type: str = ""
    close: bool = False
    seq: str | None = None
    producer: Producer | None = None
    incarnation: int | None = None
    if_match: tuple[Version, ...] | None = None
    record_match: int | None = None


class SetAttrs(_Logged, frozen=True, tag="set-attrs.1"):
    """Replace a stream's attributes, an object as JSON text."""

    name: str
    attrs: bytes
    incarnation: int | None = None


class PublishSnapshot(_Logged, frozen=True, tag="publish-snapshot.1"):
    """Show a snapshot whose blob is durable already; `trims` says whether history before it goes."""

    name: str
    incarnation: int
    snapshot: Snapshot
    trims: bool


class Retain(_Logged, frozen=True, tag="retain.1"):
    """Let history before an offset go; a snapshot must cover it."""

    name: str
    incarnation: int
    offset: int
    record: int


class Discarded(_Logged, frozen=True, tag="discarded.1"):
    """A blob that nothing needs any more has been deleted: forget it."""

    blob: str


class Delete(_Logged, frozen=True, tag="delete.1"):
    """End a stream's life; its bytes stay while forks need them."""

    name: str
    incarnation: int | None = None


class Touch(_Logged, frozen=True, tag="touch.1"):
    """Renew a sliding lifetime because somebody reads."""

    name: str
    incarnation: int


class Expire(_Logged, frozen=True, tag="expire.1"):
    """Make permanent that a stream's time is over; judged again when applied."""

    name: str
    incarnation: int


# -- The fork saga: Pin on the source's shard, CreateFork on the fork's, then Confirm or Unpin on the source's -------


class Pin(_Logged, frozen=True, tag="pin.1"):
    """Hold a range of a source for a fork that is about to be made; without `to` up to the tail."""

    name: str
    pin: str
    fork: str
    deadline: int
    incarnation: int | None = None
    to: int | None = None
    record_to: int | None = None
    """The fork point and the messages before it, resolved in that incarnation."""


class Confirm(_Logged, frozen=True, tag="confirm.1"):
    """The fork exists: its pin stays until the fork ends."""

    name: str
    incarnation: int
    pin: str


class Unpin(_Logged, frozen=True, tag="unpin.1"):
    """The fork does not exist (any more): let go of its source; idempotent."""

    name: str
    incarnation: int
    pin: str


class Origin(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Where a fork's inherited bytes are: a range of one life of its source, held by a pin."""

    name: str
    incarnation: int
    start: int
    to: int
    record_start: int
    record_to: int
    pin: str
    depth: int
    blob: str | None = None
    """The source's snapshot at the time of the pin, which the fork begins with."""


class Ancestry(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What the client said of the fork, kept to compare a second PUT with: what it left out was inherited."""

    source: str
    offset: int | None
    sub_offset: int
    content_type: str | None
    lifetime: Lifetime | None


class CreateFork(_Logged, frozen=True, tag="create-fork.1"):
    """Make a stream that begins with the bytes of another; refused after the deadline of its pin."""

    name: str
    content_type: str
    lifetime: Lifetime
    closed: bool
    payload: bytes
    ends: tuple[int, ...] | None
    origin: Origin
    ancestry: Ancestry
    deadline: int
    seq: str | None = None
    producer: Producer | None = None
    snapshot: Snapshot | None = None
    attrs: bytes | None = None
    needs_bucket: bool = False


class Settle(_Logged, frozen=True, tag="settle.1"):
    """Ask the fork's shard, past the pin's deadline, whether anybody holds the pin; afterwards nobody can take it."""

    name: str
    pin: str
    deadline: int


class Paid(_Logged, frozen=True, tag="paid.1"):
    """The source has let go of this pin: forget that we owe it."""

    pin: str


# -- Buckets: opened and dropped on every shard, decided on the first -------------------------------------------------


class OpenBucket(_Logged, frozen=True, tag="open-bucket.1"):
    """Make a bucket; idempotent."""

    bucket: str


class SealBucket(_Logged, frozen=True, tag="seal-bucket.1"):
    """Keep streams from being made in a bucket that is about to be dropped, and count those that are there."""

    bucket: str
    seal: str
    deadline: int
    decides: bool


class UnsealBucket(_Logged, frozen=True, tag="unseal-bucket.1"):
    """The bucket stays; only its own seal is taken off."""

    bucket: str
    seal: str


class DropBucket(_Logged, frozen=True, tag="drop-bucket.1"):
    """Take a sealed bucket away; where this is still to be decided, only before the seal's deadline."""

    bucket: str
    seal: str
    decided: bool = False


class SettleBucket(_Logged, frozen=True, tag="settle-bucket.1"):
    """Ask the first shard, past a seal's deadline, whether it dropped the bucket; afterwards that seal cannot."""

    bucket: str
    seal: str
    deadline: int


# -- The lake: rows go there by a publication, and move within it by a swap -------------------------------------------


class Publication(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A segment whose object is in the store, and which rows of which lives it holds."""

    segment: Segment
    rows: tuple[Rows, ...]


class PublishSegment(_Logged, frozen=True, tag="publish-segment.1"):
    """Let hot bytes go that are in the lake now; refused as a whole past its deadline, or where it does not fit."""

    publication: Publication
    deadline: int
    flushed: int
    """Every row up to this position is in the lake with this segment; 0 while others of the same flush are to come."""


class SwapSegments(_Logged, frozen=True, tag="swap-segments.1"):
    """Put rewritten segments in the place of others, all or nothing."""

    replaced: tuple[int, ...]
    publications: tuple[Publication, ...]
    deadline: int
    dropped: int
    """The highest position of a row that is in the old ones and in none of the new."""


class ForgetSegments(_Logged, frozen=True, tag="forget-segments.1"):
    """Objects that nothing needs any more have been deleted: forget them."""

    ids: tuple[str, ...]


class RegisterConsumer(_Logged, frozen=True, tag="register-reader.1"):
    """Somebody reads the lake and has everything up to a position; what lies above stays until they have it too."""

    reader: str
    position: int


class DropConsumer(_Logged, frozen=True, tag="drop-reader.1"):
    """Nobody reads under this name any more."""

    reader: str


Command = (
    Create
    | Append
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
    | RegisterConsumer
    | DropConsumer
)


class Batch(msgspec.Struct, frozen=True, gc=False):
    """Commands decided together: the position of the first, their one time, and the commands in order."""

    first_position: int
    at: int
    commands: list[Command]

    @property
    def last_position(self) -> int:
        return self.first_position + len(self.commands) - 1


COMMAND_BYTES = 128
"""About what a command takes beside its payload."""

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(tuple[int, list[Command]])


def encode(at: int, commands: list[Command]) -> bytes:
    """The bytes of one log record."""
    return _encoder.encode((at, commands))


def decode(record: bytes | memoryview, first_position: int) -> Batch:
    """The batch in a log record that was checked already."""
    at, commands = _decoder.decode(record)
    return Batch(first_position, at, commands)


def cost_bytes(command: Command) -> int:
    """About what a command takes in the log, to bound a batch."""
    kind = type(command)
    if kind is Append or kind is Create or kind is CreateFork:
        return COMMAND_BYTES + len(command.payload)  # type: ignore[union-attr]
    if isinstance(command, PublishSegment):
        return COMMAND_BYTES * (1 + len(command.publication.rows))
    if isinstance(command, SwapSegments):
        return COMMAND_BYTES * (1 + sum(len(publication.rows) for publication in command.publications))
    return COMMAND_BYTES
