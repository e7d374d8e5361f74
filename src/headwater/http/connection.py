"""A connection: hands requests to their routes and sends the responses in order, as fast as the client reads them.

After a refusal that leaves the framing of the input in doubt, the connection closes cleanly: it keeps reading for a
moment, so that the client sees the answer instead of a reset.
"""

import asyncio
from collections import deque
from typing import cast

from headwater.http.context import Context
from headwater.http.exchange import FORK, READ, WRITE, Exchange, LiveResponse, StreamedResponse
from headwater.http.router import Router
from headwater.http.wire import rendering
from headwater.http.wire.parser import BODY, HEAD, IDLE, RequestParser
from headwater.http.wire.requests import NOTHING, Request
from headwater.http.wire.statuses import Answer
from headwater.http.wire.uploads import Upload
from headwater.protocol.limits import APPEND_BYTES_MAX, SNAPSHOT_BYTES_MAX
from headwater.protocol.refusals import Code, Refusal

PIPELINE_MAX = 64
"""Unanswered requests on one connection before reading from it pauses."""
WRITE_BUFFER_BYTES = 256 * 1024
"""Unsent bytes on one connection before writing to it pauses."""
LINGER_SECONDS = 2.0
LINGER_BYTES_MAX = 2 * SNAPSHOT_BYTES_MAX
"""How long and how much a refused client may keep sending."""
_NEVER = float("inf")


