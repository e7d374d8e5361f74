"""The request parser: bytes of a connection in, whole requests out; the only file that uses the native parser.

llhttp (through httptools) refuses most malformed input. What it accepts although RFC 9112 does not, and what is too
large, is refused here. A refusal is final: the framing of the rest of the input is in doubt, so nothing more is read.

Nearly all requests are of a simple form that `heads` parses; the native parser gets what is left.

The native parser cannot say where in its input a request ends. So it gets the input cut where heads and bodies end:
each request is then charged with its own bytes only, and none is read that the owner has no room for. The cuts decide
nothing else; wherever they are, the native parser finds the same requests.
"""

import re
from typing import Any, Protocol

import httptools

from headwater.http.wire.browsers import Hosts
from headwater.http.wire.ends import EMPTY_LINE, ChunkedBody, end_of_lines
from headwater.http.wire.heads import Heads
from headwater.http.wire.intakes import SMALL_BODY_BYTES, Intake
from headwater.http.wire.requests import Request, head_problem, split_target
from headwater.http.wire.stages import BODY, HEAD, IDLE
from headwater.http.wire.uploads import Upload
from headwater.protocol import headers as names
from headwater.protocol.headers import SINGULAR
from headwater.protocol.limits import APPEND_BYTES_MAX, HEADERS_BYTES_MAX, HEADERS_MAX, URI_BYTES_MAX
from headwater.protocol.refusals import Code, Refusal

FRAMING_FACTOR_MAX = 16
"""How many bytes chunks may take on the wire for each byte they carry, besides what trailers may take."""
TURN_BYTES = 16 * 1024
"""How much input is parsed in one turn of the event loop, besides plain bodies: at worst three thousand tiny chunks."""
UNFINISHED_HEAD_BYTES_MAX = URI_BYTES_MAX + HEADERS_BYTES_MAX + 16 * HEADERS_MAX
"""How long a head may become before it ends: the longest target, the largest headers, and what separates them."""

_CONNECTION, _CONTENT_LENGTH, _EXPECT = names.CONNECTION.key, names.CONTENT_LENGTH.key, names.EXPECT.key
_TRANSFER_ENCODING = names.TRANSFER_ENCODING.key
_EMPTY_LINES = re.compile(rb"[\r\n]+")
_G = ord("G")


class Owner(Protocol):
    """Receives what the parser has found."""

    def requested(self, request: Request) -> None:
        """A whole request has arrived."""

    def take(self, request: Request) -> bool:
        """A whole request with a plain head has arrived; returns whether it is taken, as a body in memory can be."""

    def plan_body(self, method: bytes, path: bytes) -> tuple[int, Intake | None] | Refusal:
        """How large a body may be, and its intake, if it does not simply go to memory; or why none is read."""

    def begin_body(self, head: Request, size: int | None, *, expects_continue: bool) -> Intake | None:
        """A large body is about to come, or the client waits for `100 Continue`; returns its intake if it is taken."""

    def refuse(self, code: Code, detail: str) -> None:
        """The input is not a valid request, and nothing after it can be read."""


