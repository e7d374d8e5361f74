"""Batches: commands that the log decided together, and their encoding as one log record."""

from functools import reduce
from operator import or_
from typing import Any

import msgspec

from headwater.protocol.limits import KIB
from headwater.streams.commands import Command
from headwater.streams.commands.command import ROWS


class Batch(msgspec.Struct, frozen=True, gc=False):
    """Commands decided together: the position of the first, their common time, and the commands in order."""

    first_position: int
    at: int
    commands: list[Command]

    @property
    def last_position(self) -> int:
        return self.first_position + len(self.commands) - 1


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


def frees_space(command: Command) -> bool:
    """Whether a command can be decided on a full disk: it frees space sooner or later, and is small itself."""
    return type(command) not in NEEDS_ROOM and command.cost_bytes() <= FREEING_BYTES_MAX
