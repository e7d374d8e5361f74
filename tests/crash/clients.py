"""A plain HTTP client that knows when it does not know."""

from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException, HTTPMessage
from typing import NamedTuple
from urllib.parse import urlsplit

TIMEOUT_SECONDS = 20.0
PATH = "/v1/stream/"


class Unknown(Exception):
    """The connection broke: the request may have been carried out, or may not."""


class Response(NamedTuple):
    """What the server acknowledged."""

    status: int
    headers: HTTPMessage
    body: bytes

    @property
    def incarnation(self) -> str:
        """Which life of the stream it is about; empty if it does not say."""
        return self.headers.get("Stream-Incarnation", "")

    @property
    def next_offset(self) -> int:
        return parse_offset(self.headers["Stream-Next-Offset"])

    @property
    def closed(self) -> bool:
        return self.headers.get("Stream-Closed") == "true"


def parse_offset(text: str) -> int:
    return int(text.rpartition("_")[2])


def render_offset(offset: int) -> str:
    return f"{0:016d}_{offset:016d}"


class Client:
    """One connection; it is never opened a second time."""

    def __init__(self, url: str) -> None:
        self._connection = HTTPConnection(urlsplit(url).netloc, timeout=TIMEOUT_SECONDS)

    def request(
        self,
        method: str,
        name: str,
        headers: Mapping[str, str | None] | None = None,
        body: bytes = b"",
        query: str = "",
    ) -> Response:
        """Send a request about a stream; headers that are None are left out."""
        sent = {header: value for header, value in (headers or {}).items() if value is not None}
        try:
            self._connection.request(method, PATH + name + query, body, sent)
            response = self._connection.getresponse()
            return Response(response.status, response.headers, response.read())
        except (OSError, HTTPException) as error:
            raise Unknown(f"{method} {name}: {error!r}") from error

    def close(self) -> None:
        self._connection.close()
