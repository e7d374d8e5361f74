"""Batches: commands that the log decided together, and their encoding as one log record."""

import msgspec

from headwater.protocol.limits import KIB
from headwater.streams.commands import (
    Append,
    Command,
    Create,
    CreateFork,
    PublishSegment,
    PublishSnapshot,
    SetAttrs,
    SwapSegments,
)


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

NEEDS_ROOM = frozenset({Append, Create, CreateFork, PublishSnapshot, SetAttrs})
"""Commands that take space; all others free some, or take next to none."""
FREEING_BYTES_MAX = 64 * KIB
"""What a command may take in the log to be decided on a full disk, where little is kept for those that free space."""

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(tuple[int, list[Command]])


def encode(at: int, commands: list[Command]) -> bytes:
    """The bytes of one log record."""
    return _encoder.encode((at, commands))


def decode(record: bytes | memoryview, first_position: int) -> Batch:
    """The batch in a log record whose checksum has been verified."""
    at, commands = _decoder.decode(record)
    return Batch(first_position, at, commands)


def cost_bytes(command: Command) -> int:
    """Roughly what a command takes in the log; used to bound a batch, and all commands that wait."""
    kind = type(command)
    if kind is Append or kind is Create or kind is CreateFork:
        ends = command.ends  # type: ignore[union-attr]
        return COMMAND_BYTES + len(command.payload) + (0 if ends is None else len(ends))  # type: ignore[union-attr]
    if isinstance(command, PublishSegment):
        return COMMAND_BYTES * (1 + len(command.publication.rows))
    if isinstance(command, SwapSegments):
        return COMMAND_BYTES * (1 + sum(len(publication.rows) for publication in command.publications))
    return COMMAND_BYTES


def frees_space(command: Command) -> bool:
    """Whether a command can be decided on a full disk: it frees space sooner or later, and is small itself."""
    return type(command) not in NEEDS_ROOM and cost_bytes(command) <= FREEING_BYTES_MAX
