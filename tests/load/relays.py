"""A relay in front of a server: it can add TLS, and change what the server sends."""

import select
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer
from urllib.parse import urlsplit

PIECE_BYTES = 256 * 1024


@contextmanager
def relay(
    url: str, change: Callable[[bytes], bytes] = lambda data: data, tls: ssl.SSLContext | None = None
) -> Iterator[str]:
    """Run a relay, and return its URL; `change` gets each piece of the server's responses."""
    upstream = (urlsplit(url).hostname, urlsplit(url).port)

    class Handler(BaseRequestHandler):
        def handle(self) -> None:
            with suppress(OSError), socket.create_connection(upstream) as server:
                client = tls.wrap_socket(self.request, server_side=True) if tls else self.request
                with client:
                    _carry(client, server, change)

    class Server(ThreadingTCPServer):
        daemon_threads = True
        request_queue_size = 128

    with Server(("127.0.0.1", 0), Handler) as listening:
        thread = threading.Thread(target=listening.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"{'https' if tls else 'http'}://localhost:{listening.server_address[1]}"
        finally:
            listening.shutdown()
            thread.join()


def _carry(client: socket.socket, server: socket.socket, change: Callable[[bytes], bytes]) -> None:
    while True:
        pending = isinstance(client, ssl.SSLSocket) and client.pending()
        ready = [client] if pending else select.select([client, server], [], [])[0]
        for one in ready:
            data = one.recv(PIECE_BYTES)
            if not data:
                return
            if one is client:
                server.sendall(data)
            else:
                client.sendall(change(data))


def certificate(folder: Path) -> tuple[Path, ssl.SSLContext]:
    """Make a certificate for localhost, and the context of a server that has it."""
    path, key = folder / "certificate.pem", folder / "key.pem"
    subject = ("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", *subject]
    subprocess.run([*command, "-keyout", str(key), "-out", str(path)], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path, key)
    return path, context
