"""Many streams on one SSE response: each has a leg, which waits on the node's tails like a reader of its own.

Legs that may have something to send wait in line. Each gets one page when its turn comes, and goes to the end of the
line if there is more. Nothing is read while the socket takes no more, and little is done in one turn of the event loop,
so a slow client costs no memory, and a request for a thousand streams does not hold up others.
"""

import asyncio
import random
from base64 import b64encode
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Literal, NamedTuple

import msgspec

from headwater.http.api.live import GUARDED_SSE_LINES, SSE_LINES
from headwater.http.exchange import crowding
from headwater.http.exchange.exchange import Exchange
from headwater.http.wire import rendering
from headwater.http.wire.codes import REFUSALS, RETRY_LATER_SECONDS
from headwater.node.reads.tails import Shared
from headwater.protocol import content_types, incarnations, sse
from headwater.protocol.offsets import Form, render
from headwater.protocol.refusals import Code, Refusal
from headwater.streams.queries import Read
from headwater.streams.replies import Page, Reply

LEGS_PER_TURN = 64
BYTES_PER_TURN = 64 * 1024
"""How many legs are read in one turn of the event loop, and after how many bytes the others have to wait."""
FETCHES_MAX = 4
"""Legs of one response whose pages are fetched from the lake at a time; each may take the memory of a page."""

Reason = Literal["again", "draining", "closed", "credential_expired"]
"""Why a response ends: the client should ask again, the server shuts down, no stream is left, or a right has ended."""


