"""From a request to what it asks of the node: a command, a fork, a read; or a refusal. Nothing here looks at state."""

import re
from enum import Enum
from functools import lru_cache
from typing import NamedTuple

import msgspec

from headwater.http.requests import Request, parse_query
from headwater.protocol import content_types, cursors, incarnations, json_mode, lifetimes, names, offsets, producers
from headwater.protocol.commands import Ancestry, Append, Create, Delete
from headwater.protocol.lifetimes import FOREVER
from headwater.protocol.limits import NUMBER_MAX, STREAM_SEQ_BYTES_MAX
from headwater.protocol.producers import Producer
from headwater.protocol.queries import Head, Read
from headwater.protocol.refusals import Code, Refusal
from headwater.streams.forking import ForkRequest

FLAT_PREFIX = b"/v1/stream/"
LONG_POLL_MS_MAX = 60_000

_NUMBER = re.compile(r"0|[1-9][0-9]{0,18}")


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


class BadBody(NamedTuple):
    """An append whose body is refused, unless the stream's state has something to say before that."""

    append: Append
    refusal: Refusal


def parse_create(request: Request, name: str, journal: str) -> Create | ForkRequest | Refusal:
    """A PUT of a stream."""
    writer = _parse_writer(request, journal)
    if isinstance(writer, Refusal):
        return writer
    lifetime = lifetimes.parse(request.header(b"stream-ttl"), request.header(b"stream-expires-at"))
    if isinstance(lifetime, Refusal):
        return lifetime
    content_type = request.header(b"content-type")
    if content_type is not None and not content_types.is_valid(content_type):
        content_type = None
    closed = request.says_true(b"stream-closed")
    ancestry = _parse_ancestry(request, content_type, None if lifetime is FOREVER else lifetime)
    if isinstance(ancestry, Refusal):
        return ancestry
    if ancestry is not None:
        return ForkRequest(name, ancestry, closed, request.body, *writer)
    content_type = content_type or content_types.DEFAULT
    payload, ends = request.body, None
    if payload and content_types.is_json(content_type):
        messages = json_mode.split(payload)
        if isinstance(messages, Refusal):
            return messages
        payload, ends = b"".join(messages), json_mode.message_ends(messages)
    return Create(name, content_type, lifetime, closed, payload, ends, *writer)


class _Writer(NamedTuple):
    """Who writes, and under which conditions."""

    seq: str | None
    producer: Producer | None
    incarnation: int | None


def _parse_writer(request: Request, journal: str) -> _Writer | Refusal:
    headers, producer = request.headers, None
    if b"producer-id" in headers or b"producer-epoch" in headers or b"producer-seq" in headers:
        parsed = producers.parse(
            request.header(b"producer-id"), request.header(b"producer-epoch"), request.header(b"producer-seq")
        )
        if isinstance(parsed, Refusal):
            return parsed
        producer = parsed
    seq = request.header(b"stream-seq")
    if seq is not None and len(seq) > STREAM_SEQ_BYTES_MAX:
        return Refusal(Code.INVALID_HEADER, f"Stream-Seq is longer than {STREAM_SEQ_BYTES_MAX} bytes.")
    incarnation = parse_incarnation(request, journal)
    if isinstance(incarnation, Refusal):
        return incarnation
    return _Writer(seq, producer, incarnation)


def _parse_ancestry(
    request: Request, content_type: str | None, lifetime: lifetimes.Lifetime | None
) -> Ancestry | Refusal | None:
    source_path = request.headers.get(b"stream-forked-from")
    offset_text = request.header(b"stream-fork-offset")
    steps_text = request.header(b"stream-fork-sub-offset")
    if source_path is None:
        if offset_text is not None or steps_text is not None:
            return Refusal(Code.INVALID_HEADER, "Stream-Fork-Offset and -Sub-Offset need Stream-Forked-From.")
        return None
    source = parse_source(source_path.strip())
    if isinstance(source, Refusal):
        return source
    offset = None if offset_text is None else offsets.parse(offset_text)
    if offset_text is not None and (offset is None or offset == offsets.NOW):
        return Refusal(Code.INVALID_OFFSET, f"Stream-Fork-Offset {offset_text[:40]!r} is no offset of this server.")
    if steps_text is not None and _NUMBER.fullmatch(steps_text) is None:
        return Refusal(Code.INVALID_HEADER, f"Stream-Fork-Sub-Offset {steps_text[:40]!r} is no whole number.")
    steps = int(steps_text or 0)
    if steps and offset is None:
        return Refusal(
            Code.INVALID_HEADER, "Stream-Fork-Sub-Offset needs Stream-Fork-Offset: nothing follows the tail."
        )
    return Ancestry(source, offset, steps, content_type, lifetime)


def parse_source(path: bytes) -> str | Refusal:
    """The name behind the path of a fork's source."""
    if not path.startswith(FLAT_PREFIX) or names.is_reserved(path[len(FLAT_PREFIX) :]):
        return Refusal(Code.INVALID_HEADER, "Stream-Forked-From must be the path of a stream, /v1/stream/{name}.")
    return names.parse_flat(path[len(FLAT_PREFIX) :])


