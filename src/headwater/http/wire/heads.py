"""Heads seen before: a client sends the same head with every request, so the parser need not read it every time.

Nothing is decided here. A head is known by its very bytes, once the parser has accepted them, and it is looked up only
where the parser would begin with a new request. So whatever comes after it is framed as the parser would frame it.
"""

from collections.abc import Callable
from typing import NamedTuple

from headwater.http.wire.requests import Request

HEADS_MAX = 8192
HEAD_BYTES_MAX = 1024
"""How many heads are known at a time, and how long one may be: a few megabytes at most, whatever clients send."""
END = b"\r\n\r\n"

_REPEATED = frozenset({b"GET", b"HEAD", b"POST"})
"""Methods of what is done to a stream again and again; it is made and deleted once."""
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
        self._met: set[int] = set()
        self._heads_max = heads_max
        self.find: Callable[[bytes], Head | None] = self._heads.get

    def learn(self, data: bytes, request: Request) -> bool:
        """Remember the head of a request that the parser has made of the beginning of this input.

        It does so from the second time on, so that heads that come once take no room. The answer is whether it is
        worth while to look for the next head of this client.
        """
        if not is_learnable(request):
            return False
        end = data.find(END, 0, HEAD_BYTES_MAX)
        if end < 0:
            return len(data) < HEAD_BYTES_MAX  # It came in pieces; the next may not.
        raw = data[: end + len(END)]
        if raw in self._heads:
            return True
        mark = hash(raw)
        if mark not in self._met:
            if len(self._met) >= self._heads_max:
                self._met.clear()
            self._met.add(mark)
            return False
        if not is_one_head(raw):
            return False
        if len(self._heads) >= self._heads_max:
            self._heads.clear()
        self._heads[raw] = Head(request.with_body(b""), int(request.headers.get(b"content-length", b"0")))
        return True


def is_learnable(request: Request) -> bool:
    """Whether a request is of a kind that is repeated, leaves the connection open, and has a body of plain length."""
    if not (request.keep_alive and request.takes_chunks and request.upload is None and request.method in _REPEATED):
        return False
    return _NEVER_THE_SAME.isdisjoint(request.headers) and _NOT_ONLY_A_LENGTH.isdisjoint(request.headers)


def is_one_head(raw: bytes) -> bool:
    """Whether bytes up to the first empty line are one head for certain.

    The parser passes over empty lines before a head, and lets some lines end in something else than CRLF. Where that
    could be, it is not for us to say where the head ends.

    >>> is_one_head(b"GET / HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n")
    True
    >>> is_one_head(b"GET / HTTP/1.1\\nHost: a\\n\\nGET / HTTP/1.1\\r\\n\\r\\n")
    False
    """
    lines = raw.count(b"\r\n")
    return len(raw) > len(END) and raw.count(b"\r") == lines == raw.count(b"\n")
