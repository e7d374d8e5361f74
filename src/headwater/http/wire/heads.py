"""Known heads: a client sends the same head with every request, so the parser need not parse it every time.

Nothing is decided here. A head is known by its exact bytes, once the parser has accepted them, and it is looked up only
where the parser would begin a new request. So the input after it is framed exactly as the parser would frame it.
"""

from collections.abc import Callable
from typing import NamedTuple

from headwater.http.wire.ends import EMPTY_LINE
from headwater.http.wire.requests import Request
from headwater.protocol import headers

HEADS_MAX = 8192
HEAD_BYTES_MAX = 1024
"""How many heads are known at a time, and how long one may be: a few megabytes at most, whatever clients send."""

_REPEATED = frozenset({b"GET", b"HEAD", b"POST"})
"""Methods that clients repeat on one stream; it is created and deleted once."""
_NEVER_THE_SAME = frozenset(
    header.key for header in (headers.PRODUCER_SEQ, headers.STREAM_SEQ, headers.IF_MATCH, headers.STREAM_RECORD_MATCH)
)
"""Headers whose value changes with every request, so that remembering such a head would only waste room."""
_NOT_ONLY_A_LENGTH = frozenset(header.key for header in (headers.TRANSFER_ENCODING, headers.EXPECT, headers.UPGRADE))
"""Headers with which a body is framed by more than its length."""
_CONTENT_LENGTH = headers.CONTENT_LENGTH.key


class Head(NamedTuple):
    """A request without its body, and the body's length."""

    request: Request
    body_bytes: int


class KnownHeads:
    """Heads by their bytes; when there are too many, all are forgotten, and those in use are soon learned again."""

    def __init__(self, heads_max: int = HEADS_MAX) -> None:
        self._heads: dict[bytes, Head] = {}
        self._seen_once: set[int] = set()
        self._heads_max = heads_max
        self.find: Callable[[bytes], Head | None] = self._heads.get

    def learn(self, data: bytes, request: Request) -> bool:
        """Remember the head of a request that the parser has found at the beginning of this input.

        A head is remembered when it comes for the second time, so that heads that come once take no room. Returns
        whether it is worthwhile to look up the next head of this client.
        """
        if not is_learnable(request):
            return False
        end = data.find(EMPTY_LINE, 0, HEAD_BYTES_MAX)
        if end < 0:
            return len(data) < HEAD_BYTES_MAX  # The head arrived in pieces; the next one may not.
        raw = data[: end + len(EMPTY_LINE)]
        if raw in self._heads:
            return True
        mark = hash(raw)
        if mark not in self._seen_once:
            if len(self._seen_once) >= self._heads_max:
                self._seen_once.clear()
            self._seen_once.add(mark)
            return False
        if not is_one_head(raw):
            return False
        if len(self._heads) >= self._heads_max:
            self._heads.clear()
        self._heads[raw] = Head(request.with_body(b""), int(request.headers.get(_CONTENT_LENGTH, b"0")))
        return True


def is_learnable(request: Request) -> bool:
    """Whether a request is of a kind that repeats, keeps the connection open, and frames its body by length only."""
    if not (request.keep_alive and request.takes_chunks and request.intake is None and request.method in _REPEATED):
        return False
    return _NEVER_THE_SAME.isdisjoint(request.headers) and _NOT_ONLY_A_LENGTH.isdisjoint(request.headers)


def is_one_head(raw: bytes) -> bool:
    """Whether bytes up to the first empty line are certainly one head.

    The parser skips empty lines before a head, and accepts lines that end in something other than CRLF. Where either
    is possible, only the parser can say where the head ends.

    >>> is_one_head(b"GET / HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n")
    True
    >>> is_one_head(b"GET / HTTP/1.1\\nHost: a\\n\\nGET / HTTP/1.1\\r\\n\\r\\n")
    False
    """
    lines = raw.count(b"\r\n")
    return len(raw) > len(EMPTY_LINE) and raw.count(b"\r") == lines == raw.count(b"\n")
