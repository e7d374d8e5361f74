"""Live reads: a long-poll that waits for one page, and an SSE stream that keeps going.

Both wait on the node's tails and are woken once per commit batch. Events that are the same for many readers of one
stream are encoded once per wake and shared. A reader that does not keep up gets nothing more until its socket has
drained, then resumes from its own offset; so it never costs more memory than the socket's buffer, and the server drops
it after a while.
"""

import asyncio
import random
import time
from collections.abc import Callable
from math import inf
from typing import NamedTuple, TypeGuard

import msgspec

from headwater.http.exchange import crowding
from headwater.http.exchange.exchange import Exchange
from headwater.http.wire import rendering, statuses
from headwater.http.wire.statuses import Answer, Dialect
from headwater.node.reads.tails import Shared
from headwater.protocol import content_types, cursors, headers, sse
from headwater.protocol.offsets import render
from headwater.protocol.refusals import Code, Refusal
from headwater.streams.queries import Read
from headwater.streams.replies import Page, Reply

SSE_LINES = (
    f"{headers.CONTENT_TYPE.line}text/event-stream\r\n"
    f"{headers.CACHE_CONTROL.line}no-cache\r\n"
    f"{headers.X_ACCEL_BUFFERING.line}no\r\n"
)
GUARDED_SSE_LINES = SSE_LINES.replace("no-cache", "no-cache, no-store")
_RIGHTS_CHANGED = Refusal(Code.OVERLOADED, "The rights of this request ended while it waited; send it again.")
BASE64_LINE = f"{headers.STREAM_SSE_DATA_ENCODING.line}base64\r\n"


class LongPoll:
    """Waits until there is something to read, the stream ends, or the time is up; answers once."""

    endless = True

    def __init__(self, exchange: Exchange, read: Read, cursor: int, timeout_seconds: float | None) -> None:
        self._exchange, self._node = exchange, exchange.node
        self._read, self._client_cursor = read, cursor
        self._judged_by = exchange.judged_by
        self._woken = False
        """Whether there may be something to read, and its rights have to be judged first."""
        self._timeout_seconds = timeout_seconds or exchange.context.settings.long_poll_seconds
        self._timer: asyncio.TimerHandle | None = None

    def start(self, page: Page) -> None:
        """Wait for what follows an empty page."""
        self._node.metrics.long_polls += 1
        self._read = self._read.following(page.next_offset, page.incarnation)
        seconds = min(self._timeout_seconds, max(0.0, self._exchange.identity.expires_at - time.monotonic()))
        self._timer = asyncio.get_running_loop().call_later(seconds, self.finish)
        self._node.wait(self._read.name, self)

    def wake(self, shared: Shared) -> None:
        if self._exchange.needs_recheck:
            # After new rules, a signature takes up to 0.1 ms; its next tick judges it, which is one of few in a turn.
            self._woken = True
            return
        if time.monotonic() >= self._exchange.identity.expires_at:
            self._end_without_news()
            return
        page = self._page()
        if isinstance(page, Page) and page.next_offset == page.start and not page.closed:
            return
        self._end(page)

    def finish(self) -> None:
        if self._exchange.may_still_read():
            self._end(self._page())
        else:
            self._end_without_news()

    def _end_without_news(self) -> None:
        """The client may no longer read: answer that there is nothing, even if there is."""
        page = self._node.read_hot(self._read)
        if not isinstance(page, Page):
            self._end(_RIGHTS_CHANGED)
        elif page.next_offset == page.start and not page.closed:
            self._end(page)
        else:
            nothing = page.start, b"", False, None, None, None
            fields = ("next_offset", "body", "closed", "record_first", "record_next", "record")
            self._end(msgspec.structs.replace(page, **dict(zip(fields, nothing, strict=True))))

    def _page(self) -> Reply | asyncio.Task[Reply]:
        return self._node.read(crowding.shorten(self._read, self._exchange.context))

    def _end(self, outcome: Reply | asyncio.Task[Reply]) -> None:
        self.abandon()
        if isinstance(outcome, asyncio.Task):
            outcome.add_done_callback(self._fetched)
        else:
            self._answer(outcome)

    def _fetched(self, task: asyncio.Task[Reply]) -> None:
        if not task.cancelled() and not self._exchange.connection.lost:
            self._answer(task.result())

    def _answer(self, outcome: Reply) -> None:
        if isinstance(outcome, Refusal):
            self._exchange.reply(outcome)
        elif isinstance(outcome, Page):
            exchange, dialect = self._exchange, self._exchange.dialect
            if exchange.judged_by != self._judged_by:  # The rules have changed, and perhaps who may cache this.
                dialect = exchange.context.renew_dialect(dialect, exchange.name)
            exchange.answer(poll_answer(outcome, dialect, self._node.now(), self._client_cursor))

    def abandon(self) -> None:
        self._node.tails.unwatch(self._read.name, self)
        if self._timer is not None:
            self._timer.cancel()

    def tick(self, now: float) -> None:
        if not self._exchange.may_still_read(ticks=True):
            self._end_without_news()
        elif self._woken:
            self._woken = False
            self.wake({})

    def resume(self) -> None:
        pass


