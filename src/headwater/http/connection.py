"""A connection: bytes in, requests out of the native parser, responses back in order.

The parser refuses what is malformed; what it lets through and RFC 9112 does not, or what is too large or too slow, is
refused here. After a refusal that leaves the rest of the input in doubt the connection says so and closes, cleanly: it
reads on for a moment, so that the client gets to see the answer instead of a reset.
"""

import asyncio
from collections import deque
from enum import Enum
from typing import TYPE_CHECKING, cast

import httptools

from headwater.http import rendering
from headwater.http.exchanges import Exchange, Kind
from headwater.http.live import LiveRead, LongPoll, SseRead
from headwater.http.requests import NOTHING, Request, head_problem, split_target
from headwater.http.routes import dispatch
from headwater.protocol.limits import APPEND_BYTES_MAX, HEADERS_BYTES_MAX, HEADERS_MAX, URI_BYTES_MAX
from headwater.protocol.refusals import Code, Refusal
from headwater.protocol.replies import Page

if TYPE_CHECKING:
    from headwater.http.server import Server

PIPELINE_MAX = 64
"""Unanswered requests on one connection before it is read no further."""
WRITE_BUFFER_BYTES = 256 * 1024
"""Unsent bytes on one connection before nothing more is written to it."""
LINGER_SECONDS = 2.0
LINGER_BYTES_MAX = 64 * 1024 * 1024
"""How long and how much a refused client may go on sending."""
_FOREVER = float("inf")


class Stage(Enum):
    """Which part of a request comes next."""

    IDLE = "idle"
    HEAD = "head"
    BODY = "body"


