"""Which streams a purge is about: those it names, the forks that need them, and what in the state mentions them."""

import asyncio
from collections.abc import AsyncIterator

from headwater.protocol.refusals import Code, Refusal
from headwater.streams.commands.purges import Purge
from headwater.streams.state import State, Stream

NAMES_PER_TURN = 500
"""How many names are compared before the loop gets a turn."""


async def lives(state: State, purge: Purge) -> AsyncIterator[Stream]:
    """The streams of a purge that exist, be it only for their forks."""
    for name in (purge.target, *purge.forks):
        stream = state.streams.get(name)  # A name may be the prefix itself.
        if stream is not None and purge.takes(name, stream.incarnation):
            yield stream
    cursor = purge.target if purge.is_prefix else None
    while cursor is not None:
        names = list(state.names.after(cursor, NAMES_PER_TURN))
        for name in names:
            stream = state.streams.get(name)
            if stream is not None and purge.takes(name, stream.incarnation) and name not in purge.forks:
                yield stream
        cursor = names[-1] if names and purge.names(names[-1]) else None
        await asyncio.sleep(0)


async def forks_of(state: State, purge: Purge) -> list[Stream]:
    """The forks that need streams of a purge and are not part of it."""
    found, names = [], list(state.forks)
    for at in range(0, len(names), NAMES_PER_TURN):
        for name in names[at : at + NAMES_PER_TURN]:
            fork = state.streams.get(name)
            if fork is None or fork.origin is None or purge.takes(name, fork.incarnation):
                continue
            if purge.takes(fork.origin.name, fork.origin.incarnation):
                found.append(fork)
        await asyncio.sleep(0)
    return found


async def are_pinned(state: State, purge: Purge) -> bool:
    """Whether a fork may need one of the streams."""
    async for stream in lives(state, purge):
        if stream.pins:
            return True
    return False


async def count(state: State, purge: Purge) -> int:
    """How many streams of a purge exist for their readers."""
    found = 0
    async for stream in lives(state, purge):
        found += not stream.deleted and not stream.expired(state.now)
    return found


async def judge(state: State, purge: Purge) -> Refusal | None:
    """Why a purge cannot begin: forks inherit the rows, and are to be spared."""
    if purge.with_forks or not await are_pinned(state, purge):
        return None
    forks = await forks_of(state, purge)
    if not forks or forks[0].origin is None:
        return None
    source, fork = forks[0].origin.name, forks[0].name
    return Refusal(
        Code.FORK_CONFLICT,
        f"Stream {source!r} is needed by {len(forks)} forks, {fork!r} among them; delete them, or purge them, too"
        ' (--with-forks, or "with_forks": true).',
    )


def is_mentioned(state: State, purge: Purge) -> bool:
    """Whether a fork that has ended, or one that is being made, still names a stream of a purge."""
    return any(purge.takes(debt.source, debt.incarnation) for debt in state.owed.values()) or any(
        purge.takes(pin.source, pin.incarnation) or purge.names(pin.fork) for pin in state.unconfirmed.values()
    )
