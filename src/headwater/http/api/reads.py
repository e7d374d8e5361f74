"""From a GET of a stream to the read that it asks for, or a refusal. Nothing here looks at state."""

from enum import Enum
from functools import lru_cache
from typing import NamedTuple

import msgspec

from headwater.http.api.parsing import NUMBER, parse_incarnation
from headwater.http.wire.requests import Request, parse_query
from headwater.protocol import cursors, incarnations, offsets
from headwater.protocol.limits import LONG_POLL_MS_MAX, NUMBER_MAX
from headwater.protocol.refusals import Code, Refusal
from headwater.streams.queries import Read, Records

_RECORD_PARAMETERS = frozenset({"record", "tail_records", "max_records", "record_view"})


class Live(Enum):
    """How a read goes on after what is there."""

    NO = None
    LONG_POLL = "long-poll"
    SSE = "sse"


_LIVE = {live.value: live for live in Live}


class ReadRequest(msgspec.Struct, frozen=True, gc=False):
    """A GET: what to read, how live, and the client's conditions."""

    read: Read
    live: Live
    cursor: int
    timeout_seconds: float | None
    if_none_match: str | None


class _ReadQuery(NamedTuple):
    """What the query of a GET says; the same for every request that asks it, so it is parsed once."""

    offset: int | None
    live: Live
    cursor: int
    timeout_seconds: float | None
    bytes_max: int | None
    records: Records | None
    names_incarnation: bool


@lru_cache(maxsize=4096)
def _parse_read_query(query: bytes) -> _ReadQuery | Refusal:
    parameters = parse_query(query)
    if isinstance(parameters, Refusal):
        return parameters
    live = _LIVE.get(parameters.get("live"))
    if live is None:
        return Refusal(Code.BAD_REQUEST, f"live={parameters['live'][:40]!r} is unknown; use long-poll or sse.")
    records = _parse_records(parameters)
    if isinstance(records, Refusal):
        return records
    token = parameters.get("offset")
    offset = None if token is None else offsets.parse(token)
    if token is not None and offset is None:
        return Refusal(Code.INVALID_OFFSET, f"{token[:60]!r} is no offset; use -1, now, or one you were given.")
    if token is None and records is None and "cursor" in parameters:
        return Refusal(Code.BAD_REQUEST, "cursor= needs an offset beside it.")
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


def _parse_records(parameters: dict[str, str]) -> Records | Refusal | None:
    """A read by ordinals: exactly one of `record` and `tail_records`, and nothing that belongs to offsets."""
    if not _RECORD_PARAMETERS & parameters.keys():
        return None
    start, tail = parameters.get("record"), parameters.get("tail_records")
    if (start is None) == (tail is None):
        return Refusal(Code.BAD_REQUEST, "A read by records needs exactly one of record= and tail_records=.")
    if "offset" in parameters or "max_bytes" in parameters:
        return Refusal(Code.BAD_REQUEST, "A read by records goes with neither offset= nor max_bytes=.")
    for name, text in (("record", start), ("tail_records", tail)):
        if text is not None and not (name == "record" and text == "now") and NUMBER.fullmatch(text) is None:
            return Refusal(Code.BAD_REQUEST, f"{name}={text[:40]!r} is no whole number.")
    most = _whole("max_records", parameters, NUMBER_MAX)
    if isinstance(most, Refusal):
        return most
    view = parameters.get("record_view")
    if view not in (None, "envelope"):
        return Refusal(Code.BAD_REQUEST, f"record_view={view[:40]!r} is unknown; use envelope.")
    first = None if start is None else offsets.NOW if start == "now" else int(start)
    return Records(first, None if tail is None else int(tail), most, view is not None)


_READ_HEADERS = frozenset({b"stream-incarnation", b"last-event-id", b"if-none-match"})


def parse_read(request: Request, name: str, log_id: str) -> ReadRequest | Refusal:
    """A GET of a stream."""
    if _READ_HEADERS.isdisjoint(request.headers):
        return _parse_plain_read(request.query, name, log_id)
    return _parse_read(request, name, log_id)


@lru_cache(maxsize=4096)
def _parse_plain_read(query: bytes, name: str, log_id: str) -> ReadRequest | Refusal:
    """A GET that says everything in its URL: readers of one stream come with the same one."""
    return _parse_read(Request(b"GET", b"", b"", query, {}, b""), name, log_id)


def _parse_read(request: Request, name: str, log_id: str) -> ReadRequest | Refusal:
    parsed = _parse_read_query(request.query)
    if isinstance(parsed, Refusal):
        return parsed
    offset, live, cursor, timeout, bytes_max, records, named = parsed
    incarnation = None
    if named or b"stream-incarnation" in request.headers:
        meant = parse_incarnation(request, log_id)
        if isinstance(meant, Refusal):
            return meant
        incarnation = meant
    if live is Live.SSE and b"last-event-id" in request.headers:
        resumed = _last_event(request, log_id)
        if resumed is not None:
            offset, incarnation = resumed
            records = None if records is None else Records(None, None, records.most, records.envelope)
    if offset is None:
        if live is not Live.NO:
            return Refusal(
                Code.BAD_REQUEST, "A live read needs an offset; offset=-1 is the beginning, offset=now the end."
            )
        offset = 0
    read = Read(name, offset, incarnation, bytes_max, records)
    return ReadRequest(read, live, cursor, timeout, request.header(b"if-none-match"))


def _last_event(request: Request, log_id: str) -> tuple[int, int] | None:
    """Where a plain EventSource goes on: the offset and incarnation in the last id it saw, if that was one of ours."""
    token, slash, incarnation = (request.header(b"last-event-id") or "").partition("/")
    offset = offsets.parse(token) if slash else None
    return None if offset is None or offset < 0 else (offset, incarnations.parse(log_id, incarnation))


def _whole(name: str, parameters: dict[str, str], most: int) -> int | Refusal | None:
    """A parameter that must be a whole number from 1."""
    text = parameters.get(name)
    if text is None:
        return None
    if NUMBER.fullmatch(text) is None or not 1 <= int(text) <= most:
        return Refusal(Code.BAD_REQUEST, f"{name}={text[:40]!r} must be a whole number from 1 to {most}.")
    return int(text)
