"""Following many streams on one connection: what to ask for next, given what has arrived.

Each stream resumes after its own last batch, in the incarnation that the batch was of. A batch is one event, so it has
arrived or it has not, and every byte is returned exactly once and in order, however connections end.
"""

from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from headwater.client import pages
from headwater.client.bodies import encode
from headwater.client.errors import ProtocolViolation, RequestRefused, TransportFailed, refusal, retry_after_seconds
from headwater.client.operations import with_values
from headwater.client.reading import EVENT_STREAM, SSE_SHORT_SECONDS
from headwater.client.retrying import RETRIED_STATUSES, Failures, RetryPolicy
from headwater.client.settings import ClientSettings
from headwater.client.sse import EventParser, SentEvent
from headwater.client.values import START, Chunk, OnRefused
from headwater.client.wire import Emit, Pause, Program, Request, Response, Shut, more, now, open_response
from headwater.protocol import content_types, headers, names
from headwater.protocol.limits import TAIL_STREAMS_MAX
from headwater.protocol.refusals import Refusal

PATH = "/__headwater/tail"
_FIELDS = with_values({headers.CONTENT_TYPE: content_types.JSON})
_PLAIN_TEXT = "text/plain"

T = TypeVar("T")


class _Batch(msgspec.Struct, frozen=True, rename="camel"):
    stream: str
    incarnation: str
    next_offset: str
    up_to_date: bool
    closed: bool
    items: msgspec.Raw = msgspec.Raw()
    text: str | None = None
    base64: str | None = None


class _Refused(msgspec.Struct, frozen=True):
    stream: str
    status: int
    earliest: str | None = None


class _End(msgspec.Struct, frozen=True):
    reason: str


_batch = msgspec.json.Decoder(_Batch)
_refused = msgspec.json.Decoder(_Refused)
_end = msgspec.json.Decoder(_End)


@dataclass(slots=True)
class FollowedStream:
    """One of the streams, and how far it has been read."""

    name: str
    """As the caller calls it."""
    url: str
    offset: str
    failures: Failures
    incarnation: str | None = None
    reported_up_to_date: bool = False

    def take(self, batch: _Batch) -> Chunk | None:
        """The data of a batch; None if there is nothing that the caller does not know."""
        self.failures.reset()
        self.offset, self.incarnation = batch.next_offset, batch.incarnation
        data, content_type = _payload(batch)
        chunk = Chunk(data, batch.next_offset, content_type, batch.up_to_date, batch.closed, batch.incarnation)
        news = not chunk.empty or batch.closed or (batch.up_to_date and not self.reported_up_to_date)
        self.reported_up_to_date = batch.up_to_date
        return chunk if news else None


def _payload(batch: _Batch) -> tuple[bytes, str]:
    if items := bytes(batch.items):
        return items, content_types.JSON
    if batch.text is not None:
        return batch.text.encode(), _PLAIN_TEXT
    try:
        return b64decode(batch.base64 or "", validate=True), content_types.DEFAULT
    except Base64Error as error:
        raise ProtocolViolation(f"The data of {batch.stream!r} is not valid base64: {error}.") from error


def followed(settings: ClientSettings, offsets: Mapping[str, str | None]) -> dict[str, FollowedStream]:
    """The streams that a caller names, by their whole names."""
    if not 1 <= len(offsets) <= TAIL_STREAMS_MAX:
        raise ValueError(f"Follow from 1 to {TAIL_STREAMS_MAX} streams on one connection, not {len(offsets)}.")
    streams: dict[str, FollowedStream] = {}
    for name, offset in offsets.items():
        url = settings.stream_url(name)
        if url == name:
            raise ValueError(f"{name!r} is a URL; name the streams of this client's server.")
        whole = names.parse_whole(name if "/" in name else f"{names.DEFAULT_BUCKET}/{name}")
        if isinstance(whole, Refusal):
            raise ValueError(whole.detail)
        if whole in streams:
            raise ValueError(f"{name!r} and {streams[whole].name!r} are the same stream.")
        streams[whole] = FollowedStream(name, url, offset or START, Failures(settings.follow_retry))
    return streams


