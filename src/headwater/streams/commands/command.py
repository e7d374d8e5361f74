"""What all commands have in common: their form in the log, and the row that says how a node treats them."""

from typing import Literal, NamedTuple, TypeVar

import msgspec

LEVEL_FIRST = 1
LEVEL = 4
"""The newest level of commands that this version can apply; a command's row names its own."""


COMMAND_BYTES = 128
"""Roughly what a command takes in the log in addition to its payload."""
VERSION_BYTES = 20
"""What a version in a condition takes at most."""


class Command(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A change of a shard's state, encoded as an array that begins with the tag."""

    def cost_bytes(self) -> int:
        """Roughly what it takes in the log; used to bound a batch, and all commands that wait."""
        return COMMAND_BYTES


_Kind = TypeVar("_Kind", bound=type[Command])


class Row(NamedTuple):
    """How a node treats a kind of command, written above its class."""

    asked_by: Literal["client", "chore"]
    """A client gets an answer within a limited time, whatever happens; a chore waits for as long as it takes."""
    room: Literal["takes", "frees"]
    """Whether it takes space. A command that frees some, or takes next to none, is decided on a full disk, too."""
    level: int = LEVEL_FIRST
    """A node of a cluster proposes it only once the cluster's level is this high."""
    settles: bool = False
    """Whether it begins or ends a life: while it is in flight, no answer about its name is final."""

    def __call__(self, kind: _Kind) -> _Kind:
        ROWS[kind] = self
        return kind


ROWS: dict[type, Row] = {}
"""Every command with its row; complete once `commands` is imported."""
