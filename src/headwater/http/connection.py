"""A connection: hands requests to the routes and sends their responses in order, as fast as the client reads them.

After a refusal that leaves the rest of the input in doubt the connection closes cleanly: it reads on for a moment, so
that the client gets to see the answer instead of a reset.
"""

import asyncio
from collections import deque
from typing import TYPE_CHECKING, cast

from headwater.http.api.live import LiveRead, SseRead
from headwater.http.endpoints import body_bytes_max, dispatch, wants_upload
from headwater.http.exchange import FORK, READ, WRITE, Exchange
from headwater.http.wire import rendering
from headwater.http.wire.downloads import Download
from headwater.http.wire.parser import BODY, HEAD, IDLE, RequestReader
from headwater.http.wire.requests import NOTHING, Request
from headwater.http.wire.uploads import Upload
from headwater.protocol.limits import SNAPSHOT_BYTES_MAX
from headwater.protocol.refusals import Code, Refusal

if TYPE_CHECKING:
    from headwater.http.server import Server

PIPELINE_MAX = 64
"""Unanswered requests on one connection before it is read no further."""
WRITE_BUFFER_BYTES = 256 * 1024
"""Unsent bytes on one connection before nothing more is written to it."""
LINGER_SECONDS = 2.0
LINGER_BYTES_MAX = 2 * SNAPSHOT_BYTES_MAX
"""How long and how much a refused client may go on sending."""
_NEVER = float("inf")


