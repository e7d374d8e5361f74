"""A server in this process, on a log in memory, whose connections get their input from a test."""

import asyncio
import atexit
import re
import socket
from collections.abc import Coroutine
from typing import Any, TypeVar

from headwater.access.allowances import Allowances
from headwater.cli.composition import _node
from headwater.http.connection.connection import Connection
from headwater.http.connection.fast.seam import ConnectionView
from headwater.http.connection.fast.short_path import short_path
from headwater.http.guard.gates import Guard
from headwater.http.server import Server
from headwater.http.table.endpoints import ENDPOINTS
from headwater.http.table.router import Router
from headwater.http.wire.heads import PlainHeads
from headwater.log.memory import MemoryLog
from headwater.log.seam import Reached
from headwater.node.clock import Clock
from headwater.node.shard_parts import ShardParts
from headwater.protocol.limits import SECOND_US
from headwater.settings import Settings
from headwater.storage.blobs import MemoryBlobs
from headwater.streams.state import State

MEMORY = Settings(memory=True)
LOG_ID = "00112233aabbccdd"
_DATE = re.compile(rb"(?<=\n)Date: [^\r]*\r\n")
_REAL = socket.socket()
T = TypeVar("T")
atexit.register(_REAL.close)


class Socket:
    """A transport that keeps what is written, without the date."""

    def __init__(self) -> None:
        self.sent = b""
        self.closing = False

    def write(self, data: bytes) -> None:
        self.sent += _DATE.sub(b"", data)

    def writelines(self, parts: list[bytes]) -> None:
        self.write(b"".join(parts))

    def write_eof(self) -> None:
        self.sent += b"<eof>"

    def close(self) -> None:
        self.closing = True
        self.sent += b"<closed>"

    abort = close

    def is_closing(self) -> bool:
        return self.closing

    def get_extra_info(self, name: str) -> Any:
        return ("127.0.0.1", 1) if name == "peername" else _REAL

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class SetClock(Clock):
    """A clock that stands still until a test moves it; for the node, for allowances and for timers of the loop."""

    def __init__(self) -> None:
        self.us = 1_900_000_000 * SECOND_US

    def now(self) -> int:
        return self.us

    def seconds(self) -> float:
        return self.us / SECOND_US

    def run(self, story: Coroutine[Any, Any, T]) -> T:
        """Run a story on a loop that goes by this clock."""
        loop = asyncio.new_event_loop()
        loop.time = self.seconds  # type: ignore[method-assign]
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            return runner.run(story)


class SharedMemoryLog(MemoryLog):
    """A log that could have other proposers, so that its shard answers behind barriers; it counts them."""

    shared = True
    barriers = 0

    def barrier(self, reached: Reached) -> None:
        self.barriers += 1
        reached(True)


class Front:
    """A server in this process, on a log in memory; `short` says whether it has the short path."""

    def __init__(
        self,
        guard: Guard | None = None,
        *,
        short: bool,
        settings: Settings = MEMORY,
        clock: SetClock | None = None,
        shared: bool = False,
    ) -> None:
        if clock is not None and guard is not None:
            guard.allowances = Allowances(clock.seconds)
        self.server = Server(settings, guard)
        self.context = self.server.context
        log = SharedMemoryLog(LOG_ID) if shared else MemoryLog(LOG_ID)
        self.node = _node(settings, ShardParts(State(LOG_ID), log, None, MemoryBlobs()), clock=clock)
        self.node.start()
        if not short:
            self.context.heads = PlainHeads(self.context.hosts)
        self.server.serve(self.node)
        self._router = Router(ENDPOINTS, self.context.flat_prefixes)
        self._path = short_path(self.context, self._router) if short else None
        self.taken = 0

    def connect(self) -> tuple[Connection, Socket]:
        connection, transport = Connection(self.context, self._router, self), Socket()
        connection.connection_made(transport)  # type: ignore[arg-type]
        return connection, transport

    def take(self, connection: ConnectionView, data: bytes) -> bool:
        """As a short path, and count what it takes."""
        taken = self._path is not None and self._path.take(connection, data)
        self.taken += taken
        return taken

    async def settle(self) -> None:
        """Wait until everything that was submitted is answered."""
        while not self.node.only.committer.idle:
            await asyncio.sleep(0)
        for _ in range(4):
            await asyncio.sleep(0)

    def summary(self) -> tuple[object, ...]:
        """The state and the counts, which the input alone decides, without times."""
        state, metrics, context = self.node.only.state, self.node.metrics, self.context
        streams = [(one.name, one.tail, one.record_next, one.closed) for one in state.streams.values()]
        hot = [(hot.offset, hot.payload, hot.ends) for one in state.streams.values() for hot in one.hot or ()]
        producers = [
            (name, last.epoch, last.seq, last.next_offset, last.record, last.size, last.crc)
            for one in state.streams.values()
            for name, last in (one.producers or {}).items()
        ]
        counts = dict(metrics.requests), {route: one.count for route, one in metrics.request_seconds.items()}
        lives = [(one.name, one.touched_at, one.written_at) for one in state.streams.values()]
        totals = state.hot_bytes, dict(state.bytes), list(state.warm), context.received_bytes, context.sent_bytes
        return streams, lives, hot, producers, counts, totals, metrics.producer_duplicates
