"""A balancer for tests: a TCP proxy in a thread that hands every new connection to the next server."""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import cycle
from urllib.parse import urlsplit

CHUNK_BYTES = 256 * 1024
START_SECONDS_MAX = 10.0


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()


class Balancer:
    """Connects each client to one server, in turn; a server that cannot be reached is passed over."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._addresses = [(parts.hostname or "127.0.0.1", parts.port or 80) for parts in map(urlsplit, urls)]
        self._turns = cycle(range(len(urls)))
        self._started = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0
        self._thread = threading.Thread(target=self._run, name="balancer", daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        self._thread.start()
        assert self._started.wait(START_SECONDS_MAX), "the balancer did not start"

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(START_SECONDS_MAX)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._connected, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self._started.set()
        self._loop.run_forever()
        server.close()
        for task in self._tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*self._tasks, return_exceptions=True))
        self._loop.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            for _ in self._addresses:
                try:
                    behind = await asyncio.open_connection(*self._addresses[next(self._turns)])
                except OSError:
                    continue
                await asyncio.gather(_copy(reader, behind[1]), _copy(behind[0], writer))
                behind[1].close()
                break
        finally:
            self._tasks.discard(task)
            writer.close()


@contextmanager
def balancing(urls: Sequence[str]) -> Iterator[Balancer]:
    """Balance over these servers for the duration of the block."""
    balancer = Balancer(urls)
    balancer.start()
    try:
        yield balancer
    finally:
        balancer.stop()
