"""Batches: commands that the log decided together, and their encoding as one log record."""

from functools import reduce
from operator import or_
from typing import Any

import msgspec

from headwater.protocol.limits import KIB
from headwater.streams.commands import Command
from headwater.streams.commands.command import ROWS
from headwater.streams.commands.forks import CreateFork
from headwater.streams.commands.lake import PublishSegment, SwapSegments
from headwater.streams.commands.snapshots import PublishSnapshot
from headwater.streams.commands.streams import Append, Create, Delete, SetAttrs


class Batch(msgspec.Struct, frozen=True, gc=False):
    """Commands decided together: the position of the first, their common time, and the commands in order."""

    first_position: int
    at: int
    commands: list[Command]

    @property
    def last_position(self) -> int:
        return self.first_position + len(self.commands) - 1


COMMAND_BYTES = 128
"""Roughly what a command takes in the log in addition to its payload."""
VERSION_BYTES = 20
"""What a version in a condition takes at most."""

NEEDS_ROOM = frozenset(kind for kind, row in ROWS.items() if row.room == "takes")
CLIENT_COMMANDS = frozenset(kind for kind, row in ROWS.items() if row.asked_by == "client")
SETTLES = frozenset(kind for kind, row in ROWS.items() if row.settles)
FREEING_BYTES_MAX = 64 * KIB
"""What a command may take in the log to be decided on a full disk, where little is kept for those that free space."""

ENCODER = msgspec.msgpack.Encoder()
_any_command: Any = reduce(or_, ROWS)
_decoder: msgspec.msgpack.Decoder[tuple[int, list[Command]]] = msgspec.msgpack.Decoder(tuple[int, list[_any_command]])


def encode(at: int, commands: list[Command]) -> bytes:
    """The bytes of one log record."""
    return ENCODER.encode((at, commands))


def decode(record: bytes | memoryview, first_position: int) -> Batch:
    """The batch in a log record whose checksum has been verified."""
    at, commands = _decoder.decode(record)
    return Batch(first_position, at, commands)


def cost_bytes(command: Command) -> int:
    """Roughly what a command takes in the log; used to bound a batch, and all commands that wait."""
    if type(command) is Append:  # Nearly all are.
        ends, cost = command.ends, COMMAND_BYTES + len(command.payload) + len(command.content_type)
        if ends is not None:
            cost += len(ends)
        return cost if command.if_match is None else cost + _versions_bytes(command)
    if isinstance(command, Create | CreateFork):
        return COMMAND_BYTES + len(command.payload) + len(command.ends or b"") + len(command.attrs or b"")
    if isinstance(command, SetAttrs):
        return COMMAND_BYTES + len(command.attrs)
    if isinstance(command, Delete | PublishSnapshot):
        return COMMAND_BYTES + _versions_bytes(command)
    if isinstance(command, PublishSegment):
        return COMMAND_BYTES * (1 + len(command.publication.rows))
    if isinstance(command, SwapSegments):
        return COMMAND_BYTES * (1 + sum(len(publication.rows) for publication in command.publications))
    return COMMAND_BYTES


def _versions_bytes(command: Append | Delete | PublishSnapshot) -> int:
    return VERSION_BYTES * len(command.if_match or ())


def frees_space(command: Command) -> bool:
    """Whether a command can be decided on a full disk: it frees space sooner or later, and is small itself."""
    return type(command) not in NEEDS_ROOM and cost_bytes(command) <= FREEING_BYTES_MAX
