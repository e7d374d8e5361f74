"""Purging: how a purge is asked for and advances, and how objects are kept from being published."""

from msgspec.structs import replace

from headwater.protocol.refusals import Code, Refusal
from headwater.streams.commands.purges import (
    DELETING,
    NAMED,
    PURGES_MAX,
    AdvancePurge,
    AskPurge,
    Purge,
    WithdrawSegments,
)
from headwater.streams.handling import handles
from headwater.streams.replies import Done, Misplaced, Reply
from headwater.streams.state import State


@handles(AskPurge)
def ask(state: State, command: AskPurge) -> Reply:
    """Begin a purge; of those that have ended, the earliest make room."""
    purges = state.cold.purges
    if command.id in purges:
        return Done()
    if sum(not purge.has_ended for purge in purges.values()) >= PURGES_MAX:
        return Refusal(Code.OVERLOADED, f"{PURGES_MAX} purges are in progress, the maximum; try again later.")
    ended = [known for known, purge in purges.items() if purge.has_ended]
    for known in ended[: max(len(ended) - PURGES_MAX, 0)]:
        del purges[known]
    purges[command.id] = Purge(DELETING, state.position, command.target, command.is_prefix, command.with_forks)
    return Done()


@handles(AdvancePurge)
def advance(state: State, command: AdvancePurge) -> Reply:
    """Record how far a purge has come, if the node that says so does the chores."""
    keeper = state.cluster.keeper
    if command.epoch is not None and (keeper is None or keeper.epoch != command.epoch):
        return Misplaced("Another node has taken over the chores.")
    purge = state.cold.purges.get(command.id)
    if purge is not None:
        if command.stage in NAMED:
            purge = replace(purge, stage=command.stage, forks={**purge.forks, **command.forks})
        else:
            purge = Purge(command.stage, purge.position, "", False, purge.with_forks)
        state.cold.purges[command.id] = purge
    return Done()


@handles(WithdrawSegments)
def withdraw(state: State, command: WithdrawSegments) -> Reply:
    """Refuse these objects from now on. Those that were published meanwhile stay; the caller looks again."""
    withdrawn, now = state.cold.withdrawn, state.now
    for known in [known for known, deadline in withdrawn.items() if deadline < now]:
        del withdrawn[known]
    withdrawn |= command.deadlines
    return Done()
