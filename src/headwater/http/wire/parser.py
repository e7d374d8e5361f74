"""The request parser: bytes of a connection in, whole requests out; the only file that uses the native parser.

llhttp (through httptools) refuses most malformed input. What it accepts although RFC 9112 does not, and what is too
large, is refused here. A refusal is final: the framing of the rest of the input is in doubt, so nothing more is read.
"""

from enum import Enum
from typing import Protocol

import httptools

from headwater.http.wire.heads import END, HEAD_BYTES_MAX, KnownHeads
from headwater.http.wire.requests import Request, head_problem, split_target
from headwater.http.wire.uploads import Upload
from headwater.protocol import headers as names
from headwater.protocol.headers import SINGULAR
from headwater.protocol.limits import APPEND_BYTES_MAX, HEADERS_BYTES_MAX, HEADERS_MAX, URI_BYTES_MAX
from headwater.protocol.refusals import Code

FRAMING_FACTOR_MAX = 16
"""How many bytes chunks may take on the wire for each byte they carry, besides what trailers may take."""

_CONNECTION, _CONTENT_LENGTH, _EXPECT = names.CONNECTION.key, names.CONTENT_LENGTH.key, names.EXPECT.key
_TRANSFER_ENCODING = names.TRANSFER_ENCODING.key


class Stage(Enum):
    """Which part of a request comes next."""

    IDLE = "idle"
    HEAD = "head"
    BODY = "body"


# Looking up an enum's member costs a function call each time; these names cost none.
IDLE, HEAD, BODY = Stage


class Owner(Protocol):
    """Receives what the parser has found."""

    def requested(self, request: Request) -> None:
        """A whole request has arrived."""

    def plan_body(self, method: bytes, path: bytes) -> "tuple[int, Upload | None]":
        """How large a body may be, and where it goes if it is not kept in memory."""

    def expects_continue(self) -> None:
        """The client waits for `100 Continue` before it sends its body."""

    def refuse(self, code: Code, detail: str) -> None:
        """The input is not a valid request, and nothing after it can be read."""


