"""A well-behaved client in a process of its own, which measures how long a server leaves it waiting.

It asks for three things in turn, a few milliseconds apart: `/healthz` on a new connection, a short read and a short
append on open ones. Each line on its standard input makes it print what it has seen since the line before.

On a busy machine both processes wait for a processor as well. Linux counts that time per thread; it is subtracted, so
that only the time counts for which the server, or something that it waited for, was really busy.
"""

import json
import os
import select
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn
from urllib.parse import urlsplit

INTERVAL_SECONDS = 0.003
TIMEOUT_SECONDS = 60.0
"""How long one answer may take; a server that takes longer has failed."""

READ, WRITE = "/v1/stream/probe/read", "/v1/stream/probe/write"
TEXT = "Content-Type: text/plain\r\n"


class Prober:
    """Counts probes and wrong answers, and keeps the longest wait."""

    def __init__(self, url: str, server_pid: int) -> None:
        self._pids = os.getpid(), server_pid
        self._probed = 0
        self._longest_seconds = 0.0
        self._wrong = ""
        parts = urlsplit(url)
        self._address = parts.hostname or "", parts.port or 0
        self._reader, self._writer = self._connect(), self._connect()
        self._next = self._probes()
        for path in (READ, WRITE):
            self._ask(self._writer, "PUT", path, TEXT, b"hello")

    def run(self) -> NoReturn:
        while True:
            asked, _, _ = select.select([0], [], [], INTERVAL_SECONDS)
            if asked:
                if not os.read(0, 4096):
                    sys.exit()
                print(json.dumps([self._probed, self._longest_seconds, self._wrong]), flush=True)
                self._forget()
                continue
            began_at = time.monotonic() - self._starved_seconds()
            self._probe()
            waited_seconds = time.monotonic() - self._starved_seconds() - began_at
            self._longest_seconds = max(self._longest_seconds, waited_seconds)

    def _probe(self) -> None:
        what, answer = next(self._next)
        self._probed += 1
        if not answer.startswith(b"HTTP/1.1 20"):
            self._wrong = self._wrong or f"{what}: {answer[:300]!r}"

    def _probes(self) -> Iterator[tuple[str, bytes]]:
        while True:
            with self._connect() as new:
                yield "healthz", self._ask(new, "GET", "/healthz", "", b"")
            yield "read", self._ask(self._reader, "GET", f"{READ}?offset=-1", "", b"")
            yield "append", self._ask(self._writer, "POST", WRITE, TEXT, b"0123456789")

    def _connect(self) -> socket.socket:
        connected = socket.create_connection(self._address, TIMEOUT_SECONDS)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connected

    def _ask(self, connection: socket.socket, method: str, path: str, lines: str, body: bytes) -> bytes:
        """Return the response, which is short enough to come in one piece."""
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{lines}Content-Length: {len(body)}\r\n\r\n"
        try:
            connection.sendall(head.encode() + body)
            return connection.recv(1 << 16) or b"the connection was closed"
        except OSError as error:
            return str(error).encode()

    def _starved_seconds(self) -> float:
        """For how long this process and the server's event loop have been ready to run without a processor."""
        try:
            stats = [Path(f"/proc/{pid}/schedstat").read_text() for pid in self._pids]
        except OSError:
            return 0.0
        return sum(int(text.split()[1]) for text in stats) / 1e9

    def _forget(self) -> None:
        self._probed, self._longest_seconds, self._wrong = 0, 0.0, ""


if __name__ == "__main__":
    Prober(sys.argv[1], int(sys.argv[2])).run()
