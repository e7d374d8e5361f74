"""A TCP proxy that breaks connections: each seed is one sequence of faults.

Each connection gets a fate, drawn in the order in which connections arrive:

    whole    much passes before the connection breaks
    refuse   the connection is closed at once
    cut      the request is cut after some bytes: the server may never see it
    lose     the response is cut after some bytes, often none: the server has acted, and the client does not know
    crumble  the response arrives in small pieces, and is cut in the end
    delay    the request is delayed, and the response is lost in the end
    echo     as `lose`; then the request is sent once more, on another connection, after the client has continued
"""

import asyncio
import contextlib
import random
from collections import Counter
from dataclasses import dataclass
from urllib.parse import urlsplit

from .listening import Listener

FATES = ("refuse", "cut", "lose", "crumble", "delay", "echo")
DOWN_BYTES_MAX = 2_500
UP_BYTES_MAX = 1_500
WHOLE_BYTES_MAX = 20_000
DELAY_SECONDS_MAX = 0.02
PIECE_BYTES = 64 * 1024


@dataclass(frozen=True)
class Fate:
    """The fault of one connection."""

    kind: str
    bytes_max: int
    abort: bool
    seconds: float
    seed: int


class FaultyProxy(Listener):
    """Forwards bytes to a server, with faults drawn at random."""

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

    def _draw(self) -> Fate:
        kind = self._dice.choice(self._kinds) if self._dice.random() < self._rate and not self.calm else "whole"
        longest = {"cut": UP_BYTES_MAX, "whole": WHOLE_BYTES_MAX}.get(kind, DOWN_BYTES_MAX)
        # Losing everything is the most interesting case.
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

    async def _end(self) -> None:
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
