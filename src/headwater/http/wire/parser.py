"""The reader: bytes of a connection in, whole requests out; the only file that knows the native parser.

llhttp (through httptools) refuses most of what is malformed. What it lets through and RFC 9112 does not, and what is
too large, is refused here. A refusal is final: how the rest of the input is framed is in doubt then, so nothing more is
read.
"""

from enum import Enum
from typing import Protocol

import httptools

from headwater.http.wire.heads import END, HEAD_BYTES_MAX, KnownHeads
from headwater.http.wire.requests import Request, head_problem, split_target
from headwater.http.wire.uploads import Upload
from headwater.protocol.headers import SINGULAR
from headwater.protocol.limits import APPEND_BYTES_MAX, HEADERS_BYTES_MAX, HEADERS_MAX, URI_BYTES_MAX
from headwater.protocol.refusals import Code

FRAMING_FACTOR_MAX = 16
"""What chunks may take on the wire for each byte they carry, beside what trailers may take."""


class Stage(Enum):
    """Which part of a request comes next."""

    IDLE = "idle"
    HEAD = "head"
    BODY = "body"


# An enum's members cost a function call each time they are looked up; these do not.
IDLE, HEAD, BODY = Stage


class Owner(Protocol):
    """Whom a reader tells of what it has read."""

    def requested(self, request: Request) -> None:
        """A whole request has arrived."""

    def plan_body(self, method: bytes, path: bytes) -> "tuple[int, Upload | None]":
        """How large a body may be, and where it goes if it is not to be kept in memory."""

    def expects_continue(self) -> None:
        """The client waits for leave to send its body."""

    def refuse(self, code: Code, detail: str) -> None:
        """What arrived cannot be answered as it is, and nothing after it can be read."""


