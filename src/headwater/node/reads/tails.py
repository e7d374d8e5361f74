"""Live tails: who waits on which stream, woken once per commit batch."""

from collections.abc import Collection
from typing import Any, Protocol

WAITERS_MAX = 65_536
"""Live readers of one process; each costs a connection anyway."""

Shared = dict[Any, Any]
"""What waiters of one stream encode once and share within one wake, by whatever it depends on."""


class Waiter(Protocol):
    """Somebody who waits for a stream to change."""

    def wake(self, shared: Shared) -> None: ...


class Tails:
    """Waiters by stream name; waking costs those who wait on what was touched, nothing else."""

    def __init__(self, waiters_max: int = WAITERS_MAX) -> None:
        self._waiters: dict[str, dict[Waiter, None]] = {}
        self._waiters_max = waiters_max
        self.count = 0

    @property
    def full(self) -> bool:
        return self.count >= self._waiters_max

    @property
    def names(self) -> Collection[str]:
        """The streams that somebody waits on."""
        return self._waiters.keys()

    def watch(self, name: str, waiter: Waiter) -> None:
        waiters = self._waiters.setdefault(name, {})
        if waiter not in waiters:
            waiters[waiter] = None
            self.count += 1

    def unwatch(self, name: str, waiter: Waiter) -> None:
        """Forget a waiter; forgetting it twice is no harm."""
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
