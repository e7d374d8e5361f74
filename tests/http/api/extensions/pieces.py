"""Requests of the tests of the extensions, and parsers of the responses."""

import json
from collections.abc import Mapping
from email import message_from_bytes
from email.message import Message
from typing import Any

from ...sockets import Response, Wire

TEXT = {"Content-Type": "text/plain"}
JSON = {"Content-Type": "application/json"}
BYTES = {"Content-Type": "application/octet-stream"}
MIB = 1024 * 1024

FACTS = ("stream-next-offset", "stream-closed", "stream-incarnation", "etag", "stream-snapshot-offset", "stream-ttl")


def plain(position: int) -> str:
    """An offset as the bucket surfaces print it."""
    return f"{position:020}"


def flat(position: int) -> str:
    """An offset as the flat surface prints it."""
    return f"{0:016}_{position:015}0"


def made(wire: Wire, path: str, headers: Mapping[str, str] = TEXT, body: bytes | None = None) -> str:
    """Create a stream, and return its path."""
    response = wire.ask("PUT", path, headers, body)
    assert response.status == 201, response.body
    return path


def append(wire: Wire, path: str, *bodies: bytes, headers: Mapping[str, str] = TEXT) -> str:
    """Append, and return the offset after all of it."""
    for body in bodies:
        response = wire.ask("POST", path, headers, body)
        assert response.status == 204, response.body
    return response.next_offset


def publish(wire: Wire, path: str, offset: str, body: bytes = b"folded", headers: Mapping[str, str] = TEXT) -> Response:
    """Publish a snapshot, which must succeed."""
    response = wire.ask("PUT", f"{path}/snapshot/{offset}", headers, body)
    assert response.status == 204, response.body
    return response


def frames(*payloads: bytes) -> bytes:
    """The body of an append-batch."""
    return b"".join(len(payload).to_bytes(4, "big") + payload for payload in payloads)


def parsed(response: Response, status: int = 200) -> Any:
    """The decoded JSON body."""
    assert response.status == status, response.body
    assert response.headers["content-type"] == "application/json"
    return json.loads(response.body)


def standing(wire: Wire, path: str) -> tuple[int, list[str | None], bytes]:
    """Everything observable about a stream, or its absence; a refused request must not change it."""
    head = wire.ask("HEAD", path)
    facts = [head.headers.get(name) for name in FACTS]
    attrs = wire.ask("GET", f"{path}/attrs").body if head.status == 200 and not path.startswith("/v1/") else b""
    return head.status, facts if head.status == 200 else [], attrs


def parts(response: Response) -> list[tuple[str, bytes]]:
    """The parts of a bootstrap: their types and exact bytes."""
    assert response.status == 200, response.body
    return split(response.headers["content-type"], response.body)


def split(content_type: str, body: bytes) -> list[tuple[str, bytes]]:
    message: Message = message_from_bytes(f"Content-Type: {content_type}\r\n\r\n".encode() + body)
    assert message.get_content_type() == "multipart/mixed"
    assert message.defects == []
    assert message.preamble in (None, "")
    assert message.epilogue in (None, "")
    found = message.get_payload()
    assert isinstance(found, list)
    exact = _exact_parts(message.get_boundary() or "", body)
    assert len(exact) == len(found)
    for part, data in zip(found, exact, strict=True):
        assert isinstance(part, Message)
        assert part.keys() == ["Content-Type"]
        assert data.isascii() is False or part.get_payload(decode=True) == data
    return [(str(part["Content-Type"]), data) for part, data in zip(found, exact, strict=True)]


def _exact_parts(boundary: str, body: bytes) -> list[bytes]:
    """Each part's bytes; the email package may normalise those that are not text."""
    marker = f"\r\n--{boundary}".encode()
    first, *pieces, end = (b"\r\n" + body).split(marker)
    assert (first, end) == (b"", b"--\r\n")
    return [piece.split(b"\r\n\r\n", 1)[1] for piece in pieces]
