"""A server in this process, on a log in memory, whose connections get their input from a test."""

import asyncio
import atexit
import re
import socket
from typing import Any

from headwater.cli.composition import _node
from headwater.http.connection.connection import Connection
from headwater.http.connection.fast.short_path import short_path
from headwater.http.guard.gates import Guard
from headwater.http.server import Server
from headwater.http.table.endpoints import ENDPOINTS
from headwater.http.table.router import Router
from headwater.http.wire.heads import PlainHeads
from headwater.log.memory import MemoryLog
from headwater.node.shard_parts import ShardParts
from headwater.settings import Settings
from headwater.storage.blobs import MemoryBlobs
from headwater.streams.state import State

MEMORY = Settings(memory=True)
LOG_ID = "00112233aabbccdd"
_DATE = re.compile(rb"(?<=\n)Date: [^\r]*\r\n")
_REAL = socket.socket()
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


class Front:
    """A server in this process, on a log in memory; `short` says whether it has the short path."""

    def __init__(self, guard: Guard | None = None, *, short: bool, settings: Settings = MEMORY) -> None:
        self.server = Server(settings, guard)
        self.context = self.server.context
        self.node = _node(settings, ShardParts(State(LOG_ID), MemoryLog(LOG_ID), None, MemoryBlobs()))
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

    def take(self, connection: Connection, data: bytes) -> bool:
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
        hot = [(hot.offset, hot.payload) for one in state.streams.values() for hot in one.hot or ()]
        producers = [
            (name, last.epoch, last.seq, last.next_offset, last.record, last.size, last.crc)
            for one in state.streams.values()
            for name, last in (one.producers or {}).items()
        ]
        counts = dict(metrics.requests), {route: one.count for route, one in metrics.request_seconds.items()}
        totals = state.hot_bytes, dict(state.bytes), list(state.warm), context.received_bytes, context.sent_bytes
        return streams, hot, producers, counts, totals, metrics.producer_duplicates