class Connection(asyncio.Protocol):
    """One client; `deadline` is when the server loses patience with it."""

    def __init__(self, server: "Server") -> None:
        self.server = server
        self.settings = server.settings
        self.deadline = server.now + server.settings.header_seconds
        self.write_paused = False
        self.lost = False
        self._transport: asyncio.Transport
        self._reader = RequestReader(self, server.heads)
        self._exchanges: deque[Exchange] = deque()
        self._live: dict[Exchange, LiveRead] = {}
        self._waiting_streams: dict[Exchange, SseRead | Download] = {}
        self._upload: Upload | None = None
        self._reading_paused = False
        self._lingered_bytes = 0
        self._owes_continue = False
        self._starting = False

    # -- The transport's side -------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        if not self.server.admit(self):
            self._reader.refused = True
            self.refuse(Code.OVERLOADED, "Too many connections are open; try again in a second.")

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        self.server.forget(self)
        for live in list(self._live.values()):
            live.abandon()
        # Break every cycle, so that nothing of this connection waits for the collector.
        self._live.clear()
        for exchange in self._exchanges:
            if exchange.start is not None:
                exchange.give_up()
        self._exchanges.clear()
        self._waiting_streams.clear()
        if self._upload is not None:
            self._upload.abandon()
        self._reader.close()

    def data_received(self, data: bytes) -> None:
        reader = self._reader
        if reader.refused:
            self._linger(len(data))
            return
        if reader.stage is IDLE:
            self.deadline = self.server.now + self.settings.header_seconds
        reader.feed(data)
        if reader.stage is BODY:
            self.deadline = self.server.now + self.settings.body_seconds
        elif reader.stage is HEAD and self.deadline == _NEVER:
            self.deadline = self.server.now + self.settings.header_seconds

    def eof_received(self) -> bool:
        """The client sends no more; stay for what it still waits for, unless that never ends."""
        endless = any(not isinstance(live, Download) for live in self._live.values())
        if not self._exchanges or endless or self._reader.refused:
            return False
        self._exchanges[-1].close = True
        return True

    def pause_writing(self) -> None:
        self.write_paused = True
        self.deadline = self.server.now + self.settings.slow_reader_seconds
        self._balance_reading()

    def resume_writing(self) -> None:
        self.write_paused = False
        self.deadline = _NEVER if self._exchanges else self.server.now + self.settings.idle_seconds
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

    # -- The reader's side ----------------------------------------------------------------------------------------

    def requested(self, request: Request) -> None:
        self.deadline = _NEVER
        self._owes_continue = False
        self._upload = None
        exchange = Exchange(self, request, close=self.server.draining or not request.keep_alive)
        exchanges = self._exchanges
        exchanges.append(exchange)
        if len(exchanges) >= PIPELINE_MAX:
            self._balance_reading()
        try:
            dispatch(request, exchange)
        except Exception:
            exchange.fail()

    def plan_body(self, method: bytes, path: bytes) -> tuple[int, Upload | None]:
        if wants_upload(method, path):
            self._upload = Upload(self.server.node.only.blobs, self.server.node.threads, self._balance_reading)
        return body_bytes_max(path), self._upload

    def expects_continue(self) -> None:
        self._owes_continue = True
        self._continue()

    def _continue(self) -> None:
        if self._owes_continue and not self._exchanges:
            self._owes_continue = False
            self._transport.write(rendering.CONTINUE)

    def refuse(self, code: Code, detail: str) -> None:
        """Answer, read no further requests, and close when the client has seen it."""
        if self._upload is not None:
            self._upload.abandon()
            self._upload = None
        self.deadline = self.server.now + LINGER_SECONDS
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
            waits = other.kind is FORK or (other.kind is WRITE and exchange.kind is not WRITE)
            if other.start is not None or (waits and other.response is None):
                return False
            if other.looking and exchange.kind is not READ:
                return False
        return True

    def finished(self) -> None:
        """An exchange has its response: send what has become sendable, and start what has waited for it."""
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
                self._transport.write(out[0])
            else:
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
                # At once, so that a client that does not read stops us after the first large page.
                self._send_finished()
        self._starting = False

    def _sent(self, last: Exchange) -> None:
        if self._live:
            for exchange in [exchange for exchange in self._live if exchange not in self._exchanges]:
                self._live.pop(exchange).abandon()
        if last.close:
            if self._reader.refused:
                self._transport.write_eof()
            else:
                self._transport.close()
        elif self._exchanges:
            self._begin_stream()
        else:
            if self._owes_continue:
                self._continue()
            if self._reader.stage is IDLE and not self.write_paused:
                self.deadline = self.server.now + self.settings.idle_seconds
        if self._reading_paused:
            self._balance_reading()

    # -- Responses that go on -------------------------------------------------------------------------------------

    def go_live(self, exchange: Exchange, live: LiveRead) -> None:
        """Keep an exchange open while something waits for its answer."""
        self._live[exchange] = live
        self.server.live.add(self)

    def take_over(self, exchange: Exchange, stream: "SseRead | Download") -> None:
        """Let a response be sent piece by piece, once it is the first in line."""
        self.go_live(exchange, stream)
        exchange.began_stream()
        if isinstance(stream, SseRead):
            # What is behind it on this connection is never answered: an SSE response ends with the connection.
            self._reader.refused = True
        self._waiting_streams[exchange] = stream
        self._begin_stream()

    def _begun(self) -> list[LiveRead]:
        """Live reads but for those whose response must wait for one before it."""
        return [live for exchange, live in self._live.items() if exchange not in self._waiting_streams]

    def _begin_stream(self) -> None:
        stream = self._waiting_streams.pop(self._exchanges[0], None) if self._exchanges else None
        if stream is not None:
            stream.begin()

    def write(self, data: bytes) -> None:
        """Bytes of the SSE response that holds this connection."""
        if not self._transport.is_closing():
            self._transport.write(data)

    def end_sse(self) -> None:
        """The SSE response is complete, and the connection with it."""
        for live in self._live.values():
            live.abandon()
        self._live.clear()
        self._waiting_streams.clear()
        self._exchanges.clear()
        self._transport.close()

    # -- Patience -------------------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """About twice a second for connections with live reads."""
        for live in self._begun():
            live.tick(now)

    def expire(self) -> None:
        """The deadline has passed: answer a request that never ended, drop a reader that does not read."""
        if self.write_paused:
            self._transport.abort()
        elif self._reader.refused or self._reader.stage is IDLE:
            self._transport.close()
        else:
            self._reader.refused = True
            self.refuse(Code.REQUEST_TIMEOUT, "The request did not arrive in time.")

    def drain(self) -> None:
        """The server shuts down: end live reads, close when nothing is left to answer."""
        for exchange in self._exchanges:
            exchange.close = True
        for exchange, live in list(self._live.items()):
            if exchange not in self._waiting_streams:
                live.finish()
        if not self._exchanges and not self._transport.is_closing():
            self._transport.close()

    def abort(self) -> None:
        self._transport.abort()
