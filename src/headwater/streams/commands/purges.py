"""Purges: what a shard knows of requests to remove every byte of some streams now, and the commands that change it.

A purge is in the state so that another process continues it after a crash. Its state names the streams only until their
rows are gone: the images that are taken then must not name them any more.
"""

import msgspec

from headwater.streams.commands.command import Command, Row

DELETING = "deleting"
"""The streams are being deleted, and their snapshots."""
REWRITING = "rewriting"
"""Their rows are being removed from the lake, with all objects that may have some."""
DROPPING = "dropping"
"""New images are being taken, and the log before them is dropped."""
DONE = "done"
REFUSED = "refused"
"""One of the streams was forked after the purge had been asked for, and forks were to be spared."""

ENDED = frozenset({DONE, REFUSED})
NAMED = frozenset({DELETING, REWRITING})
"""The stages in which a purge names its streams."""
PURGES_MAX = 16
"""How many purges may be in progress, and how many ended ones are remembered for clients that ask."""


class Purge(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A purge of one stream, or of all whose whole names begin with `target`: their lives up to a position."""

    stage: str
    position: int
    """Where it was asked for; it leaves lives that begin later alone."""
    target: str
    is_prefix: bool
    with_forks: bool
    forks: dict[str, int] = {}
    """The forks that it removes, too: their incarnations by name."""

    @property
    def has_ended(self) -> bool:
        return self.stage in ENDED

    def names(self, name: str) -> bool:
        """Whether a stream of this name is meant."""
        return name.startswith(self.target) if self.is_prefix else name == self.target

    def takes(self, name: str, incarnation: int) -> bool:
        """Whether it removes this life."""
        return (self.names(name) and incarnation <= self.position) or self.forks.get(name) == incarnation


@Row(asked_by="client", room="frees", level=3)
class AskPurge(Command, frozen=True, tag="ask-purge.1"):
    """Begin a purge under an id that the proposer has chosen at random."""

    id: str
    target: str
    is_prefix: bool
    with_forks: bool


@Row(asked_by="chore", room="frees", level=3)
class AdvancePurge(Command, frozen=True, tag="advance-purge.1"):
    """A purge is at this stage, and removes these forks, too; `epoch` is that of the node that does the chores."""

    id: str
    stage: str
    epoch: int | None
    forks: dict[str, int] = msgspec.field(default_factory=dict)


@Row(asked_by="chore", room="frees", level=3)
class WithdrawSegments(Command, frozen=True, tag="withdraw-segments.1"):
    """Objects that are not published and never will be: refuse them until their deadlines, which are given by id."""

    deadlines: dict[str, int]
