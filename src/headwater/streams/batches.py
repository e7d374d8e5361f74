"""Batches: commands that the log decided together, and their encoding as one log record."""

import msgspec

from headwater.streams.commands import Append, Command, Create, CreateFork, PublishSegment, SwapSegments


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
    """Roughly what a command takes in the log; used to bound a batch."""
    kind = type(command)
    if kind is Append or kind is Create or kind is CreateFork:
        return COMMAND_BYTES + len(command.payload)  # type: ignore[union-attr]
    if isinstance(command, PublishSegment):
        return COMMAND_BYTES * (1 + len(command.publication.rows))
    if isinstance(command, SwapSegments):
        return COMMAND_BYTES * (1 + sum(len(publication.rows) for publication in command.publications))
    return COMMAND_BYTES