class RequestReader:
    """Parses one connection's input; its `on_` methods are the parser's callbacks."""

    __slots__ = (
        "_body",
        "_body_bytes_max",
        "_chunks",
        "_headers",
        "_headers_bytes",
        "_heads",
        "_input",
        "_more_body",
        "_more_body_bytes",
        "_owner",
        "_parser",
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
        self._parser: httptools.HttpRequestParser = httptools.HttpRequestParser(self)
        self.refused = False
        self._upgrading = False
        self._upgrade_body: tuple[int, bytes] | None = None
        self.on_message_begin()
        self.stage = IDLE

    def close(self) -> None:
        """Break the cycle with the parser."""
        self.refused = True
        del self._parser, self._owner

    def feed(self, data: bytes) -> None:
        """Take what has arrived; requests that are whole by now have been handed over when this returns."""
        if self._upgrade_body is not None:
            self._read_upgrade_body(data)
            return
        stage = self.stage
        if stage is IDLE:
            if self._recalls and not (data := self._recall(data)):
                return
            self._input = data
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if not self.refused:
                self._pass_over_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserError as error:
            self._refuse(Code.BAD_REQUEST, f"The request is not HTTP/1.1: {str(error)[:100]}.")
        if stage is self.stage and stage is not IDLE:
            self._bound_raw_bytes(len(data))

    def _recall(self, data: bytes) -> bytes:
        """Hand over the whole requests at the beginning of the input whose heads are known; returns what is left."""
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
        """The parser tells of a header only when it is whole, of chunk extensions never: count what it swallows."""
        self._raw_bytes += size
        if self.stage is HEAD:
            if self._raw_bytes > HEADERS_BYTES_MAX + URI_BYTES_MAX:
                self._refuse_headers()
            return
        body_bytes = self._uploaded_bytes + len(self._body)
        body_bytes += self._more_body_bytes if self._more_body is not None else 0
        if self._raw_bytes > FRAMING_FACTOR_MAX * body_bytes + HEADERS_BYTES_MAX:
            self._refuse(Code.BAD_REQUEST, "The framing of the body takes more bytes than the body.")

    # -- The parser's callbacks -----------------------------------------------------------------------------------

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
            return  # A trailer: whatever it says, it says too late.
        name = name.lower()
        headers = self._headers
        if name in headers:
            if name in SINGULAR:
                self._refuse(Code.INVALID_HEADER, f"The header {name.decode('latin-1')} is given twice.")
            value = headers[name] + b", " + value
        headers[name] = value
        self._headers_bytes += len(name) + len(value)
        if self._headers_bytes > HEADERS_BYTES_MAX or len(headers) > HEADERS_MAX:
            self._refuse_headers()

    def on_headers_complete(self) -> None:
        self.stage = BODY
        parser, headers = self._parser, self._headers
        self._upgrading = parser.should_upgrade()
        if self._upgrading and (b"transfer-encoding" in headers or parser.get_method() == b"CONNECT"):
            self._refuse(Code.BAD_REQUEST, "This server speaks HTTP/1.1 and upgrades to nothing else.")
            return
        version = parser.get_http_version()
        self._chunks = version == "1.1"
        problem = head_problem(version, self._target, headers)
        if problem is not None:
            self._refuse(Code.BAD_REQUEST, problem)
            return
        self._upload = None
        self._body_bytes_max = APPEND_BYTES_MAX
        target = self._target
        if b"/snapshot" in target or b"/append-batch" in target or b"/__headwater/" in target or b"%" in target:
            self._plan_body(parser.get_method())
        if b"content-length" in headers and int(headers[b"content-length"]) > self._body_bytes_max:
            self._refuse_body()
        elif b"expect" in headers and self._chunks and headers[b"expect"].lower() == b"100-continue":
            self._owner.expects_continue()

    def _plan_body(self, method: bytes) -> None:
        """Some resources take larger bodies, and a snapshot's goes to its blob as it arrives."""
        self._body_bytes_max, self._upload = self._owner.plan_body(method, split_target(self._target)[1])

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
            parser = self._parser
            self._hand_over(parser.get_method(), parser.should_keep_alive())

    def _hand_over(self, method: bytes, keep_alive: bool) -> None:
        self.stage = IDLE
        body = self._body
        if self._more_body is not None:
            body = b"".join([body, *self._more_body])
        authority, path, query = split_target(self._target)
        request = Request(method, authority, path, query, self._headers, body, keep_alive, self._chunks, self._upload)
        # Whose head was new will come with a new one again; and the parser takes nothing after a last request.
        if self._input is not None:
            self._recalls = self._heads.learn(self._input, request)
            self._input = None
        elif not keep_alive:
            self._recalls = False
        self._owner.requested(request)

    # -- Offers to upgrade ----------------------------------------------------------------------------------------

    def _pass_over_upgrade(self, rest: bytes) -> None:
        """Some clients offer HTTP/2 in their first request, and are answered in HTTP/1.1.

        The parser stops at the head of such a request and would take its body for the next request, so the body is read
        here, and a new parser goes on behind it.
        """
        method = self._parser.get_method()
        self._parser = httptools.HttpRequestParser(self)
        self._upgrade_body = int(self._headers.get(b"content-length", b"0")), method
        self._read_upgrade_body(rest)

    def _read_upgrade_body(self, data: bytes) -> None:
        assert self._upgrade_body is not None
        left, method = self._upgrade_body
        if data[:left]:
            self.on_body(data[:left])
        self._upgrade_body = left - len(data[:left]), method
        if left <= len(data):
            self._upgrade_body = None
            self._hand_over(method, b"close" not in self._headers[b"connection"].lower())
            if len(data) > left:
                self.feed(data[left:])

    # -- Refusing -------------------------------------------------------------------------------------------------

    def _refuse(self, code: Code, detail: str) -> None:
        if not self.refused:
            self.refused = True
            self._owner.refuse(code, detail)

    def _refuse_headers(self) -> None:
        detail = f"The headers are larger than {HEADERS_BYTES_MAX} bytes or more than {HEADERS_MAX}."
        self._refuse(Code.HEADERS_TOO_LARGE, detail)

    def _refuse_body(self) -> None:
        self._refuse(
            Code.TOO_LARGE, f"The body is larger than {self._body_bytes_max} bytes, the most it may have here."
        )