class Connection(asyncio.Protocol):
    """One client; at its `deadline` the server expires it."""

    def __init__(self, context: Context, router: Router) -> None:
        self.context = context
        self._settings = context.settings
        self._find = router.find
        self.deadline = context.now + context.settings.header_seconds
        self.write_paused = False
        self.lost = False
        self._transport: asyncio.Transport
        self._parser = RequestParser(self, context.heads)
        self._exchanges: deque[Exchange] = deque()
        self._live: dict[Exchange, LiveResponse] = {}
        self._waiting_streams: dict[Exchange, StreamedResponse] = {}
        self._upload: Upload | None = None
        self._reading_paused = False
        self._lingered_bytes = 0
        self._owes_continue = False
        self._starting = False

    # -- The transport's side -------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        if not self.context.admit(self):
            self._parser.refused = True
            self.refuse(Code.OVERLOADED, "Too many connections are open; try again in a second.")

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        self.context.forget(self)
        for live in list(self._live.values()):
            live.abandon()
        # Break every reference cycle, so that the connection is freed without the garbage collector.
        self._live.clear()
        for exchange in self._exchanges:
            if exchange.start is not None:
                exchange.give_up()
        self._exchanges.clear()
        self._waiting_streams.clear()
        if self._upload is not None:
            self._upload.abandon()
        self._parser.close()

    def data_received(self, data: bytes) -> None:
        parser, context = self._parser, self.context
        context.received_bytes += len(data)
        if parser.refused:
            self._linger(len(data))
            return
        if parser.stage is IDLE:
            self.deadline = context.now + self._settings.header_seconds
        parser.feed(data)
        if parser.stage is BODY:
            self.deadline = context.now + self._settings.body_seconds
        elif parser.stage is HEAD and self.deadline == _NEVER:
            self.deadline = self.context.now + self._settings.header_seconds

    def eof_received(self) -> bool:
        """The client sends no more; keep the connection for the answers it waits for, unless one never ends."""
        endless = any(live.endless for live in self._live.values())
        if not self._exchanges or endless or self._parser.refused:
            return False
        self._exchanges[-1].close = True
        return True

    def pause_writing(self) -> None:
        self.write_paused = True
        self.deadline = self.context.now + self._settings.slow_reader_seconds
        self._balance_reading()

    def resume_writing(self) -> None:
        self.write_paused = False
        self.deadline = _NEVER if self._exchanges else self.context.now + self._settings.idle_seconds
        self._balance_reading()
        self._start_waiting()
        for live in self._begun():
            live.resume()

    def _balance_reading(self) -> None:
        uploading = self._upload is not None and self._upload.full
        paused = uploading or self.write_paused or len(self._exchanges) >= PIPELINE_MAX
        if paused != self._reading_paused and not self._transport.is_closing():
            self._reading_paused = paused
            if paused:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    # -- The parser's side ----------------------------------------------------------------------------------------

    def requested(self, request: Request) -> None:
        self.deadline = _NEVER
        self._owes_continue = False
        self._upload = None
        exchange = Exchange(self, request, close=self.context.draining or not request.keep_alive)
        exchanges = self._exchanges
        exchanges.append(exchange)
        if len(exchanges) >= PIPELINE_MAX:
            self._balance_reading()
        try:
            self._dispatch(request, exchange)
        except Exception:
            exchange.fail()

    def _dispatch(self, request: Request, exchange: Exchange) -> None:
        """Find the route and run it, now or when the exchanges before it allow."""
        method = request.method
        if method == b"OPTIONS":
            exchange.answer(Answer(204, rendering.PREFLIGHT_LINES))
            return
        found = self._find(method, request.path)
        if isinstance(found, Refusal):
            exchange.reply(found)
            return
        run, address, exchange.route, _ = found
        if not address.flat:
            exchange.voice = self.context.plain_voice
        run(request, address, exchange)

    def plan_body(self, method: bytes, path: bytes) -> tuple[int, Upload | None]:
        found = self._find(method, path)
        if isinstance(found, Refusal):
            return APPEND_BYTES_MAX, None
        if found.route.uploads:
            self._upload = Upload(self.context.node.only.blobs, self.context.node.threads, self._balance_reading)
        return found.route.body_bytes_max, self._upload

    def expects_continue(self) -> None:
        self._owes_continue = True
        self._continue()

    def _continue(self) -> None:
        if self._owes_continue and not self._exchanges:
            self._owes_continue = False
            self._transport.write(rendering.CONTINUE)

    def refuse(self, code: Code, detail: str) -> None:
        """Answer, read no more requests, and close when the client has seen the answer."""
        if self._upload is not None:
            self._upload.abandon()
            self._upload = None
        self.deadline = self.context.now + LINGER_SECONDS
        exchange = Exchange(self, NOTHING, close=True)
        self._exchanges.append(exchange)
        exchange.reply(Refusal(code, detail))

    def _linger(self, size: int) -> None:
        self._lingered_bytes += size
        if self._lingered_bytes > LINGER_BYTES_MAX:
            self._transport.abort()

    # -- Exchanges ------------------------------------------------------------------------------------------------

    def may_start(self, exchange: Exchange) -> bool:
        """Whether nothing before this exchange holds it up."""
        if self.write_paused and exchange.kind is READ:
            return False
        exchanges = self._exchanges
        if exchanges[0] is exchange:
            return True
        for other in exchanges:
            if other is exchange:
                break
            blocks = other.kind is FORK or (other.kind is WRITE and exchange.kind is not WRITE)
            if other.start is not None or (blocks and other.response is None):
                return False
            if other.fetching and exchange.kind is not READ:
                return False
        return True

    def finished(self) -> None:
        """An exchange has its response: send every response whose turn has come, and start what waited for it."""
        if not self._starting:
            self._send_finished()
            if self._exchanges:
                self._start_waiting()

    def _send_finished(self) -> None:
        exchanges = self._exchanges
        out: list[bytes] = []
        last: Exchange | None = None
        while exchanges and (response := exchanges[0].response) is not None:
            last = exchanges.popleft()
            out += response
            if last.close:
                exchanges.clear()
        if last is not None:
            if len(out) == 1:
                data = out[0]
                self.context.sent_bytes += len(data)
                self._transport.write(data)
            else:
                self.context.sent_bytes += sum(map(len, out))
                self._transport.writelines(out)
            self._sent(last)

    def _start_waiting(self) -> None:
        self._starting = True
        for waiting in tuple(self._exchanges):
            if waiting.start is not None:
                # None are left once a response has closed the connection.
                if not self._exchanges or not self.may_start(waiting):
                    break
                start, waiting.start = waiting.start, None
                try:
                    start()
                except Exception:
                    waiting.fail()
                # At once, so that a client that does not read pauses writing after the first large page.
                self._send_finished()
        self._starting = False

    def _sent(self, last: Exchange) -> None:
        if self._live:
            for exchange in [exchange for exchange in self._live if exchange not in self._exchanges]:
                self._live.pop(exchange).abandon()
        if last.close:
            if self._parser.refused:
                self._transport.write_eof()
            else:
                self._transport.close()
        elif self._exchanges:
            self._begin_stream()
        else:
            if self._owes_continue:
                self._continue()
            if self._parser.stage is IDLE and not self.write_paused:
                self.deadline = self.context.now + self._settings.idle_seconds
        if self._reading_paused:
            self._balance_reading()

    # -- Live responses -------------------------------------------------------------------------------------------

    def go_live(self, exchange: Exchange, live: LiveResponse) -> None:
        """Keep an exchange open while something waits for its answer."""
        self._live[exchange] = live
        self.context.live.add(self)

    def take_over(self, exchange: Exchange, stream: StreamedResponse) -> None:
        """Send a response piece by piece, once it is the first in line."""
        self.go_live(exchange, stream)
        exchange.began_stream()
        if stream.endless:
            # Requests after it are never answered: an SSE response ends with the connection.
            self._parser.refused = True
        self._waiting_streams[exchange] = stream
        self._begin_stream()

    def _begun(self) -> list[LiveResponse]:
        """Live responses, except those that wait for a response before them."""
        return [live for exchange, live in self._live.items() if exchange not in self._waiting_streams]

    def _begin_stream(self) -> None:
        stream = self._waiting_streams.pop(self._exchanges[0], None) if self._exchanges else None
        if stream is not None:
            stream.begin()

    def write(self, data: bytes) -> None:
        """Send a piece of the response that is first in line."""
        if not self._transport.is_closing():
            self.context.sent_bytes += len(data)
            self._transport.write(data)

    def end_sse(self) -> None:
        """The SSE response is complete, and the connection with it."""
        for live in self._live.values():
            live.abandon()
        self._live.clear()
        self._waiting_streams.clear()
        self._exchanges.clear()
        self._transport.close()

    # -- Time -----------------------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Called about twice a second on connections with live responses."""
        for live in self._begun():
            live.tick(now)

    def expire(self) -> None:
        """The deadline has passed: refuse a request that never ended, or drop a client that does not read."""
        if self.write_paused:
            self._transport.abort()
        elif self._parser.refused or self._parser.stage is IDLE:
            self._transport.close()
        else:
            self._parser.refused = True
            self.refuse(Code.REQUEST_TIMEOUT, "The request did not arrive in time.")

    def drain(self) -> None:
        """The server shuts down: end live responses, and close when nothing is left to answer."""
        for exchange in self._exchanges:
            exchange.close = True
        for exchange, live in list(self._live.items()):
            if exchange not in self._waiting_streams:
                live.finish()
        if not self._exchanges and not self._transport.is_closing():
            self._transport.close()

    def abort(self) -> None:
        self._transport.abort()