def parse_append(request: Request, name: str, journal: str) -> Append | BadBody | Refusal:
    """A POST to a stream: an append, a close, or both."""
    body = request.body
    writer = _parse_writer(request, journal)
    if isinstance(writer, Refusal):
        return writer
    close = b"stream-closed" in request.headers and request.says_true(b"stream-closed")
    if not body:
        if not close:
            return Refusal(Code.EMPTY_BODY, "There is nothing to append; send a body, or Stream-Closed: true to close.")
        return Append(name, b"", None, "", True, *writer)
    content_type = request.header(b"content-type")
    if not content_type:
        return Refusal(Code.CONTENT_TYPE_MISSING, "An append needs the Content-Type of its stream.")
    if not content_types.is_json(content_type):
        return Append(name, body, None, content_type, close, *writer)
    messages = json_mode.split(body)
    if not messages:
        messages = Refusal(Code.EMPTY_BODY, "There is nothing to append: the JSON array is empty.")
    if isinstance(messages, Refusal):
        return BadBody(Append(name, body, None, content_type, close, *writer), messages)
    payload, ends = b"".join(messages), json_mode.message_ends(messages)
    return Append(name, payload, ends, content_type, close, *writer)


def parse_delete(request: Request, name: str, journal: str) -> Delete | Refusal:
    """A DELETE of a stream."""
    incarnation = parse_incarnation(request, journal)
    return incarnation if isinstance(incarnation, Refusal) else Delete(name, incarnation)


def parse_head(request: Request, name: str, journal: str) -> Head | Refusal:
    """A HEAD of a stream."""
    incarnation = parse_incarnation(request, journal)
    return incarnation if isinstance(incarnation, Refusal) else Head(name, incarnation)


def parse_incarnation(request: Request, journal: str) -> int | Refusal | None:
    """The life of the stream that a request is meant for, in a header or in the query."""
    text = request.header(b"stream-incarnation")
    if request.query:
        parameters = parse_query(request.query)
        if isinstance(parameters, Refusal):
            return parameters
        in_query = parameters.get("incarnation")
        if text is not None and in_query is not None and text != in_query:
            return Refusal(Code.BAD_REQUEST, "The incarnation in the header is not the one in the query.")
        text = in_query if text is None else text
    return None if text is None else incarnations.parse(journal, text)


class _ReadQuery(NamedTuple):
    """What the query of a GET says; the same for every request that asks it, so it is parsed once."""

    offset: int | None
    live: Live
    cursor: int
    timeout_seconds: float | None
    bytes_max: int | None


@lru_cache(maxsize=4096)
def _parse_read_query(query: bytes) -> _ReadQuery | Refusal:
    parameters = parse_query(query)
    if isinstance(parameters, Refusal):
        return parameters
    live = _LIVE.get(parameters.get("live"))
    if live is None:
        return Refusal(Code.BAD_REQUEST, f"live={parameters['live'][:40]!r} is unknown; use long-poll or sse.")
    token = parameters.get("offset")
    offset = None if token is None else offsets.parse(token)
    if token is not None and offset is None:
        return Refusal(Code.INVALID_OFFSET, f"{token[:60]!r} is no offset; use -1, now, or one you were given.")
    if token is None and "cursor" in parameters:
        return Refusal(Code.BAD_REQUEST, "cursor= needs an offset beside it.")
    timeout_ms = _whole("timeout_ms", parameters, LONG_POLL_MS_MAX)
    if isinstance(timeout_ms, Refusal):
        return timeout_ms
    bytes_max = _whole("max_bytes", parameters, NUMBER_MAX)
    if isinstance(bytes_max, Refusal):
        return bytes_max
    cursor = cursors.parse(parameters.get("cursor"))
    return _ReadQuery(offset, live, cursor, None if timeout_ms is None else timeout_ms / 1000, bytes_max)


def parse_read(request: Request, name: str, journal: str) -> ReadRequest | Refusal:
    """A GET of a stream."""
    parsed = _parse_read_query(request.query)
    if isinstance(parsed, Refusal):
        return parsed
    offset, live, cursor, timeout, bytes_max = parsed
    incarnation = parse_incarnation(request, journal)
    if isinstance(incarnation, Refusal):
        return incarnation
    if live is Live.SSE and b"last-event-id" in request.headers:
        offset, incarnation = _last_event(request, journal) or (offset, incarnation)
    if offset is None:
        if live is not Live.NO:
            return Refusal(
                Code.BAD_REQUEST, "A live read needs an offset; offset=-1 is the beginning, offset=now the end."
            )
        offset = 0
    read = Read(name, offset, incarnation, bytes_max)
    return ReadRequest(read, live, cursor, timeout, request.header(b"if-none-match"))


def _last_event(request: Request, journal: str) -> tuple[int, int] | None:
    """Where a plain EventSource goes on: the offset and incarnation in the last id it saw, if that was one of ours."""
    token, slash, incarnation = (request.header(b"last-event-id") or "").partition("/")
    offset = offsets.parse(token) if slash else None
    return None if offset is None or offset < 0 else (offset, incarnations.parse(journal, incarnation))


def _whole(name: str, parameters: dict[str, str], most: int) -> int | Refusal | None:
    """A parameter that must be a whole number from 1."""
    text = parameters.get(name)
    if text is None:
        return None
    if _NUMBER.fullmatch(text) is None or not 1 <= int(text) <= most:
        return Refusal(Code.BAD_REQUEST, f"{name}={text[:40]!r} must be a whole number from 1 to {most}.")
    return int(text)
