"""Commands about one stream: its creation, its messages and attributes, its end, and the producers that write to it."""

from headwater.protocol.etags import Version
from headwater.protocol.lifetimes import FOREVER, Lifetime
from headwater.protocol.producers import Producer
from headwater.streams.commands.command import COMMAND_BYTES, VERSION_BYTES, Command, Row


@Row(asked_by="client", room="takes", settles=True)
class Create(Command, frozen=True, tag="create.1"):
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

    def cost_bytes(self) -> int:
        return COMMAND_BYTES + len(self.payload) + len(self.ends or b"") + len(self.attrs or b"")


@Row(asked_by="client", room="takes")
class Append(Command, frozen=True, tag="append.1"):
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

    def cost_bytes(self) -> int:
        cost = COMMAND_BYTES + len(self.payload) + len(self.content_type)
        if self.ends is not None:
            cost += len(self.ends)
        return cost if self.if_match is None else cost + VERSION_BYTES * len(self.if_match)


@Row(asked_by="client", room="frees")
class FinishProducer(Command, frozen=True, tag="finish-producer.1"):
    """A producer writes nothing more, to any stream: fence it off, and let streams forget it. Idempotent."""

    producer: str


@Row(asked_by="client", room="takes")
class SetAttrs(Command, frozen=True, tag="set-attrs.1"):
    """Replace a stream's attributes, a JSON object as text."""

    name: str
    attrs: bytes
    incarnation: int | None = None
    asked_at: int | None = None
    """As in `Append`."""

    def cost_bytes(self) -> int:
        return COMMAND_BYTES + len(self.attrs)


@Row(asked_by="client", room="frees", settles=True)
class Delete(Command, frozen=True, tag="delete.1"):
    """Delete a stream; its bytes stay while forks need them."""

    name: str
    incarnation: int | None = None
    if_match: tuple[Version, ...] | None = None

    def cost_bytes(self) -> int:
        return COMMAND_BYTES + VERSION_BYTES * len(self.if_match or ())


@Row(asked_by="chore", room="frees")
class Touch(Command, frozen=True, tag="touch.1"):
    """Renew a sliding lifetime because the stream was read at that time."""

    name: str
    incarnation: int
    asked_at: int
    alive_at: int | None = None
    """When an earlier renewal was asked for that was on its way at the time of the read; it has been applied since."""


@Row(asked_by="chore", room="frees")
class Expire(Command, frozen=True, tag="expire.1"):
    """Make the expiry of a stream permanent; judged again when applied."""

    name: str
    incarnation: int
