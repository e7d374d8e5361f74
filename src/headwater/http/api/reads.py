"""Reads of a stream: once, by long-poll or by SSE; from an offset or from a record."""

from asyncio import Task
from enum import Enum
from functools import lru_cache, partial
from typing import NamedTuple

import msgspec

from headwater.http.api.conditions import NUMBER, parse_incarnation
from headwater.http.api.live import LongPoll, SseRead, poll_answer
from headwater.http.exchange import crowding
from headwater.http.exchange.exchange import LIVE, READ, Exchange
from headwater.http.wire import statuses
from headwater.http.wire.addresses import Address
from headwater.http.wire.requests import CACHED_BYTES_MAX, Request, parse_query
from headwater.protocol import cursors, etags, headers, incarnations, offsets
from headwater.protocol.limits import LONG_POLL_MS_MAX, NUMBER_MAX
from headwater.protocol.offsets import Form
from headwater.protocol.refusals import Code, Refusal
from headwater.streams.queries import Read, Records
from headwater.streams.replies import Page, Reply

_INCARNATION = headers.STREAM_INCARNATION.key
_IF_NONE_MATCH, _LAST_EVENT_ID = headers.IF_NONE_MATCH.key, headers.LAST_EVENT_ID.key
_RECORD_PARAMETERS = frozenset({"record", "tail_records", "max_records", "record_view"})


class Live(Enum):
    """How a read continues at the tail."""

    NO = None
    LONG_POLL = "long-poll"
    SSE = "sse"


_LIVE = {live.value: live for live in Live}
_NOT_LIVE = Live.NO  # Looking up an enum's member costs a function call each time; this name costs none.


class ReadRequest(msgspec.Struct, frozen=True, gc=False):
    """A GET of a stream: what to read, how live, and the client's conditions."""

    read: Read
    live: Live
    cursor: int
    timeout_seconds: float | None
    if_none_match: str | None


class _ReadQuery(NamedTuple):
    """The parsed query of a GET; many requests have the same one, so it is parsed once."""

    offset: int | None
    live: Live
    cursor: int
    timeout_seconds: float | None
    bytes_max: int | None
    records: Records | None
    names_incarnation: bool


def _parse_read_query(query: bytes, form: Form) -> _ReadQuery | Refusal:
    parameters = parse_query(query)
    if isinstance(parameters, Refusal):
        return parameters
    live = _LIVE.get(parameters.get("live"))
    if live is None:
        return Refusal(Code.BAD_REQUEST, f"live={parameters['live'][:40]!r} is not supported; use long-poll or sse.")
    records = _parse_records(parameters)
    if isinstance(records, Refusal):
        return records
    token = parameters.get("offset")
    offset = None if token is None else offsets.parse(token, form)
    if token is not None and offset is None:
        return Refusal(Code.INVALID_OFFSET, f"{token[:60]!r} is not an offset; use -1, now, or one from a response.")
    if token is None and records is None and "cursor" in parameters:
        return Refusal(Code.BAD_REQUEST, "cursor= requires offset=.")
    timeout_ms = _whole("timeout_ms", parameters, LONG_POLL_MS_MAX)
    if isinstance(timeout_ms, Refusal):
        return timeout_ms
    bytes_max = _whole("max_bytes", parameters, NUMBER_MAX)
    if isinstance(bytes_max, Refusal):
        return bytes_max
    cursor = cursors.parse(parameters.get("cursor"))
    timeout = None if timeout_ms is None else timeout_ms / 1000
    offset = 0 if records is not None else offset
    return _ReadQuery(offset, live, cursor, timeout, bytes_max, records, "incarnation" in parameters)


_parse_short_query = lru_cache(maxsize=4096)(_parse_read_query)


def _parse_records(parameters: dict[str, str]) -> Records | Refusal | None:
    """A read by record numbers: exactly one of `record` and `tail_records`, and no parameter for offsets."""
    if not _RECORD_PARAMETERS & parameters.keys():
        return None
    start, tail = parameters.get("record"), parameters.get("tail_records")
    if (start is None) == (tail is None):
        return Refusal(Code.BAD_REQUEST, "A read by records needs exactly one of record= and tail_records=.")
    if "offset" in parameters or "max_bytes" in parameters:
        return Refusal(Code.BAD_REQUEST, "A read by records cannot be combined with offset= or max_bytes=.")
    for name, text in (("record", start), ("tail_records", tail)):
        if text is not None and not (name == "record" and text == "now") and NUMBER.fullmatch(text) is None:
            return Refusal(Code.BAD_REQUEST, f"{name}={text[:40]!r} is not a whole number.")
    most = _whole("max_records", parameters, NUMBER_MAX)
    if isinstance(most, Refusal):
        return most
    view = parameters.get("record_view")
    if view not in (None, "envelope"):
        return Refusal(Code.BAD_REQUEST, f"record_view={view[:40]!r} is not supported; use envelope.")
    first = None if start is None else offsets.NOW if start == "now" else int(start)
    return Records(first, None if tail is None else int(tail), most, view is not None)


