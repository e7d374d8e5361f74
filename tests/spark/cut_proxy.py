"""A proxy that cuts connections after a planned number of bytes of the server's answers."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit


class CutProxy:
    """Forwards bytes between clients and a server; `plan` says after how many bytes to cut each connection."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._server = parts.hostname, parts.port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self.plan: list[int] = []
        self.cuts = 0
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def close(self) -> None:
        # A shutdown ends a blocked accept; a close does not.
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                thread = threading.Thread(target=self._forward, args=(client,), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _forward(self, client: socket.socket) -> None:
        left = self.plan.pop(0) if self.plan else None
        with client, socket.create_connection(self._server) as server, suppress(OSError):
            requests = threading.Thread(target=self._forward_requests, args=(client, server), daemon=True)
            requests.start()
            while data := server.recv(65_536):
                client.sendall(data if left is None else data[:left])
                if left is not None:
                    left -= len(data)
                    if left <= 0:
                        self.cuts += 1
                        break
            with suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)

    def _forward_requests(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := client.recv(65_536):
                server.sendall(data)
            server.shutdown(socket.SHUT_WR)


@contextmanager
def cut_proxy(url: str) -> Iterator[CutProxy]:
    proxy = CutProxy(url)
    try:
        yield proxy
    finally:
        proxy.close()
