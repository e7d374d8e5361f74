"""A TCP proxy that breaks things: one seed, one sequence of faults.

Each connection is given a fate, drawn in the order in which connections come:

    whole    a good deal passes before it is lost
    refuse   it is closed at once
    cut      what goes up is cut after some bytes: the server may never see the request
    lose     what comes down is cut after some bytes, often none: the server acted, and the client does not hear of it
    crumble  what comes down comes in crumbs, and is cut at last
    delay    what goes up waits, and what comes down is lost at last
    echo     as `lose`; and what was sent is sent once more, on a connection of its own, after the client has gone on
"""

import asyncio
import contextlib
import random
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

FATES = ("refuse", "cut", "lose", "crumble", "delay", "echo")
DOWN_BYTES_MAX = 2_500
UP_BYTES_MAX = 1_500
WHOLE_BYTES_MAX = 20_000
DELAY_SECONDS_MAX = 0.02
PIECE_BYTES = 64 * 1024


@dataclass(frozen=True)
class Fate:
    """What happens to one connection."""

    kind: str
    bytes_max: int
    abort: bool
    seconds: float
    seed: int


class FaultyProxy:
    """Passes bytes on to a server, but for what the dice say."""

    def __init__(self, server_url: str, seed: int, rate: float = 0.85, kinds: tuple[str, ...] = FATES) -> None:
        found = urlsplit(server_url)
        assert found.hostname is not None and found.port is not None
        self._server = (found.hostname, found.port)
        self._dice = random.Random(seed)
        self._rate = rate
        self._kinds = kinds
        self._connections: set[asyncio.Task[None]] = set()
        self.faults: Counter[str] = Counter()
        self.calm = False
        self.url = ""

    def _draw(self) -> Fate:
        kind = self._dice.choice(self._kinds) if self._dice.random() < self._rate and not self.calm else "whole"
        longest = {"cut": UP_BYTES_MAX, "whole": WHOLE_BYTES_MAX}.get(kind, DOWN_BYTES_MAX)
        # Nothing at all is the most interesting amount.
        bytes_max = self._dice.choice((0, self._dice.randrange(longest), self._dice.randrange(longest)))
        seconds = self._dice.random() * DELAY_SECONDS_MAX
        return Fate(kind, bytes_max, self._dice.random() < 0.5, seconds, self._dice.randrange(2**32))

    async def _serve(self, client: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        fate = self._draw()
        try:
            await self._pass(fate, client, back)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._connections.discard(task)
            if fate.abort:
                back.transport.abort()
            back.close()

    async def _pass(self, fate: Fate, client: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        if fate.kind == "refuse":
            self.faults[fate.kind] += 1
            return
        server, up = await asyncio.open_connection(*self._server)
        sent = bytearray()
        try:
            upward = asyncio.create_task(self._up(fate, client, up, sent))
            downward = asyncio.create_task(self._down(fate, server, back))
            _, left = await asyncio.wait((upward, downward), return_when=asyncio.FIRST_COMPLETED)
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
        finally:
            up.close()
        if fate.kind == "echo":
            back.close()
            await self._echo(fate, bytes(sent))

    async def _up(self, fate: Fate, client: asyncio.StreamReader, up: asyncio.StreamWriter, sent: bytearray) -> None:
        left = fate.bytes_max
        while data := await client.read(PIECE_BYTES):
            if fate.kind == "delay":
                await asyncio.sleep(fate.seconds)
            if fate.kind == "cut" and len(data) >= left:
                self.faults[fate.kind] += 1
                up.write(data[:left])
                await up.drain()
                return
            left -= len(data)
            sent += data
            up.write(data)
            await up.drain()

    async def _down(self, fate: Fate, server: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        left = fate.bytes_max
        dice = random.Random(fate.seed)
        while data := await server.read(PIECE_BYTES):
            if fate.kind != "cut" and not self.calm and len(data) >= left:
                self.faults[fate.kind] += 1
                await self._crumbs(data[:left], dice, back)
                return
            left -= len(data)
            if fate.kind == "crumble":
                await self._crumbs(data, dice, back)
            else:
                back.write(data)
                await back.drain()

    async def _crumbs(self, data: bytes, dice: random.Random, back: asyncio.StreamWriter) -> None:
        at = 0
        while at < len(data):
            size = dice.randrange(1, 400)
            back.write(data[at : at + size])
            await back.drain()
            at += size
            await asyncio.sleep(0)

    async def _echo(self, fate: Fate, sent: bytes) -> None:
        await asyncio.sleep(fate.seconds)
        server, up = await asyncio.open_connection(*self._server)
        try:
            up.write(sent)
            await up.drain()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.2):
                    await server.read(PIECE_BYTES)
        finally:
            up.close()

    async def _run(self, started: threading.Event) -> None:
        self._stop = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        listening = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        started.set()
        await self._stop.wait()
        listening.close()
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    @contextlib.contextmanager
    def running(self) -> Iterator["FaultyProxy"]:
        started = threading.Event()
        thread = threading.Thread(target=lambda: asyncio.run(self._run(started)))
        thread.start()
        assert started.wait(10), "the proxy did not start"
        try:
            yield self
        finally:
            self._loop.call_soon_threadsafe(self._stop.set)
            thread.join(10)
            assert not thread.is_alive(), "the proxy did not stop"