def poll_answer(page: Page, dialect: Dialect, now_us: int, client_cursor: int) -> Answer:
    """The answer to a long-poll: the new data, or that there is none."""
    cursor = cursors.advance(now_us, client_cursor, random.random())
    if page.next_offset > page.start:
        return statuses.polled(page, dialect, cursor)
    return statuses.poll_ended(page, dialect, cursor)


class Event(NamedTuple):
    """What every reader at one offset gets: the bytes, the read that follows, and whether that is at the end."""

    following: Read
    data: bytes
    up_to_date: bool
    over: bool


class SseRead:
    """An SSE response: everything from an offset, then new data, until the stream is closed or the time is up."""

    endless = True

    def __init__(self, exchange: Exchange, read: Read, cursor: int, page: Page) -> None:
        self._first: Page | None = page
        self._exchange = exchange
        self._node, self._dialect, self._connection = exchange.node, exchange.dialect, exchange.connection
        self._chunked = exchange.request.takes_chunks
        self._read = read
        # A client that echoes a cursor of the current interval gets a higher one, of its own, until time has caught up.
        self._own_cursor = -1
        self._lines = exchange.with_own_lines(GUARDED_SSE_LINES if exchange.dialect.guarded else SSE_LINES)
        if cursor >= cursors.current(self._node.now()):
            self._own_cursor = cursors.advance(self._node.now(), cursor, random.random())
        settings, now = exchange.context.settings, exchange.context.now
        self._heartbeat_seconds = settings.heartbeat_seconds
        self._ends_at = now + settings.sse_seconds * (0.9 + 0.2 * random.random())
        self._beats_at = now + self._heartbeat_seconds
        self._over = False
        self._context = exchange.context
        self._held_back = False
        """Whether its next page has to wait: for a crowd to end, for the client to pay, or for rights to be judged."""
        self._fetching: asyncio.Task[Reply] | None = None
        self._has_turn = False
        """Whether it will go on in a later turn of the loop."""

    def begin(self) -> None:
        """Send the head and the first page, then wait."""
        # Released here: it is as large as a page, and the response may last for a minute.
        page, self._first = self._first, None
        assert page is not None, "a response begins once"
        text = page.record is not None or content_types.is_text(page.content_type)
        self._node.metrics.sse_reads += 1
        lines = self._lines + statuses.incarnation_line(page.incarnation, self._dialect) + ("" if text else BASE64_LINE)
        if page.record is not None:
            lines += statuses.JSON_EXTENSIONS_LINE
        self._connection.write(self._connection.context.renderer.stream_head(lines, chunked=self._chunked))
        self._exchange.forget_head()
        self._read = self._read.following(page.start, page.incarnation)
        self._send(self._event(page))
        if not self._over:
            self._node.wait(self._read.name, self)
            self._pump({})

    def wake(self, shared: Shared) -> None:
        self._pump(shared)

    def resume(self) -> None:
        if not self._credential_ended():
            self._pump({})

    def _pump(self, shared: Shared) -> None:
        """Send a page if the socket takes one; the next one has to wait until everyone else has had a turn."""
        if self._over or self._connection.write_paused or self._fetching:
            return
        if self._exchange.judged_by != self._context.gate.changes:
            # After new rules, all readers of a stream would be judged in one turn; their ticks do it, a few in each.
            self._held_back = True
            return
        if self._exchange.identity.expires_at < inf and self._credential_ended():
            return
        account = self._exchange.account
        if account is not None and account.reads.level < 0 and account.reads.debt_seconds():
            self._held_back = True
            return
        event = shared.get(self._key()) if self._own_cursor < 0 else None
        if event is None and crowding.must_wait(self._read, self._context):
            self._go_on(self._context.long_pages.wait)
            return
        if event is None:
            page = self._node.read(crowding.shorten(self._read, self._context))
            if isinstance(page, asyncio.Task):
                self._fetching = page
                page.add_done_callback(self._fetched)
                return
            if not self._is_news(page):
                return
            event = self._event(page)
            if self._own_cursor < 0 and not self._context.sending.full:
                shared[self._key()] = event
        crowding.count(len(event.data), self._context)
        if not self._send(event):
            self._go_on(asyncio.get_running_loop().call_soon)

    def _go_on(self, schedule: Callable[[Callable[[], None]], object]) -> None:
        if not self._has_turn:
            self._has_turn = True
            schedule(self._take_turn)

    def _take_turn(self) -> None:
        self._has_turn = False
        self._pump({})

    def _fetched(self, task: asyncio.Task[Reply]) -> None:
        """A page has arrived from the lake: send it and continue."""
        self._fetching = None
        if self._over or task.cancelled() or self._credential_ended():
            return
        page = task.result()
        if self._is_news(page):
            self._send(self._event(page))
        if isinstance(page, Page):
            # No append woke this reader while it waited for the lake.
            self._pump({})

    def _is_news(self, page: Reply) -> TypeGuard[Page]:
        """Whether there is something to send; if not, because of a crowd or because the stream is gone, see to that."""
        if isinstance(page, Page):
            return page.next_offset > page.start or page.closed
        if page is crowding.CROWDED_OUT:
            self._held_back = True
        else:
            self._close()
        return False

    def _key(self) -> tuple[object, ...]:
        """What an event depends on."""
        return self._read, self._chunked, self._dialect.form

    def _event(self, page: Page) -> Event:
        """A page as a data and a control event, the same for all readers at the same offset."""
        over = page.up_to_date and page.closed
        following = self._read.following(page.next_offset, page.incarnation)
        return Event(following, self._framed(self._encode(page, over)), page.up_to_date, over)

    def _send(self, event: Event) -> bool:
        """Send an event; returns whether the reader is up to date then."""
        self._read = event.following
        self._connection.write(event.data)
        if self._exchange.account is not None:
            self._exchange.account.reads.spend(len(event.data))
        if event.over:
            self._close()
        return event.up_to_date

    def _encode(self, page: Page, over: bool) -> bytes:
        offset = render(page.next_offset, self._dialect.form)
        event_id = sse.event_id(offset, self._dialect.log_id, page.incarnation)
        records = None
        if page.record_first is not None and page.record_next is not None:
            records = page.record_first, page.record_next
        control = sse.control_event(
            offset, event_id, self._cursor(), up_to_date=page.up_to_date, closed=over, records=records
        )
        if page.next_offset == page.start:
            return control
        text = page.record is not None or content_types.is_text(page.content_type)
        body = page.body[:-1] if page.record is not None else page.body
        return sse.data_event(body, event_id, text=text) + control

    def _framed(self, data: bytes) -> bytes:
        return rendering.chunk(data) if self._chunked else data

    def _cursor(self) -> int:
        interval = cursors.current(self._node.now())
        if interval >= self._own_cursor:
            self._own_cursor = -1
        return max(interval, self._own_cursor)

    def tick(self, now: float) -> None:
        if self._connection.write_paused or self._credential_ended(ticks=True):
            return
        if self._held_back:
            self._held_back = False
            self._pump({})
        if now >= self._ends_at:
            self._close()
        elif now >= self._beats_at:
            self._beats_at = now + self._heartbeat_seconds
            self._connection.write(self._framed(sse.HEARTBEAT))

    def _credential_ended(self, *, ticks: bool = False) -> bool:
        """End the response if the client may no longer read; a page gets a new credential and resumes."""
        if self._exchange.may_still_read(ticks=ticks):
            return False
        self._tell_offset()
        self._connection.write(self._framed(sse.CREDENTIAL_EXPIRED))
        self._close()
        return True

    def finish(self) -> None:
        self._tell_offset()
        self._close()

    def _tell_offset(self) -> None:
        """Tell the client its offset once more, so that it resumes exactly there."""
        page = self._node.read(self._read)
        if isinstance(page, Page) and not self._connection.write_paused:
            empty = msgspec.structs.replace(page, next_offset=page.start)
            self._connection.write(self._framed(self._encode(empty, over=False)))

    def _close(self) -> None:
        self.abandon()
        if self._chunked:
            self._connection.write(rendering.LAST_CHUNK)
        self._connection.end_sse()

    def abandon(self) -> None:
        self._over = True
        self._node.tails.unwatch(self._read.name, self)
