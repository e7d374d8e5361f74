"""The server: listens, keeps count of connections, loses patience with slow ones, and drains."""

import asyncio
import logging
import socket
import time

from headwater.http.connection import Connection
from headwater.http.wire import rendering
from headwater.http.wire.heads import KnownHeads
from headwater.http.wire.statuses import Voice
from headwater.http.wire.unready import ENDING, STARTING, UnreadyConnection
from headwater.node.node import Node
from headwater.protocol.offsets import Form
from headwater.settings import Settings

BACKLOG = 4096
TICK_SECONDS = 0.5

log = logging.getLogger(__name__)


class Server:
    """All connections of one process; `now` is a coarse clock that every connection shares."""

    node: Node
    voice: Voice
    plain_voice: Voice

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.ready = False
        self.now = time.monotonic()
        self.heads = KnownHeads()
        self.started_at = self.now
        self.origins = None if settings.cors_origins == "*" else frozenset(settings.cors_origins.split(","))
        """Which pages of other sites may read responses; None for all."""
        rendering.set_browser_lines(to_all=self.origins is None, exposed_more=settings.cors_expose)
        self.draining = False
        self.connections: set[Connection] = set()
        self.live: set[Connection] = set()
        self.bulk_appends = 0
        """How many are in progress."""
        self._listener: asyncio.Server | None = None
        self._ticker: asyncio.TimerHandle | None = None

    async def listen(self) -> str:
        """Take connections, which are asked to come again until the server is ready; returns the URL."""
        loop = asyncio.get_running_loop()
        listening = socket.create_server(
            (self.settings.host, self.settings.port),
            family=socket.AF_INET6 if ":" in self.settings.host else socket.AF_INET,
            backlog=BACKLOG,
        )
        self._listener = await loop.create_server(self._connect, sock=listening, backlog=BACKLOG)
        host = f"[{self.settings.host}]" if ":" in self.settings.host else self.settings.host
        return f"http://{host}:{listening.getsockname()[1]}"

    def _connect(self) -> asyncio.Protocol:
        if self.draining:
            return UnreadyConnection(ENDING)
        return Connection(self) if self.ready else UnreadyConnection(STARTING)

    def serve(self, node: Node) -> None:
        """Be ready: answer requests by this node."""
        self.node = node
        self.voice = Voice(Form.FLAT, node.log_id, self.settings.private, self.settings.attachments)
        self.plain_voice = self.voice._replace(form=Form.PLAIN)
        self.ready = True
        self._tick()

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
        """Take no more requests, end live reads, let running ones finish, then close what is left."""
        self.draining = True
        for connection in list(self.connections):
            connection.drain()
        until = time.monotonic() + self.settings.drain_seconds
        while self.connections and time.monotonic() < until:
            await asyncio.sleep(0.01)
        if self._listener is not None:
            self._listener.close()
        if self._ticker is not None:
            self._ticker.cancel()
        for connection in list(self.connections):
            connection.abort()