class RequestParser:
    """Parses the input of one connection; its `on_` methods are callbacks of the native parser."""

    __slots__ = (
        "_authority",
        "_begun",
        "_body",
        "_body_bytes_left",
        "_body_bytes_max",
        "_chunked_body",
        "_chunks",
        "_headers",
        "_headers_bytes",
        "_heads",
        "_hosts",
        "_intake",
        "_more_body",
        "_native",
        "_owner",
        "_path",
        "_query",
        "_raw_bytes",
        "_target",
        "_upgrading_method",
        "_upload",
        "_uploaded_bytes",
        "full",
        "plain",
        "read_form",
        "refused",
        "rest",
        "stage",
        "write_form",
    )

    def __init__(self, owner: Owner, heads: Heads, hosts: Hosts | None = None) -> None:
        self._owner, self._heads, self._hosts = owner, heads, hosts
        self.read_form: Any = None
        self.write_form: Any = None
        """The forms of the last heads; those of reads have other headers."""
        self.plain = True
        """Whether the next head may be plain: the native parser takes nothing after a last request."""
        self._native: httptools.HttpRequestParser = httptools.HttpRequestParser(self)
        self.refused = False
        self.full = False
        """Set by the owner while it has no room for another request."""
        self.rest = b""
        """Input that has arrived and waits for that room, or for another turn; `feed` continues with it."""
        self._upgrading_method: bytes | None = None
        self.on_message_begin()
        self.stage = IDLE

    def stop(self) -> None:
        """Read nothing more."""
        self.refused = True
        self.rest = b""
        self._release_body()

    def close(self) -> None:
        """Break the reference cycle with the native parser."""
        self.stop()
        del self._native, self._owner

    def feed(self, data: bytes) -> None:
        """Take input, after what is left of earlier input; hand over the requests in it, as far as `rest` allows."""
        if self.rest:
            data, self.rest = self.rest + data, b""
        at, size = 0, len(data)
        if size > TURN_BYTES and size > self._body_bytes_left:
            size = max(TURN_BYTES, self._body_bytes_left)
            data, self.rest = data[:size], data[size:]
        while at < size and not self.refused:
            stage = self.stage
            if stage is IDLE:
                if self.plain and (at := self._take_plain(data, at)) == size:
                    return
                if self.full:
                    self.rest = data[at:] + self.rest
                    return
            end = self._cut(data, at)
            piece = data[at:end] if end - at < size else data
            at = end
            if stage is BODY and self._upgrading_method is not None:
                self.on_body(piece)
            else:
                self._feed_native(piece)
            if self.stage is HEAD or (stage is BODY and self.stage is BODY):
                self._bound_raw_bytes(len(piece))
            if self._upgrading_method is not None and not self._body_bytes_left:
                self._finish_upgrading()

    def _take_plain(self, data: bytes, at: int) -> int:
        """Hand over whole requests with plain heads from a position of the input on; returns where they end."""
        size = len(data)
        while at < size and not (self.refused or self.full):
            reads = data[at] == _G
            head = self._heads.parse(data, at, self.read_form if reads else self.write_form)
            if head is None:
                return at
            if reads:
                self.read_form = head.form
            else:
                self.write_form = head.form
            end = head.body_at + head.body_bytes
            if end > size:
                return at
            body = data[head.body_at : end] if head.body_bytes else b""
            if not self._owner.take(Request(head.method, b"", head.path, head.query, head.headers, body, True, True)):
                return at
            at = end
        return size if self.refused else at

    def _cut(self, data: bytes, at: int) -> int:
        """Where to cut the input that begins at a position: at most one request ends before, and then exactly there."""
        if self.stage is IDLE:
            if data[at] in b"\r\n" and (empty := _EMPTY_LINES.match(data, at)):
                return empty.end()
            end = data.find(EMPTY_LINE, at)
            return len(data) if end < 0 else end + len(EMPTY_LINE)
        if self._body_bytes_left:
            end = min(at + self._body_bytes_left, len(data))
            self._body_bytes_left -= end - at
            return end
        if self._chunked_body is not None:
            return self._chunked_body.end(data, at)
        return end_of_lines(data, at)

    def _feed_native(self, piece: bytes) -> None:
        try:
            self._native.feed_data(piece)
        except httptools.HttpParserUpgrade:
            if not self.refused:
                # It stops at the head and would take the body for the next request; a new one continues after the body.
                self._upgrading_method = self._native.get_method()
                self._native = httptools.HttpRequestParser(self)
        except httptools.HttpParserError as error:
            self._refuse(Code.BAD_REQUEST, f"The request is not valid HTTP/1.1: {str(error)[:100]}.")

    def _bound_raw_bytes(self, size: int) -> None:
        """Bound what the native parser buffers silently: a header until it is whole, and chunk extensions."""
        self._raw_bytes += size
        if self.stage is HEAD:
            if self._raw_bytes > UNFINISHED_HEAD_BYTES_MAX:
                self._refuse_headers()
            return
        body_bytes = self._uploaded_bytes + len(self._body) + len(self._more_body or b"")
        if self._raw_bytes > FRAMING_FACTOR_MAX * body_bytes + HEADERS_BYTES_MAX:
            self._refuse(Code.BAD_REQUEST, "The chunk framing takes far more bytes than the body; send larger chunks.")

    # -- Callbacks of the native parser ---------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self.stage = HEAD
        self._target = b""
        self._headers: dict[bytes, bytes] = {}
        self._headers_bytes = 0
        self._raw_bytes = 0
        self._body = b""
        self._body_bytes_left = 0
        self._chunked_body: ChunkedBody | None = None
        self._more_body: bytearray | None = None
        self._upload: Upload | None = None
        self._intake: Intake | None = None
        self._begun = False
        self._uploaded_bytes = 0

    def on_url(self, url: bytes) -> None:
        self._target = self._target + url if self._target else url
        if len(self._target) > URI_BYTES_MAX:
            self._refuse(Code.URI_TOO_LONG, f"The request target is longer than {URI_BYTES_MAX} bytes.")

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.stage is not HEAD:
            return  # A trailer: it comes too late to mean anything.
        name = name.lower()
        headers = self._headers
        if name in headers:
            if name in SINGULAR:
                self._refuse(Code.INVALID_HEADER, f"The header {name.decode('latin-1')} appears twice; send it once.")
            value = headers[name] + b", " + value
        headers[name] = value
        self._headers_bytes += len(name) + len(value)
        if self._headers_bytes > HEADERS_BYTES_MAX or len(headers) > HEADERS_MAX:
            self._refuse_headers()

    def on_headers_complete(self) -> None:
        self.stage = BODY
        self._raw_bytes = 0
        native, headers = self._native, self._headers
        method = native.get_method()
        if native.should_upgrade() and (_TRANSFER_ENCODING in headers or method == b"CONNECT"):
            self._refuse(Code.BAD_REQUEST, "This server only supports HTTP/1.1 and no upgrades; send a plain request.")
            return
        version = native.get_http_version()
        self._chunks = version == "1.1"
        problem = head_problem(version, self._target, headers)
        if problem is not None:
            self._refuse(Code.BAD_REQUEST, problem)
            return
        self._body_bytes_max = APPEND_BYTES_MAX
        self._authority, self._path, self._query = split_target(self._target)
        if self._hosts is not None and (refusal := self._hosts.refuse(self._authority, headers)) is not None:
            self._refuse(refusal.code, refusal.detail)
            return
        if method != b"GET":
            # A route may take larger bodies than others, or upload them as they arrive.
            planned = self._owner.plan_body(method, self._path)
            if isinstance(planned, Refusal):
                self._refuse(planned.code, planned.detail)
                return
            self._body_bytes_max, self._intake = planned
            if isinstance(self._intake, Upload):
                self._upload = self._intake
        if _CONTENT_LENGTH in headers:
            self._body_bytes_left = int(headers[_CONTENT_LENGTH])
        elif _TRANSFER_ENCODING in headers:
            self._chunked_body = ChunkedBody()
        size = self._body_bytes_left
        expects_continue = _EXPECT in headers and self._chunks and headers[_EXPECT].lower() == b"100-continue"
        if size > self._body_bytes_max:
            self._refuse_body()
        elif size > SMALL_BODY_BYTES or expects_continue:
            self._begin_body(method, None if self._chunked_body else size, expects_continue=expects_continue)

    def _begin_body(self, method: bytes, size: int | None, *, expects_continue: bool = False) -> None:
        self._begun = True
        head = Request(method, self._authority, self._path, self._query, self._headers, b"", False, self._chunks)
        self._intake = self._owner.begin_body(head, size, expects_continue=expects_continue)

    def on_body(self, body: bytes) -> None:
        if self.refused:
            return
        if self._upload is not None:
            self._uploaded_bytes += len(body)
            size = self._uploaded_bytes
            self._upload.write(body)
        elif not self._body:
            self._body = body
            size = len(body)
        else:
            # Not a list of pieces: a hostile client can make them as small as a byte.
            if self._more_body is None:
                self._more_body = bytearray()
            self._more_body += body
            size = len(self._body) + len(self._more_body)
        if size > SMALL_BODY_BYTES:
            self._receive_more(size)

    def _receive_more(self, size: int) -> None:
        """A large body has grown; one without a length is judged, and takes memory, as it does."""
        if size > self._body_bytes_max:
            self._refuse_body()
        elif not self._begun:
            self._begin_body(self._native.get_method(), None)
        elif self._intake is not None and not self._intake.extend(size):
            self._refuse(Code.OVERLOADED, "There is no memory left for the body; try again in a second.")

    def on_message_complete(self) -> None:
        native = self._native
        if not (self.refused or native.should_upgrade()):
            self._hand_over(native.get_method(), native.should_keep_alive())

    def _hand_over(self, method: bytes, keep_alive: bool) -> None:
        self.stage = IDLE
        body = self._body
        if self._more_body is not None:
            body = b"".join((body, self._more_body))
        request = Request(
            method,
            self._authority,
            self._path,
            self._query,
            self._headers,
            body,
            keep_alive,
            self._chunks,
            self._intake,
        )
        self.plain = keep_alive
        self._release_body()
        self._owner.requested(request)

    def _release_body(self) -> None:
        """Release the body: from here on, the request's owner decides how long it stays in memory."""
        self._body = b""
        self._more_body = self._upload = self._intake = None

    def _finish_upgrading(self) -> None:
        """Answer in HTTP/1.1 to a client that offered an upgrade to HTTP/2."""
        method, self._upgrading_method = self._upgrading_method, None
        if method is not None and not self.refused:
            self._hand_over(method, b"close" not in self._headers[_CONNECTION].lower())

    # -- Refusing -------------------------------------------------------------------------------------------------

    def _refuse(self, code: Code, detail: str) -> None:
        if not self.refused:
            self.stop()
            self._owner.refuse(code, detail)

    def _refuse_headers(self) -> None:
        detail = f"The headers exceed {HEADERS_BYTES_MAX} bytes in total or {HEADERS_MAX} in number."
        self._refuse(Code.HEADERS_TOO_LARGE, detail)

    def _refuse_body(self) -> None:
        self._refuse(Code.TOO_LARGE, f"The body is larger than {self._body_bytes_max} bytes, the limit for this URL.")
