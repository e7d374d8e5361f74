"""What the workloads with history share: filling streams fast, flushing them to the lake, reading them back."""

import json
import os
import re
import socket
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import shake_128
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.servers import BenchmarkError, Server, Spec
from benchmarks.streams import stream_path
from headwater.load import messages
from headwater.load.sockets import Connection

WINDOW_REQUESTS = 64
ANSWER_SECONDS_MAX = 120.0
FILL_SECONDS_MAX = 900.0
FLUSH_SECONDS_MAX = 300.0
SETTLE_SECONDS_MAX = 60.0
# The compactor runs every five seconds; a store that has not changed for longer is at rest.
SETTLED_SECONDS = 6.0
RECEIVE_BYTES = 256 * 1024
RETRY_AFTER = re.compile(rb"\r\nretry-after: *(\d+)", re.IGNORECASE)


def has_lake(spec: Spec) -> bool:
    """Return whether a server has a lake; the reference server and servers in memory have none."""
    return spec.is_started and spec.is_durable and not spec.name.startswith("reference")


def content(index: int, size: int) -> bytes:
    """Build the content of a stream: hexadecimal digits of a hash, which zstd can halve at best.

    >>> content(7, 10) == content(7, 10) != content(8, 10)
    True
    """
    return shake_128(b"%d" % index).hexdigest((size + 1) // 2)[:size].encode()


# -- Filling ----------------------------------------------------------------------------------------------------------


def creations(prefix: str, indexes: range, size: int) -> Iterator[bytes]:
    """Yield requests that create streams with one message each."""
    for index in indexes:
        yield messages.request("PUT", stream_path(prefix, index), content(index, size), messages.TEXT)


def stream_of(prefix: str, index: int, size: int, message_bytes: int) -> Iterator[bytes]:
    """Yield requests that create one stream of many messages."""
    path, data = stream_path(prefix, index), content(index, size)
    yield messages.request("PUT", path, b"", messages.TEXT)
    for at in range(0, size, message_bytes):
        yield messages.request("POST", path, data[at : at + message_bytes], messages.TEXT)


@dataclass(slots=True)
class Filling:
    """How the filling went; if the server is out of room (503), requests are repeated later, as a client should."""

    done: int = 0
    waits: int = 0
    waited_seconds: float = 0.0
    seconds: float = 0.0

    def notes(self) -> list[str]:
        if not self.waits:
            return []
        return [f"{self.waits:,} requests were answered with 503 while filling; waited {self.waited_seconds:.0f} s"]


class Pipeline:
    """One connection that sends a window of requests before it reads their responses."""

    def __init__(self, address: tuple[str, int], requests: Iterator[bytes]) -> None:
        self.socket = socket.create_connection(address, timeout=ANSWER_SECONDS_MAX)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.requests = requests
        self.window: list[bytes] = []
        self.refused: list[bytes] = []

    def send(self) -> bool:
        """Send what was refused before, then new requests; return whether there were any."""
        self.window = [*self.refused, *islice(self.requests, WINDOW_REQUESTS - len(self.refused))]
        self.refused = []
        self.socket.sendall(b"".join(self.window))
        return bool(self.window)

    def receive(self) -> int:
        """Read the responses to a window; return how many seconds the server asks to wait."""
        buffer, at, pause_seconds = bytearray(), 0, 0
        for request in self.window:
            while (end := messages.response_end(buffer, at)) == messages.INCOMPLETE:
                data = self.socket.recv(RECEIVE_BYTES)
                if not data:
                    raise ConnectionError("the server closed a connection while it filled streams")
                buffer += data
            status = messages.status(buffer[at : at + 12])
            if status == 503:
                self.refused.append(request)
                asked = RETRY_AFTER.search(buffer, at, end)
                pause_seconds = max(pause_seconds, int(asked[1]) if asked else 1)
            elif not 200 <= status < 300:
                raise BenchmarkError(f"A request that fills a stream was answered with {bytes(buffer[at:end])!r}.")
            at = end
        return pause_seconds


def fill(server: Server, sources: list[Iterator[bytes]]) -> Filling:
    """Send each source over its own connection, in order; while one waits for responses, the others are busy."""
    filling, began = Filling(), time.monotonic()
    busy = deque(line for line in (Pipeline(server.address, source) for source in sources) if line.send())
    while busy:
        if time.monotonic() > began + FILL_SECONDS_MAX:
            raise BenchmarkError(f"{server.spec.name} took {filling.done:,} requests in {FILL_SECONDS_MAX:.0f} s.")
        line = busy.popleft()
        pause_seconds = line.receive()
        filling.done += len(line.window) - len(line.refused)
        filling.waits += len(line.refused)
        filling.waited_seconds += pause_seconds
        time.sleep(pause_seconds)
        if line.send():
            busy.append(line)
        else:
            line.socket.close()
    filling.seconds = time.monotonic() - began
    return filling


# -- The lake ---------------------------------------------------------------------------------------------------------


def flush(server: Server) -> float:
    """Flush everything to the lake, and return the seconds that it took."""
    with server.client(FLUSH_SECONDS_MAX) as client:
        began = time.monotonic()
        client.must("POST", "/__headwater/flush")
        return time.monotonic() - began


def chill(server: Server) -> float:
    """Flush, then restart the server with no cache of the lake; return the seconds of the start."""
    flush(server)
    server.stop()
    for path in files(server.place / "data" / "lake"):
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)
    return server.start()


