"""HTTP/1.1 as bytes: requests built in advance, and only as much parsing as finding the end of a response takes."""

import re

OCTETS = "application/octet-stream"
TEXT = "text/plain"

LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
CHUNKED = re.compile(rb"\r\ntransfer-encoding: *chunked", re.IGNORECASE)
CLOSE = re.compile(rb"\r\nconnection: *close", re.IGNORECASE)

LOCALHOST = "Host: localhost\r\n"
INCOMPLETE = -1


def request(method: str, path: str, body: bytes = b"", content_type: str = "", lines: str = LOCALHOST) -> bytes:
    """Build a request; `lines` are the header lines that every request to a target carries.

    >>> request("HEAD", "/a")
    b'HEAD /a HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n'
    """
    head = f"{method} {path} HTTP/1.1\r\n{lines}"
    if content_type:
        head += f"Content-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
    return head.encode("latin-1") + b"\r\n" + body


def response_end(data: bytes | bytearray, at: int = 0, *, is_head: bool = False) -> int:
    """Return where the response that begins at `at` ends, or INCOMPLETE.

    >>> response_end(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\na")
    -1
    >>> response_end(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nabHTTP/1.1 ")
    40
    """
    head = data.find(b"\r\n\r\n", at)
    if head < 0:
        return INCOMPLETE
    if is_head or data[at + 9 : at + 12] in (b"204", b"304"):
        return head + 4
    length = LENGTH.search(data, at, head)
    if length:
        end = head + 4 + int(length[1])
        return end if end <= len(data) else INCOMPLETE
    if CHUNKED.search(data, at, head):
        # Walking the chunks of a long body again for every packet would be slow, so look at its last bytes first.
        return _chunks_end(data, head + 4) if data.endswith(b"\r\n\r\n") else INCOMPLETE
    return head + 4


def is_complete(response: bytes | bytearray, *, is_head: bool = False) -> bool:
    return response_end(response, is_head=is_head) != INCOMPLETE


def status(response: bytes | bytearray) -> int:
    return int(response[9:12])


def closes(response: bytes | bytearray) -> bool:
    """Return whether the server closes the connection after this response."""
    return CLOSE.search(response, 0, response.find(b"\r\n\r\n")) is not None


def first_line(request: bytes) -> str:
    """Return the method and the path of a request.

    >>> first_line(request("GET", "/a?offset=-1"))
    'GET /a?offset=-1'
    """
    return request.partition(b" HTTP/1.1\r\n")[0].decode("latin-1")


def body(response: bytes | bytearray) -> bytes:
    """Return the body of a complete response, without its chunk headers."""
    head = response.find(b"\r\n\r\n")
    if not CHUNKED.search(response, 0, head):
        return bytes(response[head + 4 :])
    parts: list[bytes] = []
    at = head + 4
    while size := _chunk_size(response, at):
        at = response.index(b"\r\n", at) + 2
        parts.append(bytes(response[at : at + size]))
        at += size + 2
    return b"".join(parts)


def _chunks_end(data: bytes | bytearray, at: int) -> int:
    while True:
        line = data.find(b"\r\n", at)
        if line < 0:
            return INCOMPLETE
        size = _chunk_size(data, at)
        if size == 0:
            # Trailers may follow the last chunk; a blank line ends them.
            end = data.find(b"\r\n\r\n", line)
            return end + 4 if end >= 0 else INCOMPLETE
        at = line + 2 + size + 2


def _chunk_size(data: bytes | bytearray, at: int) -> int:
    return int(bytes(data[at : data.index(b"\r\n", at)]).partition(b";")[0], 16)


class LoadFailed(OSError):
    """The load cannot continue; the message is a clause that names the request or the connection."""
