"""A minimal HTTP/1.1 client for load: requests on persistent connections, and bodies as they arrive."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

HEAD_BYTES_MAX = 64 * 1024
PIECE_BYTES = 256 * 1024
ANSWER_SECONDS_MAX = 60.0


class BenchFailed(Exception):
    """The measurement cannot continue; the message is one sentence for a person."""


class Answer(NamedTuple):
    """A response; header names are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    def flag(self, name: str) -> bool:
        return self.headers.get(name, "").lower() == "true"


class Connection:
    """One connection to the URL of the streams; used by one task at a time."""

    def __init__(self, streams_url: str, headers: Mapping[str, str]) -> None:
        parts = urlsplit(streams_url)
        self.url = streams_url
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._host, self._port = parts.hostname or "", parts.port or (443 if self._tls else 80)
        self._path = parts.path.rstrip("/")
        extra = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self._lines = f"Host: {parts.netloc}\r\n{extra}"
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def ask(
        self, method: str, name: str, headers: Mapping[str, str] | None = None, body: bytes = b"", *, ok: bool = True
    ) -> Answer:
        """Send a request and read the whole answer; with `ok`, anything but success ends the measurement."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                status, found = await self._begin(method, name, headers or {}, body)
                pieces = [piece async for piece in self._body(method, status, found)]
        except (OSError, EOFError, ValueError, TimeoutError) as error:
            self.close()
            raise BenchFailed(
                f"{method} {self.url}/{name} got no answer ({str(error) or type(error).__name__})."
            ) from error
        answer = Answer(status, found, b"".join(pieces))
        if found.get("connection", "").lower() == "close":
            self.close()
        if ok and not 200 <= status < 300:
            reason = " ".join(answer.body[:200].decode(errors="replace").split())
            raise BenchFailed(f"{method} {self.url}/{name} was answered with {status}: {reason.rstrip('.')}.")
        return answer

    async def open(self, name: str) -> AsyncIterator[bytes]:
        """Yield the body of a GET, piece by piece, until the server ends it."""
        try:
            status, found = await self._begin("GET", name, {"Accept": "text/event-stream"}, b"")
            if status != 200:
                raise BenchFailed(f"GET {self.url}/{name} was answered with {status}; see the server's log.")
            async for piece in self._body("GET", status, found):
                yield piece
        except (OSError, EOFError, ValueError) as error:
            raise BenchFailed(f"GET {self.url}/{name} broke off ({str(error) or type(error).__name__}).") from error
        finally:
            self.close()

    async def _begin(
        self, method: str, name: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, dict[str, str]]:
        if self._writer is None:
            opened = asyncio.open_connection(self._host, self._port, ssl=self._tls, limit=HEAD_BYTES_MAX)
            self._reader, self._writer = await opened
        lines = "".join(f"{key}: {value}\r\n" for key, value in headers.items())
        length = f"Content-Length: {len(body)}\r\n" if method in ("PUT", "POST") else ""
        head = f"{method} {self._path}/{name} HTTP/1.1\r\n{self._lines}{lines}{length}\r\n"
        self._writer.write(head.encode() + body)
        assert self._reader is not None
        first, *rest = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        found = {}
        for line in rest:
            key, _, value = line.partition(":")
            found[key.lower()] = value.strip()
        return int(first.split(" ", 2)[1]), found

    async def _body(self, method: str, status: int, headers: Mapping[str, str]) -> AsyncIterator[bytes]:
        reader = self._reader
        assert reader is not None
        if method == "HEAD" or status in (204, 304):
            return
        if headers.get("transfer-encoding", "").lower() == "chunked":
            while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
                yield (await reader.readexactly(size + 2))[:-2]
            await reader.readuntil(b"\r\n")
        elif "content-length" in headers:
            if size := int(headers["content-length"]):
                yield await reader.readexactly(size)
        else:
            while piece := await reader.read(PIECE_BYTES):
                yield piece
            self.close()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._reader = self._writer = None


async def pages(connection: Connection, name: str) -> AsyncIterator[bytes]:
    """Yield the content of a stream, page by page."""
    offset = "-1"
    while True:
        answer = await connection.ask("GET", f"{name}?offset={offset}")
        yield answer.body
        following = answer.headers.get("stream-next-offset", offset)
        if answer.flag("stream-up-to-date") or answer.flag("stream-closed") or following == offset:
            return
        offset = following


async def sse_data(connection: Connection, name: str) -> AsyncIterator[bytes]:
    """Yield the data of a stream as events bring it, with each offset that confirms it, until the stream is closed.

    The first piece is empty: it says that the connection is open.
    """
    offset = "-1"
    while True:
        rest, pending = b"", b""
        async for piece in connection.open(f"{name}?offset={offset}&live=sse"):
            *events, rest = (rest + piece.replace(b"\r", b"")).split(b"\n\n")
            for event in events:
                kind, data = _parsed(event)
                if kind == b"data":
                    pending += data
                elif kind == b"control":
                    # Parsed by hand: a JSON parser would take most of a reader's time.
                    offset = _member(data, b'"streamNextOffset"')
                    yield pending
                    pending = b""
                    if b'"streamClosed":true' in data.replace(b" ", b""):
                        return


def _parsed(event: bytes) -> tuple[bytes, bytes]:
    """Return the kind and the data of an event.

    >>> _parsed(b"event: data\\ndata:a\\ndata: b"), _parsed(b":comment")
    ((b'data', b'a\\nb'), (b'', b''))
    """
    kind, lines = b"", []
    for line in event.split(b"\n"):
        name, _, value = line.partition(b":")
        if name == b"event":
            kind = value.strip()
        elif name == b"data":
            lines.append(value.removeprefix(b" "))
    return kind, b"\n".join(lines)


def _member(data: bytes, name: bytes) -> str:
    """Return the value of a member that is a plain string.

    >>> _member(b'{"streamNextOffset": "0_1","x":1}', b'"streamNextOffset"')
    '0_1'
    """
    return data.partition(name)[2].split(b'"', 2)[1].decode()
