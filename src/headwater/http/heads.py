"""Heads seen before: a client sends the same head with every request, so the parser need not read it every time.

Nothing is decided here. A head is known by its very bytes, once the parser has accepted them, and it is looked up only
where the parser would begin with a new request. So whatever comes after it is framed as the parser would frame it.
"""

from collections.abc import Callable
from typing import NamedTuple

from headwater.http.requests import Request

HEADS_MAX = 4096
HEAD_BYTES_MAX = 1024
"""How many heads are known at a time, and how long one may be: a few megabytes at most, whatever clients send."""
END = b"\r\n\r\n"

_NEVER_THE_SAME = frozenset({b"producer-seq", b"stream-seq", b"if-match", b"stream-record-match"})
"""Headers that a client sends with another value each time, so that such a head would only take up room."""
_NOT_ONLY_A_LENGTH = frozenset({b"transfer-encoding", b"expect", b"upgrade"})
"""Headers that make more of a body than its length says."""


class Head(NamedTuple):
    """A request without its body, and how long that is."""

    request: Request
    body_bytes: int


class KnownHeads:
    """Heads by their bytes; when there are too many, all are forgotten, and those in use are soon back."""

    def __init__(self, heads_max: int = HEADS_MAX) -> None:
        self._heads: dict[bytes, Head] = {}
        self._heads_max = heads_max
        self.find: Callable[[bytes], Head | None] = self._heads.get

    def learn(self, raw: bytes, request: Request) -> None:
        """Remember a head that the parser has made this request of, if all there is to its body is a length."""
        headers = request.headers
        if not (request.keep_alive and request.takes_chunks and request.upload is None):
            return
        if not (_NEVER_THE_SAME.isdisjoint(headers) and _NOT_ONLY_A_LENGTH.isdisjoint(headers)):
            return
        if len(self._heads) >= self._heads_max:
            self._heads.clear()
        self._heads[raw] = Head(request.with_body(b""), int(headers.get(b"content-length", b"0")))


def raw_head(data: bytes) -> bytes | None:
    """The bytes of the head that some input begins with, if they are all there and plainly one head.

    The parser passes over empty lines before a head, and lets some lines end in something else than CRLF. Where that
    could be, it is not for us to say where the head ends.

    >>> raw_head(b"GET / HTTP/1.1\\r\\nHost: a\\r\\n\\r\\nGET /b")
    b'GET / HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n'
    >>> raw_head(b"GET / HTTP/1.1\\nHost: a\\n\\nGET / HTTP/1.1\\r\\n\\r\\n")
    """
    end = data.find(END, 0, HEAD_BYTES_MAX)
    if end <= 0:
        return None
    raw = data[: end + len(END)]
    lines = raw.count(b"\r\n")
    return raw if raw.count(b"\r") == lines == raw.count(b"\n") else None
