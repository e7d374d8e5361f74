"""From an answer to the bytes of a response. The headers that every response carries are rendered once a second."""

import time
from email.utils import formatdate
from http import HTTPStatus
from typing import TypeVar

from headwater import __version__
from headwater.http.wire import statuses
from headwater.http.wire.statuses import Answer, Dialect
from headwater.protocol import headers
from headwater.streams.replies import Appended, Page

SERVER, SERVER_AND_VERSION = "headwater", f"headwater/{__version__}"
PREFLIGHT_LINES = (
    f"{headers.ACCESS_CONTROL_ALLOW_METHODS.line}GET, HEAD, PUT, POST, DELETE, OPTIONS\r\n"
    f"{headers.ACCESS_CONTROL_ALLOW_HEADERS.line}{headers.ALLOWED}\r\n"
    f"{headers.ACCESS_CONTROL_MAX_AGE.line}86400\r\n"
)
CONTENT_TYPE = headers.CONTENT_TYPE.line
NO_STORE_LINE = f"{headers.CACHE_CONTROL.line}no-store\r\n"
JSON_LINES = f"{CONTENT_TYPE}application/json\r\n{NO_STORE_LINE}"
TEXT_LINES = f"{CONTENT_TYPE}text/plain; charset=utf-8\r\n{NO_STORE_LINE}"
CLOSE_LINE = f"{headers.CONNECTION.line}close\r\n"
CHUNKED_LINE = f"{headers.TRANSFER_ENCODING.line}chunked\r\n"
CONTENT_LENGTH = headers.CONTENT_LENGTH.line
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"

COPY_BYTES_MAX = 64 * 1024
"""Up to this size, copying a body after its head is cheaper than sending two parts."""

TEMPLATES_MAX = 256
"""How many responses of a kind have a template, which takes a kilobyte or two."""

_BODILESS = frozenset({204, 304})

K = TypeVar("K")


SANDBOX_LINES = f"{headers.CONTENT_SECURITY_POLICY.line}sandbox; default-src 'none'\r\n"
SANDBOX_LINES += f"{headers.REFERRER_POLICY.line}no-referrer\r\n"
"""A stream that is opened in a browser runs no scripts, and belongs to no origin."""


NOSNIFF_LINE = f"{headers.X_CONTENT_TYPE_OPTIONS.line}nosniff\r\n"


def body_lines(*, local: bool = False) -> str:
    """What browsers need in every response that may have a body."""
    return f"{headers.CROSS_ORIGIN_RESOURCE_POLICY.line}{'same-site' if local else 'cross-origin'}\r\n"


