"""Membership: how nodes join and leave a shared log, pass on the chores, and agree on the level of commands.

Members are in the log, so every node knows them as of the position that it has applied. A name belongs to one process:
a join with another session replaces the process that had it, unless it was asked for earlier, and an eviction meant
for that one has no effect any more.
"""

from msgspec.structs import replace

from headwater.protocol.refusals import Code, Refusal
from headwater.streams.commands.cluster import (
    AskFlush,
    AskTables,
    Cataloged,
    Checkpoint,
    Evict,
    Join,
    Keep,
    Keeper,
    Member,
    RaiseLevel,
)
from headwater.streams.commands.command import ROWS
from headwater.streams.handling import handles
from headwater.streams.replies import Done, Misplaced, Reply
from headwater.streams.state import State


def judge_level(state: State, node: str, level: int) -> Misplaced | None:
    """Why a node that knows commands up to a level cannot join; None if it can."""
    if level >= state.cluster.level:
        return None
    return Misplaced(
        f"The log has commands of level {state.cluster.level}, but node {node} uses those up to level {level} only;"
        " install a newer version on it, or remove --level-max."
    )


def judge_proposal(state: State, command: type, what: str) -> Refusal | None:
    """Why a node may not propose a kind of command yet; None if every member knows it, or there are no members."""
    cluster, level = state.cluster, ROWS[command].level
    if not cluster.members or cluster.level >= level:
        return None
    detail = f"{what} needs level {level}, but the cluster has {cluster.level}; upgrade all nodes."
    return Refusal(Code.NOT_IMPLEMENTED, detail)


@handles(Join)
def join(state: State, command: Join) -> Reply:
    """Add a member, or replace the process that had its name."""
    cluster = state.cluster
    if (refused := judge_level(state, command.node, command.level)) is not None:
        return refused
    known = cluster.members.get(command.node)
    if known is not None and known.session != command.session and command.at < known.at:
        return Misplaced(f"A later process has the name {command.node}.")
    if known is None or known.session != command.session:
        member = Member(command.session, command.address, command.level, state.position, command.at)
        state.cluster = replace(cluster, members={**cluster.members, command.node: member})
    return Done()


@handles(Evict)
def evict(state: State, command: Evict) -> Reply:
    """Remove a member, unless another process has taken its name since; the chores it had are free.

    Only a member can: if two nodes could evict each other, one of them would know neither of that nor of what the other
    acknowledges after it has joined again.
    """
    cluster = state.cluster
    if command.by is not None and all(member.session != command.by for member in cluster.members.values()):
        return Misplaced(f"Node {command.node} can only be evicted by a member.")
    known = cluster.members.get(command.node)
    if known is not None and known.session == command.session:
        left = {node: member for node, member in cluster.members.items() if node != command.node}
        keeper = cluster.keeper
        freed = keeper is not None and keeper.session == command.session
        state.cluster = replace(cluster, members=left, keeper=None if freed else keeper)
    return Done()


@handles(Keep)
def keep(state: State, command: Keep) -> Reply:
    """Give the chores to a node if they are free, its own, or past their lease; a lease of nothing gives them back."""
    cluster = state.cluster
    keeper = cluster.keeper
    own = keeper is not None and keeper.session == command.session
    if keeper is not None and not own and state.now <= keeper.until:
        return Misplaced(f"Node {keeper.node} does the chores.")
    granted = None
    if command.lease_us:
        epoch = keeper.epoch if keeper is not None and own else state.position
        granted = Keeper(command.node, command.session, epoch, state.now + command.lease_us)
    state.cluster = replace(cluster, keeper=granted)
    return Done()


@handles(RaiseLevel)
def raise_level(state: State, command: RaiseLevel) -> Reply:
    """Allow commands of a level that every member knows; levels never fall."""
    cluster = state.cluster
    behind = sorted(node for node, member in cluster.members.items() if member.level < command.level)
    if behind:
        return Misplaced(f"Node {behind[0]} does not know commands of level {command.level} yet.")
    state.cluster = replace(cluster, level=max(cluster.level, command.level))
    return Done()


@handles(Checkpoint)
def checkpoint(state: State, command: Checkpoint) -> Reply:
    """Have every node hash the state that it has here."""
    state.cluster = replace(state.cluster, checkpoint=command.id)
    return Done()


@handles(AskFlush)
def ask_flush(state: State, command: AskFlush) -> Reply:
    """Have the keeper flush what has been logged up to here."""
    state.cluster = replace(state.cluster, flush_asked=state.position)
    return Done()


@handles(AskTables)
def ask_tables(state: State, command: AskTables) -> Reply:
    """Have the keeper flush what has been logged up to here, and write all tables."""
    state.cluster = replace(state.cluster, flush_asked=state.position, tables_asked=state.position)
    return Done()


@handles(Cataloged)
def cataloged(state: State, command: Cataloged) -> Reply:
    """Tell every node how far the lake and its catalog have come, if the one that says so does the chores."""
    keeper = state.cluster.keeper
    if keeper is None or keeper.epoch != command.epoch:
        return Misplaced("Another node has taken over the chores.")
    state.cluster = replace(state.cluster, cataloged=max(state.cluster.cataloged, command.position))
    return Done()
