"""Several nodes on one log: what a shard knows about them, and the commands that change it."""

import msgspec

from headwater.streams.commands.command import LEVEL_FIRST, Command, Row


class Member(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A node that answers clients: one process under its name, since the log position of its join."""

    session: str
    address: str
    level: int
    joined: int
    at: int = 0
    """When its process asked to join, by its own clock."""


class Keeper(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The node that does the chores; `epoch` is the log position at which it took them over."""

    node: str
    session: str
    epoch: int
    until: int


class Cluster(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The nodes of one log, as one value that is replaced as a whole. A log with one proposer has none of this."""

    members: dict[str, Member] = {}
    keeper: Keeper | None = None
    level: int = LEVEL_FIRST
    flush_asked: int = 0
    """A node has asked that every row up to this position be flushed to the lake."""
    cataloged: int = 0
    """Every row up to this position is in the lake, and in its catalog."""
    checkpoint: str = ""
    """The latest checkpoint."""
    tables_asked: int = 0
    """A node has asked that all of the lake's tables be written as of this position, or a later one."""


@Row(asked_by="chore", room="frees")
class Join(Command, frozen=True, tag="join.1"):
    """A process becomes a member under a name, replacing the one that had it; `level` says which commands it knows."""

    node: str
    session: str
    address: str
    level: int
    at: int = 0
    """When the process asked. A request of a process that has ended may arrive late, after its successor's."""


@Row(asked_by="chore", room="frees")
class Evict(Command, frozen=True, tag="evict.1"):
    """A process is no longer a member: it left, or was silent for too long."""

    node: str
    session: str
    by: str | None = None
    """The session of the member that says so: of a node that was evicted itself, this has no effect."""


@Row(asked_by="chore", room="frees")
class Keep(Command, frozen=True, tag="keep.1"):
    """A node takes over the chores, continues them, or gives them back (for no time); judged by the shard's time."""

    node: str
    session: str
    lease_us: int


@Row(asked_by="chore", room="frees")
class RaiseLevel(Command, frozen=True, tag="raise-level.1"):
    """Allow commands of this level; refused while a member does not know them."""

    level: int


@Row(asked_by="client", room="frees", level=2)
class Checkpoint(Command, frozen=True, tag="checkpoint.1"):
    """Every node hashes its state at this position, so that they can be compared."""

    id: str


@Row(asked_by="client", room="frees")
class AskFlush(Command, frozen=True, tag="ask-flush.1"):
    """A node asks the one that does the chores for a flush of everything up to here."""

    node: str


@Row(asked_by="client", room="frees", level=3)
class AskTables(Command, frozen=True, tag="ask-tables.1"):
    """A node asks the one that does the chores for a flush, and for all of the lake's tables, as of here."""

    node: str


@Row(asked_by="chore", room="frees")
class Cataloged(Command, frozen=True, tag="cataloged.1"):
    """Every row up to a position is in the lake and in its catalog, says the node that does the chores."""

    position: int
    epoch: int
