"""A connection: hands requests to their routes and sends the responses in order, as fast as the client reads them.

After a refusal that leaves the framing of the input in doubt, the connection closes cleanly: it keeps reading for a
moment, so that the client sees the answer instead of a reset.
"""

import asyncio
from typing import cast

from headwater.http.connection.dispatch import dispatch, open_exchange
from headwater.http.connection.fast.short_path import ShortPath
from headwater.http.connection.inflow import Inflow
from headwater.http.connection.pipeline import Pipeline
from headwater.http.connection.receiving import Receiving
from headwater.http.context import Context
from headwater.http.exchange.exchange import LIVE, READ, Exchange, LiveResponse, StreamedResponse
from headwater.http.table.router import Found, Router
from headwater.http.tls.certificates import SecurableProtocol
from headwater.http.wire.intakes import Intake
from headwater.http.wire.parser import RequestParser
from headwater.http.wire.requests import NOTHING, Request
from headwater.http.wire.stages import BODY, IDLE, Stage
from headwater.http.wire.unsent import Unsent
from headwater.protocol.limits import SNAPSHOT_BYTES_MAX
from headwater.protocol.refusals import Code, Refusal

PIPELINE_MAX = 64
"""Unanswered requests on one connection; further ones are not read before answers have left."""
WRITE_BUFFER_BYTES = 256 * 1024
"""Unsent bytes on one connection before writing to it pauses."""
LINGER_SECONDS = 2.0
LINGER_BYTES_MAX = 2 * SNAPSHOT_BYTES_MAX
"""How long and how much a refused client may keep sending."""
_NEVER = float("inf")


