"""The server: listens, expires slow connections, and drains at shutdown."""

import asyncio
import logging
import socket
import time
from collections.abc import Collection

from headwater.http.connection import Connection
from headwater.http.context import Context, Peer
from headwater.http.endpoints import ENDPOINTS
from headwater.http.gates import Guard
from headwater.http.router import Router
from headwater.http.rules import Rules
from headwater.http.unready import ENDING, STARTING, UnreadyConnection
from headwater.node.node import Node
from headwater.settings import Settings

BACKLOG = 4096
TICK_SECONDS = 0.5

log = logging.getLogger(__name__)


class Server:
    """All connections of one process."""

    def __init__(self, settings: Settings, guard: Guard | None = None) -> None:
        self.settings = settings
        self.context = Context(settings, guard)
        self._rules = None if guard is None else Rules(guard)
        self._watching_rules: asyncio.Task[None] | None = None
        self.ready = False
        self._router = Router(ENDPOINTS, self.context.flat_prefixes)
        self._listener: asyncio.Server | None = None
        self._ticker: asyncio.TimerHandle | None = None

    @property
    def connections(self) -> Collection[Peer]:
        """All that are open."""
        return self.context.connections

    @property
    def limits(self) -> dict[str, int]:
        """Limits in force that the system may have lowered."""
        return {"connections_max": self.context.connections_max}

    async def listen(self) -> str:
        """Accept connections, answering 503 until the server is ready; returns the URL."""
        loop = asyncio.get_running_loop()
        if self._rules is not None:
            self._watching_rules = loop.create_task(self._rules.watch())
        listening = socket.create_server(
            (self.settings.host, self.settings.port),
            family=socket.AF_INET6 if ":" in self.settings.host else socket.AF_INET,
            backlog=BACKLOG,
        )
        self._listener = await loop.create_server(self._connect, sock=listening, backlog=BACKLOG)
        host = f"[{self.settings.host}]" if ":" in self.settings.host else self.settings.host
        return f"http://{host}:{listening.getsockname()[1]}"

    def reload(self) -> None:
        """Look at the access file now."""
        if self._rules is not None:
            self._rules.ask()

    def report_limits(self) -> None:
        """Log a limit that the system has lowered."""
        allowed = self.context.connections_max
        if allowed < self.settings.connections_max:
            log.warning(
                "only %d connections instead of %d, because of the limit on open files; see `headwater doctor`",
                allowed,
                self.settings.connections_max,
            )

    def _connect(self) -> asyncio.Protocol:
        if self.context.draining or not self.ready:
            reason = ENDING if self.context.draining else STARTING
            return UnreadyConnection(reason, self.context.renderer, self.settings.header_seconds)
        return Connection(self.context, self._router)

    def serve(self, node: Node) -> None:
        """Become ready: answer requests with this node."""
        self.context.adopt(node)
        self.ready = True
        self._tick()

    def _tick(self) -> None:
        context = self.context
        context.now = now = time.monotonic()
        for connection in [c for c in context.connections if c.deadline < now]:
            connection.expire()
        for connection in list(context.live):
            connection.tick(now)
        self._ticker = asyncio.get_running_loop().call_later(TICK_SECONDS, self._tick)

    async def drain(self) -> None:
        """Accept no more requests, end live reads, let running requests finish, then close what is left."""
        connections = self.context.connections
        self.context.draining = True
        for connection in list(connections):
            connection.drain()
        until = time.monotonic() + self.settings.drain_seconds
        while connections and time.monotonic() < until:
            await asyncio.sleep(0.01)
        if self._listener is not None:
            self._listener.close()
        if self._ticker is not None:
            self._ticker.cancel()
        if self._watching_rules is not None:
            self._watching_rules.cancel()
        for connection in list(connections):
            connection.abort()
