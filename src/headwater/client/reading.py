"""Reading: which request comes next, given the last response.

    catch up    plain reads, page after page, until a response says that it is up to date
    live        SSE, reopened whenever it ends: the server ends it about once a minute
    long-poll   if SSE is not supported, or three connections in a row lasted less than a second (because of a proxy),
                or events cannot carry the stream: they have only one kind of line end, so text with several lines may
                change

Data counts once the offset after it has arrived. On SSE that is the control event: data without one is dropped, and is
read again from the last offset. So every byte is returned exactly once and in order, however connections end. The
incarnation that a response names is sent with every later request: data of another incarnation of the stream is never
mistaken for a continuation of this one.
"""

from dataclasses import dataclass, field, replace

from headwater.client import bodies, multipart, pages
from headwater.client.errors import (
    IncarnationChanged,
    OffsetTrimmed,
    ProtocolViolation,
    TransportFailed,
    refusal,
    retry_after_seconds,
)
from headwater.client.operations import with_parameters, with_values
from headwater.client.retrying import RETRIED_STATUSES, Failures, RetryPolicy
from headwater.client.sse import EVENT_BYTES_MAX, EventParser, SentEvent
from headwater.client.values import START, Chunk, Live, OnTrimmed
from headwater.client.wire import (
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
from headwater.protocol import content_types, headers

EVENT_STREAM = "text/event-stream"
SSE_SHORT_SECONDS = 1.0
SSE_SHORT_MAX = 3
"""After this many connections in a row that were shorter than `SSE_SHORT_SECONDS`, long-poll replaces SSE."""
CREDENTIAL_EXPIRED = "credential-expired"
"""The event with which a server ends a response because the token has expired."""
POLL_SHORT_SECONDS = 0.1
"""A long-poll that returned nothing in less time did not wait."""
SSE_REFUSALS = frozenset({400, 405, 406, 415, 501})
"""How a server without SSE may refuse it, after plain reads have worked."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How to read; without `live`, reading ends at the current end of the stream."""

    live: Live | None = None
    on_trimmed: OnTrimmed = "raise"
    page_bytes_max: int | None = None
    poll_timeout_ms: int | None = None


@dataclass(slots=True)
class Reader:
    """The state of a reader; `run` is the program that advances it."""

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
        """Read to the current end, or to the end of the closed stream if following."""
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
            # An empty response that does not say that it is up to date would be requested endlessly.
            chunk = replace(chunk, up_to_date=True)
        yield from self._take(request, response, chunk)
        self.up_to_date = chunk.up_to_date

    def _poll(self) -> Program[None]:
        started_at, started_offset = (yield from now()), self.offset
        yield from self._plain(self._request(live="long-poll"))
        waited = (yield from now()) - started_at >= POLL_SHORT_SECONDS
        # Without a pause, a server that does not wait would get endless requests. One that has data is asked at once.
        progress = waited or self.offset != started_offset
        self.polls_without_wait = 0 if progress else self.polls_without_wait + 1
        if self.polls_without_wait > 1 and not self.closed:
            yield Pause(self.policy.delay_seconds(self.polls_without_wait - 1))

    def _take(self, request: Request, response: Response, chunk: Chunk) -> Program[None]:
        self._check_incarnation(request, response, chunk.incarnation)
        self.failures.reset()
        self.offset, self.content_type = chunk.next_offset, chunk.content_type
        self.cursor = chunk.cursor or self.cursor
        self.closed = chunk.closed
        # An idle long-poll says nothing new, and the caller does not see it.
        news = not chunk.empty or chunk.snapshot is not None or (chunk.up_to_date and not self.reported_up_to_date)
        if news or chunk.closed:
            self.reported_up_to_date = chunk.up_to_date
            yield Emit(chunk)

    def _check_incarnation(self, request: Request, response: Response, incarnation: str | None) -> None:
        if incarnation is None:
            return
        if self.incarnation is not None and incarnation != self.incarnation:
            raise IncarnationChanged(request, response.restated(410, "The stream was deleted and created again."))
        self.incarnation = incarnation

    def _request(self, live: str | None = None) -> Request:
        polling = live == "long-poll"
        params = with_parameters(
            offset=self.offset,
            live=live,
            cursor=None if live is None else self.cursor,
            timeout_ms=self.options.poll_timeout_ms if polling else None,
            max_bytes=None if live == "sse" else self.options.page_bytes_max,
        )
        return Request("GET", self.url, self._fields(), params, waits=live is not None)

    def _fields(self) -> dict[str, str]:
        return with_values({headers.STREAM_INCARNATION: self.incarnation})

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
                # No response before the timeout: a proxy may be holding events back.
                self._count_short(error.sent)
                yield from self._recover(error)
                return
        if self.closed or not self.sse_possible:
            yield Shut()
            return
        short = (yield from now()) - opened_at < SSE_SHORT_SECONDS
        self._count_short(short)
        if short:
            # Each control event resets the count, so only connections without any are counted.
            if self.failures.next_delay() is None:
                raise TransportFailed(f"Connections for the events of {self.url} do not last.", sent=True)
            yield Pause(self.policy.delay_seconds(self.sse_short))

    def _events(self, request: Request, response: Response) -> Program[None]:
        parser = EventParser()
        decode = (response.header(headers.STREAM_SSE_DATA_ENCODING) or "").lower() == "base64"
        self._check_incarnation(request, response, response.header(headers.STREAM_INCARNATION))
        pending: list[bytes] = []
        while not self.closed:
            data = yield from more()
            if not data:
                return
            for event in parser.feed(data):
                if event.name == "data":
                    pending.append(pages.decoded(event.data) if decode else event.data)
                    if sum(map(len, pending)) > EVENT_BYTES_MAX:
                        raise ProtocolViolation(f"More than {EVENT_BYTES_MAX} bytes arrived without a control event.")
                elif event.name == "control":
                    if not decode and self._inexact(pending):
                        self.sse_possible = False
                        return
                    chunk = self._control(event, pending)
                    pending = []
                    yield from self._take(request, response, chunk)
                elif event.name == CREDENTIAL_EXPIRED:
                    # The next request has another token, or is refused.
                    yield Shut()
                    return

    def _inexact(self, pending: list[bytes]) -> bool:
        """Whether line ends may have changed; `live="sse"` accepts that."""
        plain_text = not content_types.is_json(self.content_type)
        return self.options.live == "auto" and plain_text and any(b"\n" in data for data in pending)

    def _control(self, event: SentEvent, pending: list[bytes]) -> Chunk:
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
            raise ProtocolViolation(
                f"{response.source(request)} answered a request for events with {pages.media(response)!r}."
            )
        else:
            yield from self._refused(request, response)

    def _count_short(self, short: bool) -> None:
        self.sse_short = self.sse_short + 1 if short else 0
        if self.sse_short >= SSE_SHORT_MAX and self.options.live == "auto":
            self.sse_possible = False

    # -- Failures ------------------------------------------------------------------------------------------------------

    def _recover(self, error: TransportFailed) -> Program[None]:
        # A follower has as much patience before it first reaches the server as later.
        connected = error.sent or self.options.live is not None
        delay = self.failures.next_delay(connected=connected, others=error.others)
        if delay is None:
            raise error
        if delay:
            yield Pause(delay)

    def _refused(self, request: Request, response: Response, *, starting_over: bool = False) -> Program[None]:
        error = refusal(request, response)
        if response.status in RETRIED_STATUSES:
            delay = self.failures.next_delay(retry_after_seconds(response), others=response.route.others)
            if delay is None:
                raise error
            if delay:
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
        request = Request("GET", f"{self.url}/bootstrap", self._fields())
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
