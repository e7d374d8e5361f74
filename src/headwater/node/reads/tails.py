"""Live tails: the readers that wait on each stream, woken once per commit batch.

Many readers of one stream are woken a few in each turn of the event loop, in rounds. What is appended meanwhile joins
the round: readers that are still to be woken get it together with what woke them, the others go to the end of the line.
So a writer never waits for all readers, and where they cannot keep up with single messages, they get several at once.
"""

import asyncio
from collections.abc import Collection
from itertools import islice
from typing import Any, Protocol

WAITERS_MAX = 65_536
"""The most live readers in one process; each has its own connection, or is one of many streams on one."""

WAKES_PER_TURN = 64
"""How many readers of a stream are woken in one turn: together they take a fraction of a millisecond."""

Shared = dict[Any, Any]
"""What the waiters of one stream encode once and share within one wake, keyed by what it depends on."""


class Waiter(Protocol):
    """Waits for a stream to change."""

    def wake(self, shared: Shared) -> None: ...


class Tails:
    """Waiters by stream name; a wake costs nothing for streams that did not change."""

    def __init__(self, waiters_max: int = WAITERS_MAX) -> None:
        self._waiters: dict[str, dict[Waiter, None]] = {}
        self.names: Collection[str] = self._waiters.keys()
        """The streams that have waiters, at any time."""
        self._waiters_max = waiters_max
        self._rounds: dict[str, tuple[dict[Waiter, None], Shared]] = {}
        """By stream, who is still to be woken, and what they share."""
        self.count = 0
        """Waiters, and places that are reserved for them."""

    @property
    def full(self) -> bool:
        return self.count >= self._waiters_max

    def reserve(self, count: int) -> bool:
        """Reserve places for waiters that come later; returns whether there are so many."""
        if self.count + count > self._waiters_max:
            return False
        self.count += count
        return True

    def release(self, count: int) -> None:
        """Give reserved places back: their waiters come now, or never."""
        self.count -= count

    def watch(self, name: str, waiter: Waiter) -> None:
        waiters = self._waiters.setdefault(name, {})
        if waiter not in waiters:
            waiters[waiter] = None
            self.count += 1

    def unwatch(self, name: str, waiter: Waiter) -> None:
        """Remove a waiter. Idempotent."""
        waiters = self._waiters.get(name)
        if waiters is not None and waiter in waiters:
            del waiters[waiter]
            self.count -= 1
            if not waiters:
                del self._waiters[name]

    def wake(self, name: str) -> None:
        """Wake the waiters of a stream: now, or in this and the following turns if there are many."""
        waiters, round_ = self._waiters.get(name, {}), self._rounds.get(name)
        if round_ is not None:
            line, shared = round_
            shared.clear()  # It is out of date.
            line.update(waiters)
        elif len(waiters) <= WAKES_PER_TURN:
            shared = {}
            for waiter in tuple(waiters):
                waiter.wake(shared)
        else:
            self._rounds[name] = dict(waiters), {}
            self._take_turn(name)

    def _take_turn(self, name: str) -> None:
        """Wake the first in the line of a stream, unless they have left."""
        (line, shared), waiters = self._rounds[name], self._waiters.get(name, {})
        first = tuple(islice(line, WAKES_PER_TURN))
        for waiter in first:
            del line[waiter]
        for waiter in first:
            if waiter in waiters:
                waiter.wake(shared)
        if line:
            asyncio.get_running_loop().call_soon(self._take_turn, name)
        else:
            del self._rounds[name]
