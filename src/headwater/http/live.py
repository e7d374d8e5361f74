"""Live reads: a long-poll that waits for one page, an SSE stream that goes on.

Both wait on the node's tails and are woken once per commit batch. What many readers of one stream would encode alike
is encoded once per wake and shared. A reader that does not keep up gets nothing more until its socket has drained,
then goes on from its own offset; so it never costs more memory than the socket's buffer, and the server drops it
after a while.
"""

import asyncio
import random
from collections.abc import Callable
from typing import Protocol

from headwater.http import rendering
from headwater.http.parsing import ReadRequest
from headwater.node.node import Node
from headwater.node.tails import Shared
from headwater.protocol import content_types, cursors, sse, statuses
from headwater.protocol.offsets import render
from headwater.protocol.queries import Read
from headwater.protocol.refusals import Refusal
from headwater.protocol.replies import Page
from headwater.protocol.statuses import Answer, Voice

SSE_LINES = "Content-Type: text/event-stream\r\nCache-Control: no-cache\r\nX-Accel-Buffering: no\r\n"
BASE64_LINE = "Stream-SSE-Data-Encoding: base64\r\n"


class LiveRead(Protocol):
    """What a connection and the server need of a read that goes on."""

    def tick(self, now: float) -> None:
        """About once a second: time-outs, heartbeats."""

    def resume(self) -> None:
        """The socket has room again."""

    def finish(self) -> None:
        """End cleanly: the server shuts down."""

    def abandon(self) -> None:
        """The client is gone."""


class LongPoll:
    """Waits until there is something to read, the stream ends, or the time is over; answers once."""

    def __init__(
        self, node: Node, voice: Voice, request: ReadRequest, timeout_seconds: float, answer: Callable[[Answer], None]
    ) -> None:
        self._node, self._voice, self._answer = node, voice, answer
        self._read, self._client_cursor = request.read, request.cursor
        self._timeout_seconds = timeout_seconds
        self._timer: asyncio.TimerHandle | None = None

    def start(self, page: Page) -> None:
        """Wait behind a page that was empty."""
        self._read = Read(self._read.name, page.next_offset, page.incarnation)
        self._timer = asyncio.get_running_loop().call_later(self._timeout_seconds, self.finish)
        self._node.wait(self._read.name, self)

    def wake(self, shared: Shared) -> None:
        page = self._node.read(self._read)
        if isinstance(page, Page) and page.next_offset == page.start and not page.closed:
            return
        self._end(page)

    def finish(self) -> None:
        self._end(self._node.read(self._read))

    def _end(self, outcome: object) -> None:
        self.abandon()
        if isinstance(outcome, Refusal):
            self._answer(statuses.answer(outcome, self._voice))
        elif isinstance(outcome, Page):
            self._answer(poll_answer(outcome, self._voice, self._node.now(), self._client_cursor))

    def abandon(self) -> None:
        self._node.tails.unwatch(self._read.name, self)
        if self._timer is not None:
            self._timer.cancel()

    def tick(self, now: float) -> None:
        pass

    def resume(self) -> None:
        pass


def poll_answer(page: Page, voice: Voice, now_us: int, client_cursor: int) -> Answer:
    """What a long-poll says: the data that there is, or that there is none."""
    cursor = cursors.advance(now_us, client_cursor, random.random())
    if page.next_offset > page.start:
        return statuses.polled(page, voice, cursor)
    return statuses.poll_ended(page, voice, cursor)


