"""A plain HTTP client that reports unknown outcomes."""

import json
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException, HTTPMessage
from typing import Any, NamedTuple
from urllib.parse import urlsplit

TIMEOUT_SECONDS = 20.0
PATH = "/v1/stream/"
BUCKET = "/_default"
"""Where the streams without a bucket are on the surface that has sub-resources."""


class Unknown(Exception):
    """The connection broke, or the server ends: the request may have been carried out, or may not."""


class Response(NamedTuple):
    """What the server acknowledged."""

    status: int
    headers: HTTPMessage
    body: bytes

    @property
    def incarnation(self) -> str:
        """The life of the stream it is about; empty if it does not say."""
        return self.headers.get("Stream-Incarnation", "")

    @property
    def next_offset(self) -> int:
        return parse_offset(self.headers["Stream-Next-Offset"])

    @property
    def closed(self) -> bool:
        return self.headers.get("Stream-Closed") == "true"

    @property
    def snapshot_offset(self) -> int | None:
        return self._offset("Stream-Snapshot-Offset")

    @property
    def earliest_offset(self) -> int | None:
        return self._offset("Stream-Earliest-Offset")

    @property
    def code(self) -> str:
        """Which refusal it is."""
        return str(json.loads(self.body)["code"])

    def acks(self) -> "list[Response]":
        """The answer to each frame of a batch, as if it had been a separate append."""
        return [self._ack(ack) for ack in json.loads(self.body)]

    def _ack(self, ack: Mapping[str, Any]) -> "Response":
        headers = HTTPMessage()
        headers["Stream-Incarnation"] = self.incarnation
        if "stream_next_offset" in ack:
            headers["Stream-Next-Offset"] = ack["stream_next_offset"]
        if ack.get("stream_closed"):
            headers["Stream-Closed"] = "true"
        return Response(ack["status"], headers, self.body)

    def _offset(self, header: str) -> int | None:
        return parse_offset(self.headers[header]) if header in self.headers else None


def parse_offset(text: str) -> int:
    """An offset in either printed form; the flat one has a spare last digit, the plain one of buckets has none."""
    _, flat, digits = text.rpartition("_")
    return int(digits) // 10 if flat else int(digits)


def render_offset(offset: int) -> str:
    return f"{0:016d}_{offset:015d}0"


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
        return self.ask(method, PATH + name + query, headers, body)

    def ask(
        self, method: str, path: str, headers: Mapping[str, str | None] | None = None, body: bytes = b""
    ) -> Response:
        """Send a request to a path."""
        sent = {header: value for header, value in (headers or {}).items() if value is not None}
        try:
            self._connection.request(method, path, body, sent)
            response = self._connection.getresponse()
            answer = Response(response.status, response.headers, response.read())
        except (OSError, HTTPException) as error:
            raise Unknown(f"{method} {path}: {error!r}") from error
        if answer.status == 503 and (method == "HEAD" or answer.code == "draining"):
            raise Unknown(f"{method} {path}: the server ends")
        return answer

    def close(self) -> None:
        self._connection.close()
