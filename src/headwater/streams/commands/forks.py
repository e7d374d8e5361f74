"""Forks: where one comes from, and the commands of the saga that creates it.

Pin is for the source's shard, CreateFork for the fork's; then Confirm or Unpin is for the source's.
"""

import msgspec

from headwater.protocol.lifetimes import Lifetime
from headwater.protocol.producers import Producer
from headwater.streams.commands.command import COMMAND_BYTES, Command, Row
from headwater.streams.commands.snapshots import Snapshot


class Origin(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Where a fork's inherited bytes are: a range of one incarnation of its source, held by a pin."""

    name: str
    incarnation: int
    start: int
    to: int
    record_start: int
    record_to: int
    pin: str
    depth: int
    blob: str | None = None
    """The source's snapshot when it was pinned; the fork begins with it."""


class Ancestry(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The fork as the client requested it, kept to compare a second PUT with; None means inherited."""

    source: str
    offset: int | None
    sub_offset: int
    content_type: str | None
    lifetime: Lifetime | None


@Row(asked_by="client", room="frees")
class Pin(Command, frozen=True, tag="pin.1"):
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
class Confirm(Command, frozen=True, tag="confirm.1"):
    """The fork exists: its pin stays until the fork is removed."""

    name: str
    incarnation: int
    pin: str


@Row(asked_by="chore", room="frees")
class Unpin(Command, frozen=True, tag="unpin.1"):
    """The fork does not exist (any more): release its source. Idempotent."""

    name: str
    incarnation: int
    pin: str


@Row(asked_by="client", room="takes", settles=True)
class CreateFork(Command, frozen=True, tag="create-fork.1"):
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

    def cost_bytes(self) -> int:
        return COMMAND_BYTES + len(self.payload) + len(self.ends or b"") + len(self.attrs or b"")


@Row(asked_by="chore", room="frees")
class Settle(Command, frozen=True, tag="settle.1"):
    """Ask the fork's shard, after the pin's deadline, whether a fork holds the pin; afterwards none can take it."""

    name: str
    pin: str
    deadline: int


@Row(asked_by="chore", room="frees")
class Paid(Command, frozen=True, tag="paid.1"):
    """The source has released this pin: the debt is settled."""

    pin: str