def metric(server: Server, name: str) -> float:
    """Return one of the server's own counters."""
    with server.client() as client:
        lines = client.must("GET", "/metrics").body.decode().split("\n")
    return next(float(line.split()[1]) for line in lines if line.startswith(f"{name} "))


def store_reads(server: Server) -> int:
    """Return how often the server has read the object store for its clients."""
    return int(metric(server, "headwater_lake_reads_total"))


def status(server: Server) -> dict[str, Any]:
    with server.client() as client:
        found: dict[str, Any] = json.loads(client.must("GET", "/__headwater/status").body)
    return found


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def disk_bytes(server: Server) -> dict[str, int]:
    """Return the disk space of journal, images and lake, including the preallocated part of the journal."""
    sizes = {}
    for part in ("journal", "images", "lake"):
        sizes[part] = 0
        for path in files(server.place / "data" / part):
            # The server may have deleted the file since.
            sizes[part] += path.stat().st_blocks * 512 if path.exists() else 0
    return sizes


def settle(server: Server) -> list[str]:
    """Wait until the files have not changed for a while; return a note if that takes too long."""
    deadline = time.monotonic() + SETTLE_SECONDS_MAX
    seen, since = disk_bytes(server), time.monotonic()
    while time.monotonic() < deadline:
        time.sleep(0.5)
        now = disk_bytes(server)
        if now != seen:
            seen, since = now, time.monotonic()
        elif time.monotonic() - since >= SETTLED_SECONDS:
            return []
    return [f"files still changed {SETTLE_SECONDS_MAX:.0f} s after the flush"]


# -- Reading back -----------------------------------------------------------------------------------------------------


class Reader:
    """Reads whole streams over one connection, one at a time, and compares each with what it must hold."""

    def __init__(self, server: Server, prefix: str, size: int) -> None:
        self.prefix, self.size = prefix, size
        self.connection = Connection(server.target, timeout_seconds=ANSWER_SECONDS_MAX)
        self.wrong = 0

    def read(self, index: int) -> int:
        """Return the microseconds until the body was complete, without the comparison."""
        request = messages.request("GET", f"{stream_path(self.prefix, index)}?offset=-1")
        began_ns = time.monotonic_ns()
        response = self.connection.ask(request)
        latency_us = (time.monotonic_ns() - began_ns) // 1000
        right = messages.status(response) == 200 and messages.body(response) == content(index, self.size)
        self.wrong += not right
        return latency_us

    def close(self) -> list[str]:
        """Close the connection, and return what was wrong."""
        self.connection.close()
        return [f"{self.wrong:,} streams differ from what was written"] if self.wrong else []