@dataclass(slots=True)
class ManyReader:
    """The state of a reader of many streams; `run` is the program that advances it."""

    url: str
    policy: RetryPolicy
    streams: dict[str, FollowedStream]
    """Those that are still followed, by their whole names."""
    on_refused: OnRefused
    offsets: dict[str, str] = field(init=False)
    refused: dict[str, RequestRefused] = field(default_factory=dict)
    failures: Failures = field(init=False)
    connections_short: int = 0

    def __post_init__(self) -> None:
        self.failures = Failures(self.policy)
        self.offsets = {stream.name: stream.offset for stream in self.streams.values()}

    def run(self) -> Program[None]:
        """Emit the name and the chunk of every batch with news, until no stream is left."""
        while self.streams:
            yield from self._connect(self._request())

    def _request(self) -> Request:
        wanted = [
            {"stream": whole, "offset": stream.offset, "incarnation": stream.incarnation}
            for whole, stream in self.streams.items()
        ]
        return Request("POST", self.url, _FIELDS, body=encode({"streams": wanted}), waits=True)

    def _connect(self, request: Request) -> Program[None]:
        opened_at = yield from now()
        opened = False
        pause_seconds = 0.0
        try:
            response = yield from open_response(request)
            if response.status != 200 or pages.media(response) != EVENT_STREAM:
                yield from self._not_events(request, (yield from pages.whole(response)))
                return
            opened = True
            pause_seconds = yield from self._events()
            yield Shut()
        except TransportFailed as error:
            if not opened:
                yield from self._recover(error)
                return
        if not self.streams:
            return
        short = (yield from now()) - opened_at < SSE_SHORT_SECONDS
        self.connections_short = self.connections_short + 1 if short else 0
        if short:
            # Each batch resets the count, so only connections without any are counted.
            if self.failures.next_delay() is None:
                raise TransportFailed(f"Connections for the events of {self.url} do not last.", sent=True)
            pause_seconds = max(pause_seconds, self.policy.delay_seconds(self.connections_short))
        if pause_seconds:
            yield Pause(pause_seconds)

    def _events(self) -> Program[float]:
        """Take events until the response ends; returns how long to wait before the next request."""
        parser = EventParser()
        while data := (yield from more()):
            for event in parser.feed(data):
                if event.name == "batch":
                    yield from self._take(_decoded(_batch, event))
                elif event.name == "refused":
                    pause_seconds = self._refuse(event)
                    if pause_seconds is not None:
                        return pause_seconds
                elif event.name == "end":
                    _decoded(_end, event)
                    return 0.0
        return 0.0

    def _take(self, batch: _Batch) -> Program[None]:
        self.failures.reset()
        stream = self._stream(batch.stream)
        chunk = stream.take(batch)
        self.offsets[stream.name] = stream.offset
        if batch.closed:
            del self.streams[batch.stream]
        if chunk is not None:
            yield Emit((stream.name, chunk))

    def _stream(self, whole: str) -> FollowedStream:
        stream = self.streams.get(whole)
        if stream is None:
            raise ProtocolViolation(f"{self.url} sent an event of {whole!r}, which is not followed.")
        return stream

    # -- Failures ------------------------------------------------------------------------------------------------------

    def _refuse(self, event: SentEvent) -> float | None:
        """Take a refusal of one stream; returns how long to wait before all are asked for again, None if not at all."""
        facts = _decoded(_refused, event)
        stream = self._stream(facts.stream)
        fields = with_values({headers.STREAM_EARLIEST_OFFSET: facts.earliest})
        fields = {name.lower(): value for name, value in fields.items()}
        error = refusal(Request("GET", stream.url), Response(facts.status, fields, event.data))
        if facts.status in RETRIED_STATUSES:
            delay = stream.failures.next_delay()
            if delay is not None:
                return delay
        del self.streams[facts.stream]
        self.refused[stream.name] = error
        if self.on_refused == "raise":
            raise error
        return None

    def _not_events(self, request: Request, response: Response) -> Program[None]:
        if response.ok:
            raise ProtocolViolation(
                f"{response.source(request)} answered a request for events with {pages.media(response)!r}."
            )
        error = refusal(request, response)
        delay = self.failures.next_delay(retry_after_seconds(response), others=response.route.others)
        if response.status not in RETRIED_STATUSES or delay is None:
            raise error
        if delay:
            yield Pause(delay)

    def _recover(self, error: TransportFailed) -> Program[None]:
        delay = self.failures.next_delay(others=error.others)
        if delay is None:
            raise error
        if delay:
            yield Pause(delay)


def _decoded(decoder: "msgspec.json.Decoder[T]", event: SentEvent) -> T:
    try:
        return decoder.decode(event.data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolViolation(f"An event {event.name!r} is not as it should be: {error}.") from error
