"""Reading: which request comes next, given what came back.

    catch up    plain reads, page after page, until the response says that it is up to date
    live        SSE. It is opened again whenever it ends: the server turns it over about once a minute
    long-poll   where SSE is not understood, or three times in a row did not last a second (a proxy in between), or
                cannot carry the stream: an event knows one line end only, so text with several lines may not be exact

Data counts when the offset after it has arrived. On SSE that is the control event: data without one is dropped, and
comes again from the last offset. So every byte is given exactly once and in order, however connections end. A response
that names the stream's incarnation is believed, and its name is sent with every later request: bytes of another life of
the stream are never taken for more of this one.
"""

from dataclasses import dataclass, field, replace

from headwater.client import bodies, multipart, pages
from headwater.client.errors import (
    IncarnationChanged,
    OffsetTrimmed,
    ProtocolViolation,
    TransportFailed,
    refusal,
    seconds,
)
from headwater.client.retrying import RETRIED_STATUSES, Failures, RetryPolicy
from headwater.client.sse import EVENT_BYTES_MAX, Event, EventParser
from headwater.client.values import START, Chunk, Live, OnTrimmed
from headwater.client.wire import (
    INCARNATION,
    RETRY_AFTER,
    SSE_ENCODING,
    Emit,
    Pause,
    Program,
    Request,
    Response,
    Shut,
    more,
    now,
    open_response,
    send,
)
from headwater.protocol import content_types

EVENT_STREAM = "text/event-stream"
SSE_SHORT_SECONDS = 1.0
SSE_SHORT_MAX = 3
"""So many connections in a row that were shorter than this, and SSE is given up for long-poll."""
POLL_SHORT_SECONDS = 0.1
"""A long-poll that brought nothing after less than this did not wait."""
SSE_REFUSALS = frozenset({400, 405, 406, 415, 501})
"""What a server without SSE may say to it, after plain reads have worked."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How to read; without `live` reading ends where the stream ends for now."""

    live: Live | None = None
    on_trimmed: OnTrimmed = "raise"
    page_bytes_max: int | None = None
    poll_timeout_ms: int | None = None