class Batch(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """What a `batch` event says; it has one of the last three members."""

    stream: str
    incarnation: str
    next_offset: str
    up_to_date: bool
    closed: bool
    items: msgspec.Raw | None = None
    text: str | None = None
    base64: str | None = None


class Refused(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What a `refused` event says."""

    stream: str
    status: int
    code: Code
    detail: str
    earliest: str | None = None


class Event(NamedTuple):
    """What every leg at one offset of a stream gets: the bytes, the read that follows, and whether there is more."""

    following: Read
    data: bytes
    up_to_date: bool
    over: bool


class Leg:
    """One stream of a response."""

    __slots__ = ("_tail", "busy", "greeted", "queued", "read", "waits")

    def __init__(self, tail: "MultiTail", read: Read) -> None:
        self._tail = tail
        self.read = read
        self.queued = False
        """Whether it stands in line."""
        self.busy = False
        """Whether it will be in line again by itself: its page is being fetched, or has to wait."""
        self.waits = False
        """Whether it is among the node's waiters, and no longer holds a reserved place."""
        self.greeted = False
        """Whether it has sent its first batch, which it sends even if that is empty."""

    def wake(self, shared: Shared) -> None:
        self._tail.wake(self, shared)


class MultiTail:
    """The response: batches of all streams, until all are closed or the time is up."""

    endless = True

    def __init__(self, exchange: Exchange, reads: Sequence[Read]) -> None:
        """Begin with as many places reserved on the node's tails as there are streams to read."""
        self._context, self._node, self._connection = exchange.context, exchange.node, exchange.connection
        self._chunked = exchange.request.takes_chunks
        self._exchange, self._names = exchange, [read.name for read in reads]
        public = all(map(exchange.context.gate.is_public, self._names))
        self._lines = exchange.with_own_lines(SSE_LINES if public else GUARDED_SSE_LINES)
        self._legs = {Leg(self, read): None for read in reads}
        self._reserved = len(self._legs)
        self._line: deque[Leg] = deque()
        self._held_back: list[Leg] = []
        """Legs whose pages cannot be had at the moment."""
        self._to_fetch: deque[Leg] = deque()
        """Legs whose pages are in the lake, and have to wait until others have been fetched."""
        self._fetches = 0
        self._unsent: list[bytes] = []
        self._unsent_bytes = 0
        settings, now = exchange.context.settings, exchange.context.now
        self._heartbeat_seconds = settings.heartbeat_seconds
        self._ends_at = now + settings.sse_seconds * (0.9 + 0.2 * random.random())
        self._beats_at = now + self._heartbeat_seconds
        self._over = False
        self._turn: asyncio.Handle | None = None

    def begin(self) -> None:
        """Send the head, and let every leg send its first batch."""
        self._node.metrics.sse_reads += 1
        self._connection.write(self._connection.context.renderer.stream_head(self._lines, chunked=self._chunked))
        for leg in self._legs:
            self._queue(leg)

    # -- The line -------------------------------------------------------------------------------------------------

    def wake(self, leg: Leg, shared: Shared) -> None:
        """The stream of a leg has changed."""
        stale = self._exchange.needs_recheck
        if self._over or leg.queued or leg.busy or (not stale and self._credential_ended()):
            return
        full = stale or self._connection.write_paused or self._unsent_bytes >= BYTES_PER_TURN
        if full or self._line or (len(self._unsent) >= LEGS_PER_TURN and _key(leg) not in shared):
            self._queue(leg)
        else:
            self._advance(leg, shared)
            self._schedule()

    def resume(self) -> None:
        self._schedule()

    def _queue(self, leg: Leg) -> None:
        leg.queued = True
        self._line.append(leg)
        self._schedule()

    def _schedule(self) -> None:
        if self._turn is None and not self._over:
            self._turn = asyncio.get_running_loop().call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._turn = None
        account = self._exchange.account
        in_debt = account is not None and account.reads.debt_seconds() > 0
        if in_debt or self._exchange.needs_recheck or self._credential_ended():
            return
        line = self._line
        for _ in range(min(len(line), LEGS_PER_TURN)):
            if self._connection.write_paused or self._unsent_bytes >= BYTES_PER_TURN:
                break
            leg = line.popleft()
            leg.queued = False
            self._advance(leg, {})
        self._flush()
        if not self._legs:
            self.end("closed")
        elif line and not self._connection.write_paused:
            self._schedule()

    # -- Legs -----------------------------------------------------------------------------------------------------

    def _advance(self, leg: Leg, shared: Shared) -> None:
        """Send the next page of a leg, if there is one."""
        if not leg.waits:
            leg.waits = True
            self._reserved -= 1
            self._node.tails.release(1)
            self._node.wait(leg.read.name, leg)
        event = shared.get(_key(leg))
        if event is not None:
            self._send(leg, event)
            return
        read = crowding.shorten(leg.read, self._context)
        reply = self._node.read(read) if self._fetches < FETCHES_MAX else self._node.read_hot(read)
        if reply is None:
            leg.busy = True
            self._to_fetch.append(leg)
        elif isinstance(reply, asyncio.Task):
            leg.busy = True
            self._fetches += 1
            reply.add_done_callback(partial(self._fetched, leg))
        else:
            self._take(leg, reply, shared)

    def _fetched(self, leg: Leg, task: asyncio.Task[Reply]) -> None:
        """A page has arrived from the lake: send it, and let the leg go on."""
        self._fetches -= 1
        leg.busy = False
        if self._over or task.cancelled():
            return
        if self._to_fetch:
            self._back_in_line(self._to_fetch.popleft())
        self._take(leg, task.result(), {})
        if leg in self._legs and not (leg.busy or leg.queued):
            # What changed meanwhile has not woken it.
            self._queue(leg)
        self._schedule()

    def _back_in_line(self, leg: Leg) -> None:
        leg.busy = False
        self._queue(leg)

    def _take(self, leg: Leg, reply: Reply, shared: Shared) -> None:
        if isinstance(reply, Page):
            if leg.greeted and reply.next_offset == reply.start and not reply.closed:
                return
            event = self._event(leg, reply)
            if not self._context.sending.full:
                shared[_key(leg)] = event
            self._send(leg, event)
        elif isinstance(reply, Refusal) and reply.code in RETRY_LATER_SECONDS:
            leg.busy = True
            self._held_back.append(leg)
        elif isinstance(reply, Refusal):
            self._write(sse.event("refused", msgspec.json.encode(_refused(leg, reply))))
            self._drop(leg)

    def _send(self, leg: Leg, event: Event) -> None:
        leg.read, leg.greeted = event.following, True
        self._write(event.data)
        if event.over:
            self._drop(leg)
        elif not event.up_to_date:
            self._queue(leg)

    def _event(self, leg: Leg, page: Page) -> Event:
        over = page.up_to_date and page.closed
        items, text, base64 = _payload(page)
        batch = Batch(
            leg.read.name,
            incarnations.render(self._node.log_id, page.incarnation),
            render(page.next_offset, Form.PLAIN),
            page.up_to_date,
            over,
            items,
            text,
            base64,
        )
        following = leg.read.following(page.next_offset, page.incarnation)
        return Event(following, sse.event("batch", msgspec.json.encode(batch)), page.up_to_date, over)

    def _drop(self, leg: Leg) -> None:
        del self._legs[leg]
        self._node.tails.unwatch(leg.read.name, leg)

    # -- The response ---------------------------------------------------------------------------------------------

    def _write(self, event: bytes) -> None:
        """Send an event at the end of this turn, together with others."""
        self._unsent.append(event)
        self._unsent_bytes += len(event)

    def _flush(self) -> None:
        if self._unsent:
            data = b"".join(self._unsent)
            self._unsent, self._unsent_bytes = [], 0
            self._connection.write(rendering.chunk(data) if self._chunked else data)
            if self._exchange.account is not None:
                self._exchange.account.reads.spend(len(data))

    def tick(self, now: float) -> None:
        if self._connection.write_paused or self._credential_ended(ticks=True):
            return
        if self._line or self._unsent:  # A client in debt may have paid.
            self._schedule()
        held_back, self._held_back = self._held_back, []
        for leg in held_back:
            self._back_in_line(leg)
        if now >= self._ends_at:
            self.end("again")
        elif now >= self._beats_at:
            self._beats_at = now + self._heartbeat_seconds
            self._write(sse.HEARTBEAT)
            self._flush()

    def _credential_ended(self, *, ticks: bool = False) -> bool:
        """End the response if the client may no longer read all streams."""
        if self._exchange.may_still_read(self._names, ticks=ticks):
            return False
        self.end("credential_expired")
        return True

    def finish(self) -> None:
        self.end("draining")

    def end(self, reason: Reason) -> None:
        """Say why the response ends, and end it."""
        self._write(sse.event("end", msgspec.json.encode({"reason": reason})))
        self._flush()
        self.abandon()
        if self._chunked:
            self._connection.write(rendering.LAST_CHUNK)
        self._connection.end_sse()

    def abandon(self) -> None:
        """Release everything. Idempotent."""
        self._over = True
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None
        tails = self._node.tails
        tails.release(self._reserved)
        self._reserved = 0
        for leg in self._legs:
            tails.unwatch(leg.read.name, leg)
        # A leg knows its response, so they would keep each other alive.
        for legs in (self._legs, self._line, self._to_fetch, self._held_back, self._unsent):
            legs.clear()


def _key(leg: Leg) -> tuple[object, ...]:
    """What an event depends on; readers of a single stream have keys of another form."""
    return "batch", leg.read


def _payload(page: Page) -> tuple[msgspec.Raw | None, str | None, str | None]:
    """The bytes of a page as JSON, as text or in base64; one of the three."""
    if content_types.is_json(page.content_type):
        return msgspec.Raw(page.body), None, None
    if content_types.is_text(page.content_type):
        try:
            return None, page.body.decode(), None
        except UnicodeDecodeError:
            pass
    return None, None, b64encode(page.body).decode()


def _refused(leg: Leg, refusal: Refusal) -> Refused:
    earliest = refusal.earliest_offset
    return Refused(
        leg.read.name,
        REFUSALS[refusal.code][0],
        refusal.code,
        refusal.detail,
        None if earliest is None else render(earliest, Form.PLAIN),
    )
