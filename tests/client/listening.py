"""A TCP server in a thread, for proxies that tests put between a client and a server."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from typing import Self

START_SECONDS_MAX = 10


class Listener:
    """Listens on a free port while `running`; `_serve` handles one connection."""

    url = ""

    async def _serve(self, client: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        raise NotImplementedError

    async def _end(self) -> None:
        """Clean up after the last connection was accepted."""

    async def _listen(self, started: threading.Event) -> None:
        self._stop = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        listening = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        started.set()
        await self._stop.wait()
        listening.close()
        await self._end()

    @contextlib.contextmanager
    def running(self) -> Iterator[Self]:
        started = threading.Event()
        thread = threading.Thread(target=lambda: asyncio.run(self._listen(started)), daemon=True)
        thread.start()
        assert started.wait(START_SECONDS_MAX), f"{type(self).__name__} did not start"
        try:
            yield self
        finally:
            self._loop.call_soon_threadsafe(self._stop.set)
            thread.join(START_SECONDS_MAX)
            assert not thread.is_alive(), f"{type(self).__name__} did not stop"
