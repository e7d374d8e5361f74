"""The server: listens, expires slow connections, and drains at shutdown."""

import asyncio
import logging
import socket
import time
from collections.abc import Callable, Collection, Iterator

from headwater.http.connection.connection import Connection
from headwater.http.connection.fast.short_path import ShortPath, short_path
from headwater.http.connection.unready import ENDING, STARTING, UnreadyConnection
from headwater.http.context import Context, Peer
from headwater.http.guard.gates import Guard
from headwater.http.guard.rules import Rules
from headwater.http.table.endpoints import ENDPOINTS
from headwater.http.table.router import EVERYTHING, FOR_CLIENTS, FOR_OPERATORS, Router
from headwater.http.tls.transport import SecuredConnection
from headwater.http.workers.siblings import Siblings
from headwater.http.workers.together import Together
from headwater.node.node import Node
from headwater.settings import Settings

BACKLOG = 4096
TICK_SECONDS = 0.5
TURN_SECONDS = 0.002
"""How long live responses may get their ticks in one turn of the loop. After a reload each is judged again: a signature
takes 0.1 ms, and the names of a tail of many streams take up to 2 ms."""

log = logging.getLogger(__name__)


class Server:
    """All connections of one process."""

    def __init__(self, settings: Settings, guard: Guard | None = None) -> None:
        self.settings = settings
        self.context = Context(settings, guard)
        self._rules = None if guard is None else Rules(guard, self.context.report_reload)
        self._watching_rules: asyncio.Task[None] | None = None
        self.ready = False
        self._listeners: list[asyncio.Server] = []
        self._ticker: asyncio.TimerHandle | None = None
        self._watching: asyncio.Task[None] | None = None
        self._together: Together | None = None
        self._short_paths: dict[Router, ShortPath | None] = {}

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
        if self.context.certificates is not None:
            self._watching = asyncio.ensure_future(self.context.certificates.watch())
        if self._rules is not None:
            self._watching_rules = asyncio.ensure_future(self._rules.watch())
        allowed = FOR_CLIENTS if self.settings.ops else EVERYTHING
        router = Router(ENDPOINTS, self.context.flat_prefixes, allowed=allowed)
        return await self._open(self.settings.host, self.settings.port, router)

    async def listen_for_operators(self) -> str | None:
        """The same on the address for operators, if there is one."""
        address = self.settings.ops_address
        if address is None:
            return None
        return await self._open(*address, Router(ENDPOINTS, self.context.flat_prefixes, allowed=FOR_OPERATORS))

    async def _open(self, host: str, port: int, router: Router) -> str:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        reuse_port = self.settings.workers > 1
        listening = socket.create_server((host, port), family=family, backlog=BACKLOG, reuse_port=reuse_port)
        loop = asyncio.get_running_loop()
        self._listeners.append(await loop.create_server(self._factory(router), sock=listening, backlog=BACKLOG))
        scheme = "http" if self.context.certificates is None else "https"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}"

    def reload(self) -> None:
        """Look at the access file and at the files of the certificate now, and open the audit log again."""
        if self.context.certificates is not None:
            self.context.certificates.ask()
        if self._rules is not None:
            self._rules.ask()
        if self.context.audit is not None:
            self.context.audit.reopen()

    def report_limits(self) -> None:
        """Log a limit that the system has lowered."""
        allowed = self.context.connections_max
        if allowed < self.settings.connections_max:
            log.warning(
                "only %d connections instead of %d, because of the limit on open files; see `headwater doctor`",
                allowed,
                self.settings.connections_max,
            )

    def _factory(self, router: Router) -> Callable[[], asyncio.Protocol]:
        """What makes the protocol of each connection of a listener."""
        certificates, seconds = self.context.certificates, self.settings.header_seconds

        def connect() -> asyncio.Protocol:
            return self._connect(router)

        def connect_securely() -> asyncio.Protocol:
            assert certificates is not None
            return SecuredConnection(
                certificates.context,
                self._connect(router),
                handshake_seconds=seconds,
                failed=certificates.count_failure,
            )

        return connect if certificates is None else connect_securely

    def _connect(self, router: Router) -> asyncio.Protocol:
        if self.context.draining or not self.ready:
            reason = ENDING if self.context.draining else STARTING
            patience_seconds, by_origin = self.settings.header_seconds, not self.context.origins.to_all
            return UnreadyConnection(reason, self.context.renderer, patience_seconds, by_origin=by_origin)
        if router not in self._short_paths:
            self._short_paths[router] = short_path(self.context, router)
        return Connection(self.context, router, self._short_paths[router])

    async def join(self, siblings: Siblings, node: Node) -> None:
        """Answer for other processes, too, and be asked by them."""
        self.context.adopt(node)
        self._together = self.context.together = Together(self.context, siblings)
        await self._together.start()

    def serve(self, node: Node) -> None:
        """Become ready: answer requests with this node."""
        self.context.adopt(node)
        self.ready = True
        self._tick()

    def _tick(self) -> None:
        context = self.context
        context.now = now = time.monotonic()
        if context.guard is not None:
            context.guard.allowances.tidy()
        for connection in [c for c in context.connections if c.deadline < now]:
            connection.expire()
        self._tick_some(iter(list(context.live)), now)
        self._ticker = asyncio.get_running_loop().call_later(TICK_SECONDS, self._tick)

    def _tick_some(self, live: Iterator[Peer], now: float) -> None:
        """Let live responses see that time has passed, some in each turn."""
        until = time.monotonic() + TURN_SECONDS
        for connection in live:
            connection.tick(now)
            if time.monotonic() >= until:
                asyncio.get_running_loop().call_soon(self._tick_some, live, now)
                return

    async def drain(self) -> None:
        """Accept no more requests, end live reads, let running requests finish, then close what is left."""
        connections = self.context.connections
        self.context.draining = True
        for connection in list(connections):
            connection.drain()
        until = time.monotonic() + self.settings.drain_seconds
        while connections and time.monotonic() < until:
            await asyncio.sleep(0.01)
        for listener in self._listeners:
            listener.close()
        if self._watching is not None:
            self._watching.cancel()
        if self._ticker is not None:
            self._ticker.cancel()
        if self._watching_rules is not None:
            self._watching_rules.cancel()
        for connection in list(connections):
            connection.abort()
        if self._together is not None:
            self._together.stop()