def parse_read(request: Request, name: str, log_id: str, form: Form) -> ReadRequest | Refusal:
    """The read that a GET of a stream asks for."""
    query = request.query
    parsed = _parse_short_query(query, form) if len(query) <= CACHED_BYTES_MAX else _parse_read_query(query, form)
    if isinstance(parsed, Refusal):
        return parsed
    offset, live, cursor, timeout, bytes_max, records, named = parsed
    incarnation = None
    if named or _INCARNATION in request.headers:
        meant = parse_incarnation(request, log_id)
        if isinstance(meant, Refusal):
            return meant
        incarnation = meant
    if live is Live.SSE and _LAST_EVENT_ID in request.headers:
        resumed = _last_event(request, log_id)
        if resumed is not None:
            offset, incarnation = resumed
            records = None if records is None else Records(None, None, records.most, records.envelope)
    if offset is None:
        if live is not Live.NO:
            return Refusal(Code.BAD_REQUEST, "A live read requires offset=: -1 for the beginning, now for the tail.")
        offset = 0
    read = Read(name, offset, incarnation, bytes_max, records)
    return ReadRequest(read, live, cursor, timeout, request.header(_IF_NONE_MATCH))


def _last_event(request: Request, log_id: str) -> tuple[int, int] | None:
    """Where an EventSource resumes: the offset and incarnation in the last event id, if the id is one of ours."""
    token, slash, incarnation = (request.header(_LAST_EVENT_ID) or "").partition("/")
    offset = offsets.parse_position(token) if slash else None
    return None if offset is None else (offset, incarnations.parse(log_id, incarnation))


def _whole(name: str, parameters: dict[str, str], most: int) -> int | Refusal | None:
    """A parameter that must be a whole number from 1."""
    text = parameters.get(name)
    if text is None:
        return None
    if NUMBER.fullmatch(text) is None or not 1 <= int(text) <= most:
        return Refusal(Code.BAD_REQUEST, f"{name}={text[:40]!r} is not a whole number from 1 to {most}.")
    return int(text)


# -- Answering --------------------------------------------------------------------------------------------------------


def read(request: Request, address: Address, exchange: Exchange) -> None:
    """Read a stream: what is there, and what follows if the read is live."""
    parsed = parse_read(request, address.name, exchange.dialect.log_id, exchange.dialect.form)
    if isinstance(parsed, Refusal):
        exchange.reply(parsed)
    else:
        kind = READ if parsed.live is _NOT_LIVE else LIVE
        exchange.run_at_once(kind, _read_fresh if exchange.node.shared else _read, parsed, exchange)


def _read_fresh(request: ReadRequest, exchange: Exchange) -> None:
    """Read behind a barrier, except a page that ends before the tail: nothing that another node did can change it."""
    read, node = request.read, exchange.node
    if request.live is _NOT_LIVE and not read.from_now and not node.reaches_tail(read):
        page = node.read_hot(read)
        if isinstance(page, Page) and not page.up_to_date:
            _read(request, exchange)
            return
    exchange.behind_barrier(partial(_read, request, exchange))


def _read(request: ReadRequest, exchange: Exchange) -> None:
    if crowding.must_wait(request.read, exchange.context):
        exchange.wait_in_line(partial(_read, request, exchange))
        return
    full = exchange.context.sending.full
    page = exchange.node.read(crowding.shorten(request.read, exchange.context) if full else request.read)
    if isinstance(page, Task):
        exchange.wait_for(page, partial(_answer, request, exchange))
    else:
        _answer(request, exchange, page)


def _answer(request: ReadRequest, exchange: Exchange, page: Reply) -> None:
    if not isinstance(page, Page):
        exchange.reply(page)
        return
    crowding.count(len(page.body), exchange.context)
    if request.live is _NOT_LIVE:
        _catch_up(request, page, exchange)
    elif exchange.node.tails.full:
        exchange.refuse(Code.WAITERS_TOO_MANY, "Too many live readers are connected; try again in a second.")
    elif (refusal := exchange.take_live_slots()) is not None:
        exchange.reply(refusal)
    elif request.live is Live.SSE:
        sse = SseRead(exchange, request.read, request.cursor, page)
        exchange.connection.take_over(exchange, sse)
    elif page.next_offset > page.start or page.closed or exchange.context.draining:
        exchange.answer(poll_answer(page, exchange.dialect, exchange.node.now(), request.cursor))
    else:
        poll = LongPoll(exchange, request.read, request.cursor, request.timeout_seconds)
        exchange.connection.go_live(exchange, poll)
        poll.start(page)


def _catch_up(request: ReadRequest, page: Page, exchange: Exchange) -> None:
    if request.read.from_now:
        exchange.answer(statuses.from_now(page, exchange.dialect))
        return
    if request.if_none_match is not None:
        etag = etags.render(
            exchange.dialect.log_id, page.incarnation, page.start, page.next_offset, page.closed and page.up_to_date
        )
        if etags.matches(request.if_none_match, etag):
            exchange.answer(statuses.not_modified(page, exchange.dialect))
            return
    exchange.answer_page(page)
