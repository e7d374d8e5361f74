"""A tiny HTTP client on a raw socket, so that tests see the exact bytes and can send what no library would.

It is strict with the server: a response that breaks RFC 9112 in a way that this client knows of fails the test at once.
"""

import json
import re
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

TIMEOUT_SECONDS = 10.0
"""How long one wait may take; much longer than any answer takes, so that only a hang reaches it."""

_STATUS_LINE = re.compile(rb"HTTP/1\.1 ([1-5][0-9]{2}) ([ -~]*)\r\n")
_FIELD = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+): ([!-~]|[!-~][ -~\t]*[!-~])")
_CHUNK_SIZE = re.compile(rb"[0-9a-f]+\r\n")
_LINE_END = re.compile(r"\r\n|\r|\n")


class Ended(ConnectionError):
    """The server closed the connection, cleanly, before everything expected had arrived."""


@dataclass(frozen=True)
class Response:
    """One response; header names are in lower case, and none appears twice."""

    status: int
    headers: dict[str, str]
    body: bytes
    head: bytes

    @property
    def problem(self) -> dict[str, Any]:
        """The problem in the body of an error."""
        assert self.headers["content-type"] == "application/problem+json"
        problem = json.loads(self.body)
        assert isinstance(problem, dict)
        return problem

    @property
    def next_offset(self) -> str:
        return self.headers["stream-next-offset"]


class Event(NamedTuple):
    """One server-sent event as a browser sees it, and its bytes; a comment is an event of kind `:`."""

    kind: str
    data: str
    id: str | None
    raw: bytes

    @property
    def control(self) -> dict[str, Any]:
        assert self.kind == "control", self
        control = json.loads(self.data)
        assert isinstance(control, dict)
        return control


def request(
    method: str,
    target: str,
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
    *,
    version: str = "1.1",
) -> bytes:
    """The bytes of a well-formed request; missing Host and Content-Length headers are added."""
    lines = {"Host": "localhost", **(headers or {})}
    if body is not None:
        lines.setdefault("Content-Length", str(len(body)))
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"{method} {target} HTTP/{version}\r\n{head}\r\n".encode("latin-1") + (body or b"")


def chunked(*parts: bytes, trailers: bytes = b"") -> bytes:
    """A chunked body of these parts."""
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n" + trailers + b"\r\n"


class Wire:
    """One connection to a server."""

    def __init__(self, url: str, *, timeout_seconds: float = TIMEOUT_SECONDS, receive_buffer_bytes: int = 0) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        assert parts.port is not None
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.socket.settimeout(timeout_seconds)
        if receive_buffer_bytes:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        try:
            self.socket.connect((parts.hostname, parts.port))
        except OSError:
            self.socket.close()
            raise
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    # -- Sending --------------------------------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def ask(
        self, method: str, target: str, headers: Mapping[str, str] | None = None, body: bytes | None = None
    ) -> Response:
        """Send a request and wait for its response."""
        self.send(request(method, target, headers, body))
        return self.receive(bodiless=method == "HEAD")

    def ask_raw(self, data: bytes) -> Response:
        """Send bytes and wait for one response."""
        self.send(data)
        return self.receive()

    # -- Receiving ------------------------------------------------------------------------------------------------

    def receive(self, *, bodiless: bool = False) -> Response:
        """The next complete response, which may be an interim one; responses to HEAD have no body."""
        status, headers, head = self.receive_head()
        if bodiless or status < 200 or status in (204, 304):
            assert status not in (100, 204) or not headers.keys() & {"content-length", "transfer-encoding"}, head
            return Response(status, headers, b"", head)
        if "transfer-encoding" in headers:
            body = b"".join(self.chunks())
        elif "content-length" in headers:
            body = self.take(int(headers["content-length"]))
        else:
            assert headers.get("connection") == "close", f"the end of this response is not marked: {head!r}"
            body = self.rest()
        return Response(status, headers, body, head)

    def receive_head(self) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and bytes of the next response's head."""
        head = self.take_until(b"\r\n\r\n")
        match = _STATUS_LINE.match(head)
        assert match is not None, f"no status line: {head!r}"
        headers: dict[str, str] = {}
        for line in head[match.end() : -4].decode("latin-1").split("\r\n") if match.end() < len(head) - 2 else []:
            field = _FIELD.fullmatch(line)
            assert field is not None, f"no header line: {line!r}"
            name = field[1].lower()
            assert name not in headers, f"{name} came twice: {head!r}"
            headers[name] = field[2]
        assert not {"content-length", "transfer-encoding"} <= headers.keys(), head
        return int(match[1]), headers, head

    def chunks(self) -> Iterator[bytes]:
        """All chunks of a chunked body."""
        while True:
            line = self.take_until(b"\r\n")
            assert _CHUNK_SIZE.fullmatch(line), f"no chunk size: {line!r}"
            size = int(line, 16)
            data = self.take(size + 2)
            assert data[-2:] == b"\r\n", f"a chunk of {size} bytes does not end where it should"
            if size == 0:
                return
            yield data[:-2]

    def take(self, count: int) -> bytes:
        while len(self._buffer) < count:
            self._fill()
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        return taken

    def take_until(self, marker: bytes) -> bytes:
        seen = 0
        while (at := self._buffer.find(marker, seen)) < 0:
            seen = max(0, len(self._buffer) - len(marker))
            self._fill()
        return self.take(at + len(marker))

    def rest(self) -> bytes:
        """Everything until the server closes the connection."""
        try:
            while True:
                self._fill()
        except Ended:
            return self.take(len(self._buffer))

    def ended(self) -> bool:
        """Wait for the server to close the connection; returns whether nothing arrived before that."""
        return self.rest() == b""

    def silent_for(self, seconds: float) -> bool:
        """Whether nothing arrives for that long."""
        if self._buffer:
            return False
        before = self.socket.gettimeout()
        self.socket.settimeout(seconds)
        try:
            self._fill()
        except TimeoutError:
            return True
        except Ended:
            return False
        finally:
            self.socket.settimeout(before)
        return False

    def _fill(self) -> None:
        data = self.socket.recv(1 << 18)
        if not data:
            raise Ended(f"the connection ended after {bytes(self._buffer)[-200:]!r}")
        self._buffer += data

    # -- Server-sent events ---------------------------------------------------------------------------------------

    def open_sse(self, target: str, headers: Mapping[str, str] | None = None, *, version: str = "1.1") -> "Sse":
        """Start a live read and wait for the head of its response."""
        self.send(request("GET", target, headers, version=version))
        return self.receive_sse()

    def receive_sse(self) -> "Sse":
        status, fields, head = self.receive_head()
        assert status == 200, head + self.take(int(fields.get("content-length", "0")))
        assert fields["content-type"] == "text/event-stream"
        return Sse(self, fields)


