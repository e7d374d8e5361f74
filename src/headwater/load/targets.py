"""Where a load goes."""

import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from urllib.parse import urlsplit

from headwater.load import messages

CONNECT_SECONDS_MAX = 10.0


@dataclass(frozen=True, slots=True)
class Target:
    """An address, with TLS or without, and what every request to it carries: a path prefix and header lines."""

    host: str
    port: int
    prefix: str = ""
    lines: str = field(default=messages.LOCALHOST, repr=False)
    is_tls: bool = False

    @classmethod
    def of_url(cls, url: str, headers: Mapping[str, str]) -> "Target":
        """Return the target of a URL whose path is the prefix.

        >>> target = Target.of_url("https://a.example/v1/stream/", {"X-Key": "1"})
        >>> target.host, target.port, target.prefix, target.lines
        ('a.example', 443, '/v1/stream', 'Host: a.example\\r\\nX-Key: 1\\r\\n')
        """
        parts = urlsplit(url)
        is_tls = parts.scheme == "https"
        authority = parts.netloc.rpartition("@")[2]
        lines = "".join(f"{name}: {value}\r\n" for name, value in {"Host": authority, **headers}.items())
        port = parts.port or (443 if is_tls else 80)
        return cls(parts.hostname or "", port, parts.path.rstrip("/"), lines, is_tls)

    def request(self, method: str, path: str, body: bytes = b"", content_type: str = "") -> bytes:
        """Build a request for a path below the prefix."""
        return messages.request(method, self.prefix + path, body, content_type, self.lines)

    def connect(self) -> socket.socket:
        """Open a connection, which blocks."""
        opened = socket.create_connection((self.host, self.port), timeout=CONNECT_SECONDS_MAX)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not self.is_tls:
            return opened
        try:
            return _tls().wrap_socket(opened, server_hostname=self.host)
        except OSError:
            opened.close()
            raise


def receive(connection: socket.socket, size: int) -> bytes:
    """Read from a non-blocking connection; b"" is its end, and BlockingIOError says that nothing has arrived.

    TLS decrypts whole records: what is left of one does not wake epoll, so all of it is read at once.
    """
    if not isinstance(connection, ssl.SSLSocket):
        return connection.recv(size)
    try:
        data = connection.recv(size)
        while connection.pending():
            data += connection.recv(size)
    except ssl.SSLWantReadError:
        raise BlockingIOError from None
    return data


@cache
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()