class Connection(SecurableProtocol):
    """One client; at its `deadline` the server expires it."""

    transport: asyncio.Transport

    def __init__(self, context: Context, router: Router, short_path: ShortPath | None = None) -> None:
        self.context, self._settings = context, context.settings
        self._find, self._short_path = router.find, short_path
        self.deadline = context.now + context.settings.header_seconds
        self.write_paused = self.lost = False
        self.parser = RequestParser(self, context.heads, context.hosts)
        self._pipeline = Pipeline()
        self.exchanges = self._pipeline.exchanges
        self._receiving = Receiving(self, router.find)
        self.inflow, self._unsent = Inflow(self._feed_rest), Unsent(context.sending)
        self.reserved, self.starting, self._ended, self._lingered_bytes = False, False, False, 0

    # -- Who the client is ----------------------------------------------------------------------------------------

    @property
    def address(self) -> str:
        """The client's IP address, or the proxy's; empty once the socket is closed, for work that outlives it."""
        try:
            peer = self.transport.get_extra_info("peername")
        except ValueError:  # From uvloop: there is no descriptor any more.
            return ""
        return str(peer[0]) if peer else ""

    @property
    def certificate_names(self) -> tuple[tuple[str, str], ...]:
        """The alternative names of the client's verified certificate."""
        uris, dns = self.client_names
        return (*(("URI", name) for name in uris), *(("DNS", name) for name in dns))

    # -- The transport's side -------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        self.reserved = not self.context.admit(self, self.address)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        self.context.forget(self)
        # Break every reference cycle, so that the connection is freed without the garbage collector.
        self._pipeline.drop()
        self._receiving.close()
        self.inflow.close()
        self._unsent.release()
        self.parser.close()

    def data_received(self, data: bytes) -> None:
        if self._short_path is not None and not self.exchanges and self._short_path.take(self, data):
            return
        parser = self.parser
        self.context.received_bytes += len(data)
        if parser.refused:
            self._lingered_bytes += len(data)
            if self._lingered_bytes > LINGER_BYTES_MAX:
                self.transport.abort()
            return
        stage = parser.stage
        parser.feed(data)
        if parser.stage is not IDLE:
            self._set_deadline(stage)
        if parser.full or parser.rest:
            self.balance()

    def _set_deadline(self, stage: Stage) -> None:
        """Set the time until when the rest of a request must be here; `stage` is what came next before its input."""
        parser = self.parser
        begins = parser.stage is BODY or stage is IDLE or self.deadline == _NEVER
        if begins and parser.stage is not IDLE and not parser.refused:
            self.deadline = self.context.now + self._patience_seconds()

    def eof_received(self) -> bool:
        """The client sends no more; keep the connection for the answers it waits for, unless one never ends."""
        if not self.exchanges or self._pipeline.endless:
            return False
        self._ended = self.exchanges[-1].close = True
        return True

    def pause_writing(self) -> None:
        self.write_paused = True
        self._unsent.hold(self.transport)
        self.deadline = self.context.now + self._settings.slow_reader_seconds
        self.balance()

    def resume_writing(self) -> None:
        self.write_paused = False
        self._unsent.release()
        self.deadline = self.context.now + self._patience_seconds()
        self.balance()
        self._start_waiting()
        for live in self._pipeline.begun():
            live.resume()

    def _patience_seconds(self) -> float:
        """How long to wait for what the client does next."""
        parser, settings = self.parser, self._settings
        if not parser.refused and parser.stage is not IDLE:
            return settings.body_seconds if parser.stage is BODY else settings.header_seconds
        return _NEVER if self.exchanges else LINGER_SECONDS if parser.refused else settings.idle_seconds

    def balance(self) -> None:
        """Apply back-pressure: pause reading while the pipeline is full, and bound the work per loop turn."""
        has_room = not self._lacks_room()
        self.inflow.steer(self.transport, has_room=has_room, has_rest=bool(self.parser.rest))
        self._receiving.go_on()

    def _feed_rest(self) -> None:
        if not self._lacks_room():
            stage = self.parser.stage
            self.parser.feed(b"")
            self._set_deadline(stage)
        self.balance()

    def _lacks_room(self) -> bool:
        self.parser.full = len(self.exchanges) >= PIPELINE_MAX or self.inflow.muted
        return self._receiving.full or self.write_paused or self.parser.full

    # -- The parser's side ----------------------------------------------------------------------------------------

    def take(self, request: Request) -> bool:
        found = self._find(request.method, request.path)
        has_intake = type(found) is Found and found.route.intake is not None
        if has_intake or self.reserved or self.context.draining:
            return False
        self.deadline = _NEVER
        self._begin(request, found, close=False)
        return True

    def requested(self, request: Request) -> None:
        self.deadline = _NEVER
        if request.intake is not None:
            self._receiving.finish()
        close = not request.keep_alive
        if self.reserved or self.context.draining:
            close = True
            self.parser.stop()
        self._begin(request, self._find(request.method, request.path), close=close)

    def _begin(self, request: Request, found: Found | Refusal, *, close: bool) -> None:
        exchange = open_exchange(self, request, close=close)
        exchanges = self.exchanges
        exchanges.append(exchange)
        try:
            dispatch(exchange, found, reserved=self.reserved)
        except Exception:
            exchange.fail()
        if len(exchanges) >= PIPELINE_MAX or self.inflow.muted:
            self.parser.full = True

    def plan_body(self, method: bytes, path: bytes) -> tuple[int, Intake | None] | Refusal:
        return self._receiving.plan(method, path)

    def begin_body(self, head: Request, size: int | None, *, expects_continue: bool) -> Intake | None:
        return self._receiving.begin(head, size, expects_continue=expects_continue)

    @property
    def answered(self) -> bool:
        """Whether no earlier request waits for its response."""
        return not self.exchanges

    def refuse(self, code: Code, detail: str) -> None:
        """Answer, read no more requests, and close when the client has seen the answer."""
        self._refuse(open_exchange(self, NOTHING, close=True), Refusal(code, detail))

    def refuse_head(self, head: Request, found: Found | None, refusal: Refusal) -> None:
        """Answer a request whose body is not read, and close when the client has seen the answer."""
        if not (self.lost or self.parser.refused):
            self.parser.stop()
            exchange = open_exchange(self, head, close=True)
            if found is not None:
                exchange.route = found.label
                exchange.dialect = self.context.dialect_for(found.address)
            self._refuse(exchange, refusal)

    def _refuse(self, exchange: Exchange, refusal: Refusal) -> None:
        self._receiving.abandon()
        self.deadline = _NEVER
        self.exchanges.append(exchange)
        exchange.reply(refusal)
        self.balance()

    # -- Exchanges ------------------------------------------------------------------------------------------------

    def mute(self, seconds: float) -> None:
        """Take nothing from the client for a while: it has used more than its share."""
        if not self.lost:
            self.inflow.mute(seconds)
            self.balance()

    def may_start(self, exchange: Exchange) -> bool:
        """Whether nothing before this exchange holds it up."""
        if self.write_paused and (exchange.kind is READ or exchange.kind is LIVE):
            return False
        return self._pipeline.may_start(exchange)

    def finished(self) -> None:
        """An exchange has its response: send every response whose turn has come, and start what waited for it."""
        if not self.starting and (data := self._pipeline.take_only()) is not None:
            self._count_sent(len(data))
            self.transport.write(data)
            self._rest()
            if self.inflow.paused:
                self.balance()
        elif not self.starting:
            self._send_finished()
            if self.exchanges:
                self._start_waiting()

    def _send_finished(self) -> None:
        out: list[bytes] = []
        last = self._pipeline.take_finished(out)
        if last is not None:
            self._count_sent(sum(map(len, out)))
            self.transport.writelines(out)
            self._sent(last)

    def _start_waiting(self) -> None:
        self.starting = True
        while (waiting := self._pipeline.first_waiting()) is not None and self.may_start(waiting):
            waiting.begin()
            # At once, so that a client that does not read pauses writing after the first large page. That makes room
            # for requests after those that waited, which may have their responses at once too.
            while self.exchanges and self.exchanges[0].response is not None:
                self._send_finished()
        self.starting = False

    def _sent(self, last: Exchange) -> None:
        if last.close:
            if self.parser.refused and not self._ended:
                self.transport.write_eof()
                if not self.write_paused:
                    self.deadline = self.context.now + LINGER_SECONDS
            else:
                self.parser.stop()
                self._close()
        elif self.exchanges:
            self._begin_stream()
        else:
            self._rest()
        if self.inflow.paused:
            self.balance()

    def _rest(self) -> None:
        """Everything so far has been answered: continue with a body that waited for that, or wait for more."""
        if self.parser.stage is not IDLE:
            self._receiving.answered()
        elif not self.write_paused:
            self.deadline = self.context.now + self._settings.idle_seconds

    # -- Live responses -------------------------------------------------------------------------------------------

    def go_live(self, exchange: Exchange, live: LiveResponse) -> None:
        """Keep an exchange open while something waits for its answer."""
        self._pipeline.go_live(exchange, live)
        self.context.live.add(self)

    def take_over(self, exchange: Exchange, stream: StreamedResponse) -> None:
        """Send a response piece by piece, once it is the first in line."""
        self._pipeline.queue_stream(exchange, stream)
        self.context.live.add(self)
        exchange.began_stream()
        if stream.endless:
            # Requests after it are never answered: an SSE response ends with the connection.
            self.parser.stop()
            self._pipeline.drop_after(exchange)
        self._begin_stream()

    def _begin_stream(self) -> None:
        stream = self._pipeline.next_stream()
        if stream is not None:
            stream.begin()
            if self.context.draining:
                stream.finish()

    def write(self, data: bytes) -> None:
        """Send a piece of the response that is first in line."""
        if not self.transport.is_closing():
            self._count_sent(len(data))
            self.transport.write(data)

    def _count_sent(self, size: int) -> None:
        self.context.sent_bytes += size
        if self.write_paused:
            self._unsent.add(size)

    def end_sse(self) -> None:
        """The SSE response is complete, and the connection with it."""
        self._pipeline.drop()
        self._close()

    def _close(self) -> None:
        """Close when everything has been sent; a client that takes nothing of it is dropped after a while."""
        if not self.write_paused and self._unsent.watch(self.transport):
            self.deadline = self.context.now + self._settings.slow_reader_seconds
        self.transport.close()

    # -- Time -----------------------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Called about twice a second on connections with live responses."""
        for live in self._pipeline.begun():
            live.tick(now)

    def expire(self) -> None:
        """The deadline has passed: refuse a request that never ended, or drop a client that does not read."""
        if self.write_paused or self.transport.is_closing():
            if self._unsent.falls(self.transport):
                self.deadline = self.context.now + self._settings.slow_reader_seconds
            else:
                self.transport.abort()
        elif self._receiving.full:  # The client is waiting for us, so extend its deadline.
            self.deadline = self.context.now + self._settings.body_seconds
        elif self.parser.refused or self.parser.stage is IDLE:
            self._close()
        else:
            self.parser.stop()
            self.refuse(Code.REQUEST_TIMEOUT, "The request did not arrive in time.")

    def abort(self) -> None:
        """Close at once."""
        self.transport.abort()

    def drain(self) -> None:
        """The server shuts down: end live responses, and close when nothing is left to answer."""
        if self.exchanges:
            # Only after the last answer: what has begun may have been applied.
            self.exchanges[-1].close = True
            self.parser.stop()
        elif not self.transport.is_closing():
            self.transport.close()
        for live in self._pipeline.begun():
            live.finish()
