"""Front ends of one server, each of which can fail: to a client they are the nodes of a cluster."""

import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import Literal
from urllib.parse import urlsplit

LENGTH = re.compile(rb"(?i)\r\ncontent-length: *(\d+)")
PIECE_BYTES = 64 * 1024
JOIN_SECONDS = 10.0

Mode = Literal["open", "refuse", "lose", "silent"]
"""Forward; answer 503; forward, then answer 503 in place of the server; answer nothing."""


class Front:
    """Forwards connections to a server, while it is alive; its port stays the same."""

    def __init__(self, server_url: str) -> None:
        found = urlsplit(server_url)
        self._server = (found.hostname, found.port)
        # Bound, but not listening: connections are refused, and nobody else is given the port.
        self._reserved = _bound(0)
        self._port = self._reserved.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}"
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._alive = False
        self.mode: Mode = "open"
        self.code = "log_unavailable"
        self.connections = 0
        self.revive()

    def revive(self) -> None:
        """Accept connections."""
        listening = _bound(self._port)
        listening.listen()
        self._alive = True
        self._sockets.add(listening)
        self._start(self._accept, listening)

    def kill(self) -> None:
        """Break all connections, and refuse new ones."""
        with self._lock:
            self._alive = False
            for one in self._sockets:
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
        # Each thread closes what it has opened.
        while self._threads:
            thread = self._threads.pop()
            thread.join(JOIN_SECONDS)
            assert not thread.is_alive()
        assert not self._sockets

    def close(self) -> None:
        self.kill()
        self._reserved.close()

    def _start(self, work: Callable[..., None], *sockets: socket.socket) -> None:
        thread = threading.Thread(target=self._run, args=(work, *sockets), daemon=True)
        thread.start()
        # Not before: a thread that has not been started cannot be joined.
        self._threads.append(thread)

    def _run(self, work: Callable[..., None], *sockets: socket.socket) -> None:
        try:
            with suppress(OSError):
                work(*sockets)
        finally:
            for one in sockets:
                self._drop(one)

    def _keep(self, one: socket.socket) -> socket.socket:
        """Take charge of a socket, which `kill` breaks."""
        with self._lock:
            if not self._alive:
                one.close()
                raise OSError("This front is dead.")
            self._sockets.add(one)
        return one

    def _drop(self, one: socket.socket) -> None:
        with self._lock:
            self._sockets.discard(one)
            one.close()

    def _accept(self, listening: socket.socket) -> None:
        while True:
            client = self._keep(listening.accept()[0])
            self.connections += 1
            self._start(self._forward if self.mode == "open" else self._fail, client)

    def _forward(self, client: socket.socket) -> None:
        server = self._keep(socket.create_connection(self._server))
        upward = threading.Thread(target=_copy, args=(client, server), daemon=True)
        upward.start()
        try:
            _copy(server, client)
            upward.join(JOIN_SECONDS)
        finally:
            self._drop(server)

    def _fail(self, client: socket.socket) -> None:
        request = _request(client)
        if self.mode == "silent":
            client.recv(1)
            return
        if self.mode == "lose":
            with socket.create_connection(self._server) as server:
                server.sendall(request)
                server.recv(PIECE_BYTES)
        problem = f'{{"code": "{self.code}", "detail": "The node cannot serve."}}'.encode()
        head = b"HTTP/1.1 503 No\r\nConnection: close\r\nContent-Type: application/problem+json\r\n"
        client.sendall(head + b"Content-Length: %d\r\n\r\n%b" % (len(problem), problem))


def _bound(port: int) -> socket.socket:
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    one.bind(("127.0.0.1", port))
    return one


def _copy(source: socket.socket, target: socket.socket) -> None:
    """Forward bytes to the end; then the other direction ends too."""
    with suppress(OSError):
        while data := source.recv(PIECE_BYTES):
            target.sendall(data)
    for one in (source, target):
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)


def _request(client: socket.socket) -> bytes:
    found = b""
    while b"\r\n\r\n" not in found:
        found += _some(client)
    length = LENGTH.search(found)
    whole = found.index(b"\r\n\r\n") + 4 + (int(length[1]) if length else 0)
    while len(found) < whole:
        found += _some(client)
    return found


def _some(client: socket.socket) -> bytes:
    data = client.recv(PIECE_BYTES)
    if not data:
        raise OSError("The client has closed the connection.")
    return data


@contextmanager
def fronts_of(server_url: str, count: int = 3) -> Iterator[list[Front]]:
    """Several front ends of one server."""
    with ExitStack() as stack:
        yield [stack.enter_context(closing(Front(server_url))) for _ in range(count)]