class SseRead:
    """An SSE response: everything from an offset on, then whatever comes, until it is closed or its time is over."""

    def __init__(self, node: Node, voice: Voice, request: ReadRequest, connection: "SseConnection", now: float) -> None:
        self._node, self._voice, self._connection = node, voice, connection
        self._read = request.read
        # A client that echoes a cursor of the current interval gets one above it, alone, until time has caught up.
        interval = cursors.current(node.now())
        self._own_cursor = -1
        if request.cursor >= interval:
            self._own_cursor = cursors.advance(node.now(), request.cursor, random.random())
        self._ends_at = now + connection.sse_seconds * (0.9 + 0.2 * random.random())
        self._beats_at = now + connection.heartbeat_seconds
        self._behind = False
        self._over = False

    def start(self, page: Page) -> None:
        """Send the head and what there is, then wait."""
        text = content_types.is_text(page.content_type)
        lines = SSE_LINES if text else SSE_LINES + BASE64_LINE
        self._connection.write(rendering.stream_head(lines, chunked=self._connection.chunked))
        self._read = Read(self._read.name, page.start, page.incarnation)
        self._send(page, {})
        if not self._over:
            self._node.wait(self._read.name, self)
            self._pump({})

    def wake(self, shared: Shared) -> None:
        self._pump(shared)

    def resume(self) -> None:
        self._pump({})

    def _pump(self, shared: Shared) -> None:
        """Send page after page until the tail, as far as the socket takes them."""
        while not self._over:
            if self._connection.write_paused:
                self._behind = True
                return
            self._behind = False
            event = shared.get((self._read.offset, self._connection.chunked)) if self._own_cursor < 0 else None
            if event is not None:
                self._read, data, over = event
                self._write(data, over)
                continue
            page = self._node.read(self._read)
            if not isinstance(page, Page):
                self._close()
                return
            if page.next_offset == page.start and not page.closed:
                return
            self._send(page, shared)

    def _send(self, page: Page, shared: Shared) -> None:
        """Encode a page as a data and a control event, for all who stand at the same offset."""
        over = page.up_to_date and page.closed
        data = self._encode(page, over)
        if self._connection.chunked:
            data = rendering.chunk(data)
        following = Read(self._read.name, page.next_offset, page.incarnation)
        if self._own_cursor < 0:
            shared[page.start, self._connection.chunked] = (following, data, over)
        self._read = following
        self._write(data, over)

    def _encode(self, page: Page, over: bool) -> bytes:
        offset = render(page.next_offset, self._voice.form)
        event_id = sse.event_id(offset, self._voice.journal, page.incarnation)
        control = sse.control_event(offset, event_id, self._cursor(), up_to_date=page.up_to_date, closed=over)
        if page.next_offset == page.start:
            return control
        text = content_types.is_text(page.content_type)
        return sse.data_event(page.body, event_id, text=text) + control

    def _cursor(self) -> int:
        interval = cursors.current(self._node.now())
        if interval >= self._own_cursor:
            self._own_cursor = -1
        return max(interval, self._own_cursor)

    def _write(self, data: bytes, over: bool) -> None:
        self._connection.write(data)
        if over:
            self._close()

    def tick(self, now: float) -> None:
        if now >= self._ends_at and not self._behind:
            self._close()
        elif now >= self._beats_at:
            self._beats_at = now + self._connection.heartbeat_seconds
            if not self._connection.write_paused:
                beat = sse.HEARTBEAT
                self._connection.write(rendering.chunk(beat) if self._connection.chunked else beat)

    def finish(self) -> None:
        page = self._node.read(self._read)
        if isinstance(page, Page) and not self._connection.write_paused:
            offset = render(self._read.offset, self._voice.form)
            event_id = sse.event_id(offset, self._voice.journal, page.incarnation)
            at_tail = page.next_offset == page.start
            last = sse.control_event(offset, event_id, self._cursor(), up_to_date=at_tail, closed=False)
            self._connection.write(rendering.chunk(last) if self._connection.chunked else last)
        self._close()

    def _close(self) -> None:
        self.abandon()
        self._connection.end_sse()

    def abandon(self) -> None:
        self._over = True
        self._node.tails.unwatch(self._read.name, self)


class SseConnection(Protocol):
    """What an SSE read needs of its connection."""

    sse_seconds: float
    heartbeat_seconds: float
    chunked: bool
    write_paused: bool

    def write(self, data: bytes) -> None: ...

    def end_sse(self) -> None: ...
