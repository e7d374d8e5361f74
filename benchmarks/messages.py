"""HTTP/1.1 as bytes: requests built in advance, and just enough parsing to know where a response ends."""

import re

OCTETS = "application/octet-stream"
TEXT = "text/plain"

LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
CHUNKED = re.compile(rb"\r\ntransfer-encoding: *chunked", re.IGNORECASE)


def request(method: str, path: str, body: bytes = b"", content_type: str = "") -> bytes:
    """Builds a request.

    >>> request("HEAD", "/a")
    b'HEAD /a HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n'
    """
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n"
    if content_type:
        head += f"Content-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"\r\n" + body


def is_complete(response: bytes | bytearray, is_head: bool = False) -> bool:
    """Says whether the response has arrived whole.

    The end of a chunked body is recognised by its last bytes, which no body of these benchmarks contains.

    >>> is_complete(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\na")
    False
    """
    end = response.find(b"\r\n\r\n")
    if end < 0:
        return False
    if is_head or response[9:12] == b"204":
        return True
    length = LENGTH.search(response, 0, end)
    if length:
        return len(response) >= end + 4 + int(length[1])
    if CHUNKED.search(response, 0, end):
        return len(response) > end + 4 and response.endswith(b"0\r\n\r\n")
    return True


def status(response: bytes | bytearray) -> int:
    return int(response[9:12])


def body(response: bytes | bytearray) -> bytes:
    """Returns the body of a complete response, without its chunk headers."""
    end = response.find(b"\r\n\r\n")
    if not CHUNKED.search(response, 0, end):
        return bytes(response[end + 4 :])
    parts: list[bytes] = []
    at = end + 4
    while True:
        line = response.find(b"\r\n", at)
        size = int(bytes(response[at:line]).split(b";")[0], 16)
        if size == 0:
            return b"".join(parts)
        parts.append(bytes(response[line + 2 : line + 2 + size]))
        at = line + 2 + size + 2
