"""A bounded cache of objects that were read and decoded; concurrent requests for one object load it once."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, Protocol, TypeVar


class Costly(Protocol):
    """A value that knows its size in memory."""

    @property
    def cost_bytes(self) -> int: ...


T = TypeVar("T", bound=Costly)


class Cache(Generic[T]):
    """Keeps the most recently used values up to a number of bytes. A load that fails is not kept."""

    def __init__(self, bytes_max: int, threads: ThreadPoolExecutor) -> None:
        self._bytes_max, self._bytes = bytes_max, 0
        self._threads = threads
        self._kept: dict[object, T] = {}
        self._loading: dict[object, asyncio.Future[T]] = {}

    async def get(self, key: object, load: Callable[[], T]) -> T:
        """The value under a key, loaded in a thread if it is not in the cache."""
        found = self._kept.pop(key, None)
        if found is not None:
            self._kept[key] = found  # Now the last to be evicted.
            return found
        loading = self._loading.get(key)
        if loading is None:
            loading = asyncio.get_running_loop().run_in_executor(self._threads, load)
            self._loading[key] = loading
            loading.add_done_callback(lambda done: self._loaded(key, done))
        # A caller that is cancelled must not cancel the load for the others.
        return await asyncio.shield(loading)

    def _loaded(self, key: object, done: asyncio.Future[T]) -> None:
        del self._loading[key]
        if done.cancelled() or done.exception() is not None:
            return
        self._kept[key] = done.result()
        self._bytes += done.result().cost_bytes
        while self._bytes > self._bytes_max and len(self._kept) > 1:
            oldest = next(iter(self._kept))
            self._bytes -= self._kept.pop(oldest).cost_bytes