class Sse:
    """A live read in progress."""

    def __init__(self, wire: Wire, headers: dict[str, str]) -> None:
        self.wire, self.headers = wire, headers
        self.raw = b""
        self._complete = False
        self._unread = bytearray()
        self._chunks = wire.chunks() if headers.get("transfer-encoding") == "chunked" else self._pieces()

    def event(self, *, comments: bool = False) -> Event:
        """The next event; comments are skipped unless requested."""
        while True:
            while (at := self._unread.find(b"\n\n")) < 0:
                try:
                    chunk = next(self._chunks)
                except StopIteration:
                    self._complete = True
                    raise Ended(f"the events ended after {self.raw[-200:]!r}") from None
                self.raw += chunk
                self._unread += chunk
            block = bytes(self._unread[: at + 2])
            del self._unread[: at + 2]
            event = parse_event(block)
            if comments or event.kind != ":":
                return event

    def events(self, count: int) -> list[Event]:
        return [self.event() for _ in range(count)]

    def rest(self) -> list[Event]:
        """All events until the response ends properly, and the connection with it."""
        events = []
        try:
            while True:
                events.append(self.event())
        except Ended:
            assert self._complete, f"the response was cut short after {self.raw[-200:]!r}"
            assert not self._unread, f"half an event at the end: {bytes(self._unread)!r}"
        assert self.wire.ended(), "bytes came after the end of the response"
        return events

    def _pieces(self) -> Iterator[bytes]:
        # Without chunks the end of the connection is the end of the response.
        while True:
            if not self.wire._buffer:
                try:
                    self.wire._fill()
                except Ended:
                    return
            yield self.wire.take(len(self.wire._buffer))


def parse_event(block: bytes) -> Event:
    """An event as the EventSource standard reads it; the block must use LF only and contain exactly one event."""
    assert block.endswith(b"\n\n")
    assert b"\r" not in block, f"a carriage return in an event: {block!r}"
    kind, data, identity = "message", [], None
    for line in _LINE_END.split(block.decode()[:-2]):
        assert line, f"an event in two parts: {block!r}"
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match name:
            case "":
                return Event(":", value, None, block)
            case "event":
                kind = value
            case "data":
                data.append(value)
            case "id":
                identity = value
            case _:
                raise AssertionError(f"an unknown field {name!r} in {block!r}")
    return Event(kind, "\n".join(data), identity, block)


# -- What many tests assert ------------------------------------------------------------------------------------------

_TWO_SENTENCES = re.compile(r"[.!?]\s+[A-Z]")


def refused(response: Response, status: int, code: str) -> dict[str, Any]:
    """Assert a refusal with this status and code, and one sentence for a person."""
    assert response.status == status, (response.head, response.body)
    problem = response.problem
    assert problem.keys() >= {"type", "title", "status", "detail", "code"}, problem
    assert problem["code"] == code, problem
    assert problem["status"] == status
    detail = problem["detail"]
    assert detail.endswith("."), detail
    assert "\n" not in detail
    assert not _TWO_SENTENCES.search(detail), f"more than one sentence: {detail}"
    assert response.headers["cache-control"] == "no-store"
    return problem


@contextmanager
def unchanged(url: str, path: str) -> Iterator[None]:
    """Assert that a stream, or its absence, is the same after the block as it was before."""
    with Wire(url) as wire:
        before = _standing(wire, path)
        yield
        assert _standing(wire, path) == before


def _standing(wire: Wire, path: str) -> tuple[int, list[str | None]]:
    head = wire.ask("HEAD", path)
    names = ("stream-next-offset", "stream-closed", "stream-incarnation", "etag", "content-type", "stream-ttl")
    return head.status, [head.headers.get(name) for name in names if head.status == 200]