class Renderer:
    """Renders the responses of one server."""

    def __init__(self, *, local: bool = False, guarded: bool = False) -> None:
        self._server = SERVER if guarded else SERVER_AND_VERSION
        self._own_page_lines = body_lines(local=local)
        self._body_lines = self._own_page_lines + SANDBOX_LINES
        self._heads: dict[tuple[int, str], bytes] = {}
        """The first lines of a response by status and by what browsers may do with its body."""
        self.templates_until = 0.0
        """When the heads and templates are rendered anew, because of their date."""
        self._pages: dict[tuple[str, Dialect, bool, bool, bytes], bytes] = {}
        """Responses with a page and places for numbers, by content type and by whether they have data and records."""
        self._appends: dict[tuple[Dialect, bool, bool, bytes], bytes] = {}
        """The same for appends, by whether they have records and a producer."""

    def _head(self, status: int, policy_lines: str) -> bytes:
        now = time.monotonic()
        if now >= self.templates_until:
            self._heads.clear()
            self._pages.clear()
            self._appends.clear()
            self.templates_until = now + 1.0
        key = status, policy_lines
        head = self._heads.get(key)
        if head is None:
            text = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n{headers.SERVER.line}{self._server}\r\n"
            text += f"{headers.DATE.line}{formatdate(usegmt=True)}\r\n{NOSNIFF_LINE}{policy_lines}"
            head = self._heads[key] = text.encode("latin-1")
        return head

    def response(self, answer: Answer, *, close: bool = False, head_only: bool = False) -> list[bytes]:
        """A whole response in one part, or in two if the body is large; `head_only` leaves out the body, for HEAD."""
        policy_lines = self._own_page_lines if answer.is_page else self._body_lines
        if answer.is_empty or answer.status in _BODILESS:
            policy_lines = ""
        return _response(self._head(answer.status, policy_lines), answer, close, head_only)

    def appended(self, reply: Appended, dialect: Dialect, *, close: bool) -> tuple[int, list[bytes]]:
        """The status of an append and its response, as `response` renders it; the usual ones are made in one step."""
        if close or reply.closed:
            answer = statuses.appended(reply, dialect)
            return answer.status, self.response(answer, close=close)
        producer = reply.producer_epoch is not None
        template = self.append_template(dialect, records=reply.record is not None, producer=producer)
        return 200 if producer else 204, [template % statuses.append_numbers(reply)]

    def append_template(self, dialect: Dialect, *, records: bool, producer: bool, own_lines: bytes = b"") -> bytes:
        """The response to an append to a stream that stays open, with places for its numbers.

        `own_lines` are for the client alone: whether its origin may read.
        """
        head = self._head(200 if producer else 204, "")
        key = dialect, records, producer, own_lines
        template = self._appends.get(key)
        if template is None:
            lines = statuses.append_template(dialect, records=records, producer=producer)
            framing = f"{CONTENT_LENGTH}0\r\n" if producer else ""
            template = _template(head, lines, own_lines, f"{framing}\r\n")
            _keep(self._appends, key, template)
        return template

    def page(self, page: Page, dialect: Dialect, *, close: bool) -> list[bytes]:
        """A page as a response, as `response` renders it; the usual ones are made in one step."""
        body, start, next_offset, incarnation = page.body, page.start, page.next_offset, page.incarnation
        size = len(body)
        if close or page.closed or not page.up_to_date or page.record is not None or size >= COPY_BYTES_MAX:
            return _response(self._head(200, self._body_lines), statuses.answer(page, dialect), close, False)
        first, following = page.record_first, page.record_next
        template = self.page_template(page, dialect)
        if following is None:
            return [template % (next_offset, incarnation, incarnation, start, next_offset, size, body)]
        return [template % (next_offset, incarnation, incarnation, start, next_offset, first, following, size, body)]

    def page_template(self, page: Page, dialect: Dialect, own_lines: bytes = b"") -> bytes:
        """The response with a page that ends at the tail of an open stream, with places for what differs."""
        head = self._head(200, self._body_lines)
        if not dialect.by_origin:
            own_lines = b""  # A page says to all origins that they may read it.
        key = page.content_type, dialect, page.next_offset > page.start, page.record_next is not None, own_lines
        template = self._pages.get(key)
        if template is None:
            lines = statuses.page_template(page, dialect)
            template = _template(head, lines, own_lines, f"{CONTENT_LENGTH}%d\r\n\r\n%b")
            _keep(self._pages, key, template)
        return template

    def stream_head(self, lines: str, *, chunked: bool) -> bytes:
        """The head of a response that lasts until the connection ends."""
        framing = CHUNKED_LINE if chunked else ""
        return self._head(200, self._body_lines) + f"{lines}{framing}{CLOSE_LINE}\r\n".encode("latin-1")

    def download_head(self, lines: str, length: int | None, *, chunked: bool, close: bool) -> bytes:
        """The head of a response that is sent piece by piece."""
        framing = f"{CONTENT_LENGTH}{length}\r\n" if length is not None else ""
        framing += CHUNKED_LINE if chunked else ""
        framing += CLOSE_LINE if close else ""
        return self._head(200, self._body_lines) + f"{lines}{framing}\r\n".encode("latin-1")


def _template(head: bytes, lines: str, own_lines: bytes, framing: str) -> bytes:
    """A response with places for numbers, of which `lines` and `framing` already have some."""
    escaped = [part.replace(b"%", b"%%") for part in (head, own_lines)]
    return escaped[0] + lines.encode("latin-1") + escaped[1] + framing.encode("latin-1")


def _keep(templates: dict[K, bytes], key: K, template: bytes) -> None:
    if len(templates) >= TEMPLATES_MAX:
        templates.clear()
    templates[key] = template


def _response(head: bytes, answer: Answer, close: bool, head_only: bool) -> list[bytes]:
    status, lines, body = answer.status, answer.headers, answer.body
    if close:
        lines += CLOSE_LINE
    if status in _BODILESS or (head_only and not body):
        return [head + f"{lines}\r\n".encode("latin-1")]
    head += f"{lines}{CONTENT_LENGTH}{len(body)}\r\n\r\n".encode("latin-1")
    if head_only:
        return [head]
    return [head + body] if len(body) < COPY_BYTES_MAX else [head, body]


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)