class RequestParser:
    """Parses the input of one connection; its `on_` methods are callbacks of the native parser."""

    __slots__ = (
        "_authority",
        "_body",
        "_body_bytes_max",
        "_chunks",
        "_headers",
        "_headers_bytes",
        "_heads",
        "_input",
        "_more_body",
        "_more_body_bytes",
        "_native",
        "_owner",
        "_path",
        "_query",
        "_raw_bytes",
        "_recalls",
        "_target",
        "_upgrade_body",
        "_upgrading",
        "_upload",
        "_uploaded_bytes",
        "refused",
        "stage",
    )

    def __init__(self, owner: Owner, heads: KnownHeads) -> None:
        self._owner, self._heads = owner, heads
        self._input: bytes | None = None
        self._recalls = True
        self._native: httptools.HttpRequestParser = httptools.HttpRequestParser(self)
        self.refused = False
        self._upgrading = False
        self._upgrade_body: tuple[int, bytes] | None = None
        self.on_message_begin()
        self.stage = IDLE

    def close(self) -> None:
        """Break the reference cycle with the native parser."""
        self.refused = True
        del self._native, self._owner

    def feed(self, data: bytes) -> None:
        """Take input; every request that it completes is handed over before this returns."""
        if self._upgrade_body is not None:
            self._read_upgrade_body(data)
            return
        stage = self.stage
        if stage is IDLE:
            if self._recalls and not (data := self._recall(data)):
                return
            self._input = data
        try:
            self._native.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if not self.refused:
                self._pass_over_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserError as error:
            self._refuse(Code.BAD_REQUEST, f"The request is not valid HTTP/1.1: {str(error)[:100]}.")
        if stage is self.stage and stage is not IDLE:
            self._bound_raw_bytes(len(data))

    def _recall(self, data: bytes) -> bytes:
        """Hand over whole requests with known heads from the beginning of the input; returns what is left."""
        at, size = 0, len(data)
        while at < size and not self.refused:
            end = data.find(END, at, at + HEAD_BYTES_MAX) + len(END)
            head = self._heads.find(data[at:end])
            if head is None or end + head.body_bytes > size:
                return data[at:]
            request, body_bytes = head
            at = end + body_bytes
            self._owner.requested(request.with_body(data[end:at]) if body_bytes else request)
        return b""

    def _bound_raw_bytes(self, size: int) -> None:
        """Bound what the native parser buffers silently: a header until it is whole, and chunk extensions."""
        self._raw_bytes += size
        if self.stage is HEAD:
            if self._raw_bytes > HEADERS_BYTES_MAX + URI_BYTES_MAX:
                self._refuse_headers()
            return
        body_bytes = self._uploaded_bytes + len(self._body)
        body_bytes += self._more_body_bytes if self._more_body is not None else 0
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
        self._more_body: list[bytes] | None = None
        self._upload: Upload | None = None
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
        native, headers = self._native, self._headers
        method = native.get_method()
        self._upgrading = native.should_upgrade()
        if self._upgrading and (_TRANSFER_ENCODING in headers or method == b"CONNECT"):
            self._refuse(Code.BAD_REQUEST, "This server only supports HTTP/1.1 and no upgrades; send a plain request.")
            return
        version = native.get_http_version()
        self._chunks = version == "1.1"
        problem = head_problem(version, self._target, headers)
        if problem is not None:
            self._refuse(Code.BAD_REQUEST, problem)
            return
        self._upload = None
        self._body_bytes_max = APPEND_BYTES_MAX
        self._authority, self._path, self._query = split_target(self._target)
        if method != b"GET":
            # A route may take larger bodies than others, or upload them as they arrive.
            self._body_bytes_max, self._upload = self._owner.plan_body(method, self._path)
        if _CONTENT_LENGTH in headers and int(headers[_CONTENT_LENGTH]) > self._body_bytes_max:
            self._refuse_body()
        elif _EXPECT in headers and self._chunks and headers[_EXPECT].lower() == b"100-continue":
            self._owner.expects_continue()

    def on_body(self, body: bytes) -> None:
        if self.refused:
            return
        if self._upload is not None:
            self._uploaded_bytes += len(body)
            if self._uploaded_bytes > self._body_bytes_max:
                self._refuse_body()
            else:
                self._upload.write(body)
        elif not self._body:
            self._body = body
        elif self._more_body is None:
            self._more_body = [body]
            self._more_body_bytes = len(body)
        else:
            self._more_body.append(body)
            self._more_body_bytes += len(body)
            if len(self._body) + self._more_body_bytes > self._body_bytes_max:
                self._refuse_body()

    def on_message_complete(self) -> None:
        if not (self.refused or self._upgrading):
            native = self._native
            self._hand_over(native.get_method(), native.should_keep_alive())

    def _hand_over(self, method: bytes, keep_alive: bool) -> None:
        self.stage = IDLE
        body = self._body
        if self._more_body is not None:
            body = b"".join([body, *self._more_body])
        request = Request(
            method,
            self._authority,
            self._path,
            self._query,
            self._headers,
            body,
            keep_alive,
            self._chunks,
            self._upload,
        )
        # A client whose head was not worth learning will send another such head. And the native parser takes nothing
        # after a last request.
        if self._input is not None:
            self._recalls = self._heads.learn(self._input, request)
            self._input = None
        elif not keep_alive:
            self._recalls = False
        self._owner.requested(request)

    # -- Offers to upgrade ----------------------------------------------------------------------------------------

    def _pass_over_upgrade(self, rest: bytes) -> None:
        """Answer in HTTP/1.1 to a client that offers an upgrade to HTTP/2 in its first request.

        The native parser stops at the head of such a request and would take its body for the next request. So the body
        is read here, and a new native parser continues after it.
        """
        method = self._native.get_method()
        self._native = httptools.HttpRequestParser(self)
        self._upgrade_body = int(self._headers.get(_CONTENT_LENGTH, b"0")), method
        self._read_upgrade_body(rest)

    def _read_upgrade_body(self, data: bytes) -> None:
        assert self._upgrade_body is not None
        left, method = self._upgrade_body
        if data[:left]:
            self.on_body(data[:left])
        self._upgrade_body = left - len(data[:left]), method
        if left <= len(data):
            self._upgrade_body = None
            self._hand_over(method, b"close" not in self._headers[_CONNECTION].lower())
            if len(data) > left:
                self.feed(data[left:])

    # -- Refusing -------------------------------------------------------------------------------------------------

    def _refuse(self, code: Code, detail: str) -> None:
        if not self.refused:
            self.refused = True
            self._owner.refuse(code, detail)

    def _refuse_headers(self) -> None:
        detail = f"The headers exceed {HEADERS_BYTES_MAX} bytes in total or {HEADERS_MAX} in number."
        self._refuse(Code.HEADERS_TOO_LARGE, detail)

    def _refuse_body(self) -> None:
        self._refuse(Code.TOO_LARGE, f"The body is larger than {self._body_bytes_max} bytes, the limit for this URL.")
