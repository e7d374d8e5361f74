"""From an answer to the bytes of a response. What every response carries is rendered once a second."""

import time
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from importlib.metadata import version

from headwater.http.wire import statuses
from headwater.http.wire.statuses import Answer, Voice
from headwater.protocol import headers
from headwater.streams.replies import Page

SERVER = f"headwater/{version('headwater')}"
ALLOW_ALL_LINE = "Access-Control-Allow-Origin: *\r\n"
PREFLIGHT_LINES = (
    "Access-Control-Allow-Methods: GET, HEAD, PUT, POST, DELETE, OPTIONS\r\n"
    f"Access-Control-Allow-Headers: {headers.ALLOWED}\r\n"
    "Access-Control-Max-Age: 86400\r\n"
)
JSON_LINES = "Content-Type: application/json\r\nCache-Control: no-store\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"

COPY_BYTES_MAX = 64 * 1024
"""Up to here copying a body behind its head is cheaper than sending two parts."""

SHARED_BYTES_MAX = 4 * 1024
"""Up to here a body is kept with its head; with larger ones the head does not matter."""

_BODILESS = frozenset({204, 304})
_heads: dict[int, bytes] = {}
_heads_until = 0.0


def browser_lines(*, to_all: bool = True, exposed_more: str = "") -> str:
    """What browsers are told with every response; where only some origins may read, each is told for itself."""
    exposed = f"{headers.EXPOSED}, {exposed_more}" if exposed_more else headers.EXPOSED
    return (
        "X-Content-Type-Options: nosniff\r\n"
        "Cross-Origin-Resource-Policy: cross-origin\r\n"
        f"{ALLOW_ALL_LINE if to_all else ''}"
        f"Access-Control-Expose-Headers: {exposed}\r\n"
    )


def set_browser_lines(*, to_all: bool, exposed_more: str) -> None:
    """Have all responses from now on say so."""
    global _browser_lines  # noqa: PLW0603
    _browser_lines = browser_lines(to_all=to_all, exposed_more=exposed_more)
    _heads.clear()


_browser_lines = browser_lines()


def _head(status: int) -> bytes:
    global _heads_until  # noqa: PLW0603
    now = time.monotonic()
    if now >= _heads_until:
        _heads.clear()
        _heads_until = now + 1.0
    head = _heads.get(status)
    if head is None:
        date = formatdate(usegmt=True)
        text = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nServer: {SERVER}\r\nDate: {date}\r\n{_browser_lines}"
        head = _heads[status] = text.encode("latin-1")
    return head


def response(answer: Answer, *, close: bool = False, head_only: bool = False) -> list[bytes]:
    """A whole response in one part, or two where the body is large; `head_only` leaves it out, as HEAD wants it."""
    status, lines, body = answer.status, answer.headers, answer.body
    if close:
        lines += "Connection: close\r\n"
    if status in _BODILESS or (head_only and not body):
        return [_head(status) + f"{lines}\r\n".encode("latin-1")]
    head = _head(status) + f"{lines}Content-Length: {len(body)}\r\n\r\n".encode("latin-1")
    if head_only:
        return [head]
    return [head + body] if len(body) < COPY_BYTES_MAX else [head, body]


def page(page: Page, voice: Voice, *, close: bool) -> list[bytes]:
    """A page as a response."""
    if close or len(page.body) > SHARED_BYTES_MAX:
        return response(statuses.answer(page, voice), close=close)
    return _shared_page(_head(200), page, voice)


@lru_cache(maxsize=1024)
def _shared_page(_: bytes, page: Page, voice: Voice) -> list[bytes]:
    """The bytes of a page for all who read it while the head of a response stays the same."""
    return response(statuses.answer(page, voice))


def stream_head(lines: str, *, chunked: bool) -> bytes:
    """The head of a response that goes on until the connection ends."""
    framing = "Transfer-Encoding: chunked\r\n" if chunked else ""
    return _head(200) + f"{lines}{framing}Connection: close\r\n\r\n".encode("latin-1")


def download_head(lines: str, length: int | None, *, chunked: bool, close: bool) -> bytes:
    """The head of a response that is sent piece by piece."""
    framing = f"Content-Length: {length}\r\n" if length is not None else ""
    framing += "Transfer-Encoding: chunked\r\n" if chunked else ""
    framing += "Connection: close\r\n" if close else ""
    return _head(200) + f"{lines}{framing}\r\n".encode("latin-1")


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)
