"""A bounded cache of what was read from the store and decoded: each thing once, however many ask for it at a time."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, Protocol, TypeVar


class Costly(Protocol):
    """Something that knows what it takes in memory."""

    @property
    def cost_bytes(self) -> int: ...


T = TypeVar("T", bound=Costly)


class Cache(Generic[T]):
    """The things used last, up to so many bytes; what fails to load is not kept."""

    def __init__(self, bytes_max: int, threads: ThreadPoolExecutor) -> None:
        self._bytes_max, self._bytes = bytes_max, 0
        self._threads = threads
        self._kept: dict[object, T] = {}
        self._loading: dict[object, asyncio.Future[T]] = {}

    async def get(self, key: object, load: Callable[[], T]) -> T:
        """What is kept under a key, or what `load` brings, which runs in a thread."""
        found = self._kept.pop(key, None)
        if found is not None:
            self._kept[key] = found  # The one used last is the last to go.
            return found
        loading = self._loading.get(key)
        if loading is None:
            loading = asyncio.get_running_loop().run_in_executor(self._threads, load)
            self._loading[key] = loading
            loading.add_done_callback(lambda done: self._loaded(key, done))
        # Whoever gives up waiting must not take the others' result away.
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
