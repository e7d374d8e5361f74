"""The server: listens, keeps count of connections, loses patience with slow ones, and drains."""

import asyncio
import logging
import socket
import time

from headwater.http.connection import Connection
from headwater.http.heads import KnownHeads
from headwater.node.node import Node
from headwater.protocol.offsets import Form
from headwater.protocol.statuses import Voice
from headwater.settings import Settings

BACKLOG = 4096
TICK_SECONDS = 0.5

log = logging.getLogger(__name__)


class Server:
    """All connections of one process; `now` is a coarse clock that every connection shares."""

    def __init__(self, node: Node, settings: Settings) -> None:
        self.node, self.settings = node, settings
        self.voice = Voice(Form.FLAT, node.journal, settings.private, settings.attachments)
        self.plain_voice = self.voice._replace(form=Form.PLAIN)
        self.now = time.monotonic()
        self.heads = KnownHeads()
        self.draining = False
        self.connections: set[Connection] = set()
        self.live: set[Connection] = set()
        self._listener: asyncio.Server | None = None
        self._ticker: asyncio.TimerHandle | None = None

    async def start(self) -> str:
        """Listen; returns the URL."""
        loop = asyncio.get_running_loop()
        listening = socket.create_server(
            (self.settings.host, self.settings.port),
            family=socket.AF_INET6 if ":" in self.settings.host else socket.AF_INET,
            backlog=BACKLOG,
        )
        self._listener = await loop.create_server(lambda: Connection(self), sock=listening, backlog=BACKLOG)
        self._tick()
        host = f"[{self.settings.host}]" if ":" in self.settings.host else self.settings.host
        return f"http://{host}:{listening.getsockname()[1]}"

    def admit(self, connection: Connection) -> bool:
        """Count a new connection, and say whether there was room for it."""
        self.connections.add(connection)
        return len(self.connections) <= self.settings.connections_max

    def forget(self, connection: Connection) -> None:
        self.connections.discard(connection)
        self.live.discard(connection)

    def _tick(self) -> None:
        self.now = now = time.monotonic()
        for connection in [c for c in self.connections if c.deadline < now]:
            connection.expire()
        for connection in list(self.live):
            connection.tick(now)
        self._ticker = asyncio.get_running_loop().call_later(TICK_SECONDS, self._tick)

    async def drain(self) -> None:
        """Stop accepting, end live reads, let running requests finish, then close what is left."""
        self.draining = True
        if self._listener is not None:
            self._listener.close()
        for connection in list(self.connections):
            connection.drain()
        until = time.monotonic() + self.settings.drain_seconds
        while self.connections and time.monotonic() < until:
            await asyncio.sleep(0.01)
        if self._ticker is not None:
            self._ticker.cancel()
        for connection in list(self.connections):
            connection.abort()