class Connection(asyncio.Protocol):
    """One client; `deadline` is when the server loses patience with it."""

    def __init__(self, server: "Server") -> None:
        self.server = server
        self.deadline = server.now + server.settings.header_seconds
        self.write_paused = False
        self.chunked = True
        self.sse_seconds = server.settings.sse_seconds
        self.heartbeat_seconds = server.settings.heartbeat_seconds
        self.long_poll_seconds = server.settings.long_poll_seconds
        self._transport: asyncio.Transport
        self._parser: httptools.HttpRequestParser = httptools.HttpRequestParser(self)
        self._exchanges: deque[Exchange] = deque()
        self._live: dict[Exchange, LiveRead] = {}
        self._sse: SseRead | None = None
        self._reading_paused = False
        self._refused = False
        self._lingered_bytes = 0
        self._owes_continue = False
        self._stage = Stage.IDLE
        self.on_message_begin()
        self._stage = Stage.IDLE

    # -- The transport's side -------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        if not self.server.admit(self):
            self._refuse(Code.OVERLOADED, "Too many connections are open; try again in a second.")

    def connection_lost(self, exc: Exception | None) -> None:
        self.server.forget(self)
        for live in list(self._live.values()):
            live.abandon()
        # Break every cycle, so that nothing of this connection waits for the collector.
        self._live.clear()
        self._exchanges.clear()
        self._sse = None
        del self._parser

    def data_received(self, data: bytes) -> None:
        if self._refused:
            self._linger(len(data))
            return
        stage = self._stage
        if stage is Stage.IDLE:
            self.deadline = self.server.now + self.server.settings.header_seconds
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._refuse_upgrade()
        except httptools.HttpParserError as error:
            self._refuse(Code.BAD_REQUEST, f"The request is not HTTP/1.1: {str(error)[:100]}.")
        if stage is self._stage and stage is not Stage.IDLE:
            self._bound_raw_bytes(len(data))

    def _bound_raw_bytes(self, size: int) -> None:
        """The parser tells of a header only when it is whole, and of chunk extensions never: count what it swallows."""
        self._raw_bytes += size
        if self._stage is Stage.HEAD and self._raw_bytes > HEADERS_BYTES_MAX + URI_BYTES_MAX:
            self._refuse_headers()
        elif self._raw_bytes > 2 * APPEND_BYTES_MAX:
            self._refuse_body()

    def eof_received(self) -> bool:
        """The client sends no more; stay for what it still waits for, unless that never ends."""
        if not self._exchanges or self._live or self._refused:
            return False
        self._exchanges[-1].close = True
        return True

    def pause_writing(self) -> None:
        self.write_paused = True
        self.deadline = self.server.now + self.server.settings.slow_reader_seconds
        self._balance_reading()

    def resume_writing(self) -> None:
        self.write_paused = False
        self.deadline = _FOREVER if self._exchanges else self.server.now + self.server.settings.idle_seconds
        self._balance_reading()
        for live in list(self._live.values()):
            live.resume()

    def _balance_reading(self) -> None:
        paused = self.write_paused or len(self._exchanges) >= PIPELINE_MAX or self._sse is not None
        if paused != self._reading_paused and not self._transport.is_closing():
            self._reading_paused = paused
            if paused:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    # -- The parser's side ----------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._stage = Stage.HEAD
        self._target = b""
        self._headers: dict[bytes, bytes] = {}
        self._headers_bytes = 0
        self._raw_bytes = 0
        self._body: list[bytes] = []
        self._body_bytes = 0

    def on_url(self, url: bytes) -> None:
        self._target = self._target + url if self._target else url
        if len(self._target) > URI_BYTES_MAX:
            self._refuse(Code.URI_TOO_LONG, f"The request target is longer than {URI_BYTES_MAX} bytes.")

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._stage is not Stage.HEAD:
            return  # A trailer: whatever it says, it says too late.
        name = name.lower()
        headers = self._headers
        headers[name] = value if name not in headers else headers[name] + b", " + value
        self._headers_bytes += len(name) + len(value)
        if self._headers_bytes > HEADERS_BYTES_MAX or len(headers) > HEADERS_MAX:
            self._refuse_headers()

    def on_headers_complete(self) -> None:
        self._stage = Stage.BODY
        headers, parser = self._headers, self._parser
        if parser.should_upgrade():
            self._refuse_upgrade()
            return
        version = parser.get_http_version()
        problem = head_problem(version, self._target, headers)
        if problem is not None:
            self._refuse(Code.BAD_REQUEST, problem)
        elif b"content-length" in headers and int(headers[b"content-length"]) > APPEND_BYTES_MAX:
            self._refuse_body()
        elif b"expect" in headers and headers[b"expect"].lower() == b"100-continue" and version == "1.1":
            self._owes_continue = True
            self._continue()

    def _continue(self) -> None:
        if self._owes_continue and not self._exchanges:
            self._owes_continue = False
            self._transport.write(rendering.CONTINUE)

    def on_body(self, body: bytes) -> None:
        if self._refused:
            return
        self._body.append(body)
        self._body_bytes += len(body)
        self.deadline = self.server.now + self.server.settings.body_seconds
        if self._body_bytes > APPEND_BYTES_MAX:
            self._refuse_body()

    def on_message_complete(self) -> None:
        if self._refused:
            return
        self._stage, self._owes_continue = Stage.IDLE, False
        self.deadline = _FOREVER
        parser, body = self._parser, self._body
        method = parser.get_method()
        path, query = split_target(self._target)
        request = Request(method, path, query, self._headers, body[0] if len(body) == 1 else b"".join(body))
        exchange = Exchange(self, request, close=self.server.draining or not parser.should_keep_alive())
        self.chunked = parser.get_http_version() == "1.1"
        self._exchanges.append(exchange)
        if len(self._exchanges) >= PIPELINE_MAX:
            self._balance_reading()
        try:
            dispatch(request, exchange)
        except Exception:
            exchange.fail()

    # -- Exchanges ------------------------------------------------------------------------------------------------

    def may_start(self, exchange: Exchange) -> bool:
        """Whether nothing before this exchange holds it up."""
        exchanges = self._exchanges
        if exchanges[0] is exchange:
            return True
        for other in self._exchanges:
            if other is exchange:
                return True
            if other.response is None and (
                other.kind is Kind.FORK or (other.kind is Kind.WRITE and exchange.kind is Kind.READ)
            ):
                return False
        return True

    def finished(self, exchange: Exchange) -> None:
        """Send what has become sendable, and start what has waited for it."""
        exchanges = self._exchanges
        if not exchanges:
            return
        if len(exchanges) == 1:
            if self._sse is None and exchange.response is not None:
                exchanges.popleft()
                self._transport.write(exchange.response)
                self._after_response(exchange)
            return
        for waiting in tuple(exchanges):
            if waiting.start is not None and self.may_start(waiting):
                start, waiting.start = waiting.start, None
                try:
                    start()
                except Exception:
                    waiting.fail()
        self._send_finished()

    def _send_finished(self) -> None:
        exchanges, out = self._exchanges, []
        last = None
        while exchanges and exchanges[0].response is not None:
            last = exchanges.popleft()
            assert last.response is not None
            out.append(last.response)
            if last.close:
                break
        if last is not None:
            self._transport.write(b"".join(out))
            self._after_response(last)

    def _after_response(self, exchange: Exchange) -> None:
        self._live.pop(exchange, None)
        if exchange.close:
            self._exchanges.clear()
            if self._refused:
                self._transport.write_eof()
            else:
                self._transport.close()
            return
        if self._reading_paused:
            self._balance_reading()
        if not self._exchanges:
            if self._owes_continue:
                self._continue()
            if self._stage is Stage.IDLE and not self.write_paused:
                self.deadline = self.server.now + self.server.settings.idle_seconds
        elif self._sse is None and isinstance(live := self._live.get(self._exchanges[0]), SseRead):
            self._begin_sse(live)

    # -- Live reads -----------------------------------------------------------------------------------------------

    def go_live(self, exchange: Exchange, live: "LongPoll | SseRead", page: Page) -> None:
        """Keep an exchange open; an SSE read takes the connection over once it is the first in line."""
        self._live[exchange] = live
        self.server.live.add(self)
        if isinstance(live, LongPoll):
            live.start(page)
        else:
            self._pending_page = page
            if self._exchanges[0] is exchange:
                self._begin_sse(live)

    def _begin_sse(self, live: SseRead) -> None:
        self._sse = live
        self._balance_reading()
        live.start(self._pending_page)

    def write(self, data: bytes) -> None:
        """Bytes of the SSE response that holds this connection."""
        if not self._transport.is_closing():
            self._transport.write(data)

    def end_sse(self) -> None:
        if self.chunked and not self._transport.is_closing():
            self._transport.write(rendering.LAST_CHUNK)
        self._live.clear()
        self._exchanges.clear()
        self._transport.close()

    # -- Patience -------------------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """About once a second for connections with live reads."""
        for live in list(self._live.values()):
            live.tick(now)

    def expire(self) -> None:
        """The deadline has passed: answer a request that never ended, drop a reader that does not read."""
        if self.write_paused:
            self._transport.abort()
        elif self._refused or self._stage is Stage.IDLE:
            self._transport.close()
        else:
            self._refuse(Code.REQUEST_TIMEOUT, "The request did not arrive in time.")

    def drain(self) -> None:
        """The server shuts down: end live reads, close when nothing is left to answer."""
        for live in list(self._live.values()):
            live.finish()
        for exchange in self._exchanges:
            exchange.close = True
        if not self._exchanges and not self._transport.is_closing():
            self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    # -- Refusing -------------------------------------------------------------------------------------------------

    def _refuse(self, code: Code, detail: str) -> None:
        """Answer, read no further requests, and close when the client has seen it."""
        if self._refused:
            return
        self._refused = True
        self.deadline = self.server.now + LINGER_SECONDS
        exchange = Exchange(self, NOTHING, close=True)
        self._exchanges.append(exchange)
        exchange.reply(Refusal(code, detail))

    def _refuse_headers(self) -> None:
        detail = f"The headers are larger than {HEADERS_BYTES_MAX} bytes or more than {HEADERS_MAX}."
        self._refuse(Code.HEADERS_TOO_LARGE, detail)

    def _refuse_body(self) -> None:
        self._refuse(Code.TOO_LARGE, f"The body is larger than {APPEND_BYTES_MAX} bytes; send it in several appends.")

    def _refuse_upgrade(self) -> None:
        # The parser takes the body of such a request for something else, so nothing after its head may be parsed.
        self._refuse(Code.BAD_REQUEST, "This server speaks HTTP/1.1 and upgrades to nothing else.")

    def _linger(self, size: int) -> None:
        self._lingered_bytes += size
        if self._lingered_bytes > LINGER_BYTES_MAX:
            self._transport.abort()
