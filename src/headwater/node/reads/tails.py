"""Live tails: the readers that wait on each stream, woken once per commit batch."""

from collections.abc import Collection
from typing import Any, Protocol

WAITERS_MAX = 65_536
"""The most live readers in one process; each has its own connection, or is one of many streams on one."""

Shared = dict[Any, Any]
"""What the waiters of one stream encode once and share within one wake, keyed by what it depends on."""


class Waiter(Protocol):
    """Waits for a stream to change."""

    def wake(self, shared: Shared) -> None: ...


class Tails:
    """Waiters by stream name; a wake costs nothing for streams that did not change."""

    def __init__(self, waiters_max: int = WAITERS_MAX) -> None:
        self._waiters: dict[str, dict[Waiter, None]] = {}
        self._waiters_max = waiters_max
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

    @property
    def names(self) -> Collection[str]:
        """The streams that have waiters."""
        return self._waiters.keys()

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
        shared: Shared = {}
        for waiter in tuple(self._waiters.get(name, ())):
            waiter.wake(shared)