@dataclass(slots=True)
class Reader:
    """Where a reader stands; `run` is the program that moves it."""

    url: str
    policy: RetryPolicy
    options: ReadOptions = field(default_factory=ReadOptions)
    offset: str = START
    incarnation: str | None = None
    cursor: str | None = None
    content_type: str = content_types.DEFAULT
    up_to_date: bool = False
    closed: bool = False
    failures: Failures = field(init=False)
    reported_up_to_date: bool = False
    polls_without_wait: int = 0
    sse_short: int = 0
    sse_possible: bool = True

    def __post_init__(self) -> None:
        self.failures = Failures(self.policy)
        self.sse_possible = self.options.live in ("auto", "sse")

    def run(self) -> Program[None]:
        """Read until the end: of the stream if following, of what is there if not."""
        while not self.closed:
            if not self.up_to_date:
                yield from self._plain(self._request())
            elif self.options.live is None:
                return
            elif self.sse_possible:
                yield from self._sse()
            else:
                yield from self._poll()

    # -- Plain reads and long-poll -------------------------------------------------------------------------------------

    def _plain(self, request: Request) -> Program[None]:
        try:
            response = yield from send(request)
        except TransportFailed as error:
            yield from self._recover(error)
            return
        if response.status not in (200, 204):
            yield from self._refused(request, response)
            return
        chunk = pages.page(request, response, self.content_type)
        if chunk.next_offset == self.offset and chunk.empty:
            # Nothing came, and nothing says why: asking again at once would go on for ever.
            chunk = replace(chunk, up_to_date=True)
        yield from self._take(request, response, chunk)
        self.up_to_date = chunk.up_to_date

    def _poll(self) -> Program[None]:
        asked_at, asked_for = (yield from now()), self.offset
        yield from self._plain(self._request(live="long-poll"))
        waited = (yield from now()) - asked_at >= POLL_SHORT_SECONDS
        # A server that does not wait would be asked without end; one that has something is asked again at once.
        self.polls_without_wait = 0 if waited or self.offset != asked_for else self.polls_without_wait + 1
        if self.polls_without_wait > 1 and not self.closed:
            yield Pause(self.policy.delay_seconds(self.polls_without_wait - 1))

    def _take(self, request: Request, response: Response, chunk: Chunk) -> Program[None]:
        self._meet(request, response, chunk.incarnation)
        self.failures.reset()
        self.offset, self.content_type = chunk.next_offset, chunk.content_type
        self.cursor = chunk.cursor or self.cursor
        self.closed = chunk.closed
        # The same news twice is no news: an idle long-poll says nothing.
        news = not chunk.empty or chunk.snapshot is not None or (chunk.up_to_date and not self.reported_up_to_date)
        if news or chunk.closed:
            self.reported_up_to_date = chunk.up_to_date
            yield Emit(chunk)

    def _meet(self, request: Request, response: Response, incarnation: str | None) -> None:
        if incarnation is None:
            return
        if self.incarnation is not None and incarnation != self.incarnation:
            raise IncarnationChanged(request, response.saying(410, "The stream was deleted and made anew."))
        self.incarnation = incarnation

    def _request(self, live: str | None = None) -> Request:
        params = {"offset": self.offset}
        if live is not None:
            params["live"] = live
            if self.cursor is not None:
                params["cursor"] = self.cursor
            if live == "long-poll" and self.options.poll_timeout_ms is not None:
                params["timeout_ms"] = str(self.options.poll_timeout_ms)
        if self.options.page_bytes_max is not None and live != "sse":
            params["max_bytes"] = str(self.options.page_bytes_max)
        headers = {} if self.incarnation is None else {INCARNATION: self.incarnation}
        return Request("GET", self.url, headers, params, waits=live is not None)

    # -- SSE -----------------------------------------------------------------------------------------------------------

    def _sse(self) -> Program[None]:
        request = self._request(live="sse")
        opened = False
        opened_at = yield from now()
        try:
            response = yield from open_response(request)
            if response.status != 200 or pages.media(response) != EVENT_STREAM:
                yield from self._not_sse(request, (yield from pages.whole(response)))
                return
            opened = True
            yield from self._events(request, response)
        except TransportFailed as error:
            if not opened:
                # No answer at all, in all the time there was: something in between may be keeping events back.
                self._count_short(error.sent)
                yield from self._recover(error)
                return
        if self.closed or not self.sse_possible:
            yield Shut()
            return
        short = (yield from now()) - opened_at < SSE_SHORT_SECONDS
        self._count_short(short)
        if short:
            # Each control event begins the count anew, so what is counted are connections that brought nothing.
            if self.failures.next_delay() is None:
                raise TransportFailed(f"Connections for the events of {self.url} do not last.", sent=True)
            yield Pause(self.policy.delay_seconds(self.sse_short))

    def _events(self, request: Request, response: Response) -> Program[None]:
        parser = EventParser()
        decode = response.headers.get(SSE_ENCODING, "").lower() == "base64"
        self._meet(request, response, response.headers.get(INCARNATION))
        pending: list[bytes] = []
        while not self.closed:
            data = yield from more()
            if not data:
                return
            for event in parser.feed(data):
                if event.name == "data":
                    pending.append(pages.decoded(event.data) if decode else event.data)
                    if sum(map(len, pending)) > EVENT_BYTES_MAX:
                        raise ProtocolViolation(f"More than {EVENT_BYTES_MAX} bytes came without a control event.")
                elif event.name == "control":
                    if not decode and self._inexact(pending):
                        self.sse_possible = False
                        return
                    chunk = self._control(event, pending)
                    pending = []
                    yield from self._take(request, response, chunk)

    def _inexact(self, pending: list[bytes]) -> bool:
        """Whether line ends may have become other ones; whoever insists on events takes them as they are."""
        plain_text = not content_types.is_json(self.content_type)
        return self.options.live == "auto" and plain_text and any(b"\n" in data for data in pending)

    def _control(self, event: Event, pending: list[bytes]) -> Chunk:
        control = pages.control_members(event.data)
        closed = control.get("streamClosed") is True
        cursor = control.get("streamCursor")
        return Chunk(
            data=bodies.merge(pending, self.content_type) if pending else b"",
            next_offset=control["streamNextOffset"],
            content_type=self.content_type,
            up_to_date=control.get("upToDate") is True or closed,
            closed=closed,
            incarnation=self.incarnation,
            cursor=cursor if isinstance(cursor, str) else None,
        )

    def _not_sse(self, request: Request, response: Response) -> Program[None]:
        if self.options.live == "auto" and (response.ok or response.status in SSE_REFUSALS):
            self.sse_possible = False
        elif response.ok:
            raise ProtocolViolation(f"{self.url} answered a request for events with {pages.media(response)!r}.")
        else:
            yield from self._refused(request, response)

    def _count_short(self, short: bool) -> None:
        self.sse_short = self.sse_short + 1 if short else 0
        if self.sse_short >= SSE_SHORT_MAX and self.options.live == "auto":
            self.sse_possible = False

    # -- What went wrong -----------------------------------------------------------------------------------------------

    def _recover(self, error: TransportFailed) -> Program[None]:
        # A follower has as much patience before it first reaches the server as later.
        delay = self.failures.next_delay(connected=error.sent or self.options.live is not None)
        if delay is None:
            raise error
        yield Pause(delay)

    def _refused(self, request: Request, response: Response, *, starting_over: bool = False) -> Program[None]:
        error = refusal(request, response)
        if response.status in RETRIED_STATUSES:
            delay = self.failures.next_delay(seconds(response.headers.get(RETRY_AFTER)))
            if delay is None:
                raise error
            yield Pause(delay)
        elif isinstance(error, OffsetTrimmed) and self.options.on_trimmed == "bootstrap" and not starting_over:
            yield from self._bootstrap()
        elif isinstance(error, OffsetTrimmed) and self.options.on_trimmed == "earliest":
            if error.earliest_offset in (None, self.offset):
                raise error
            self.offset = error.earliest_offset
        else:
            raise error

    def _bootstrap(self) -> Program[None]:
        headers = {} if self.incarnation is None else {INCARNATION: self.incarnation}
        request = Request("GET", f"{self.url}/bootstrap", headers)
        try:
            response = yield from send(request)
        except TransportFailed as error:
            yield from self._recover(error)
            return
        if not response.ok:
            yield from self._refused(request, response, starting_over=True)
            return
        chunk = multipart.whole_bootstrap(response, self.content_type)
        yield from self._take(request, response, chunk)
        self.up_to_date = chunk.up_to_date
