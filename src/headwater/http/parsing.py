"""From a request to what it asks of the node: a command, a fork, a read; or a refusal. Nothing here looks at state."""

import re
from enum import Enum
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from headwater.http import addresses
from headwater.http.addresses import Address, Resource
from headwater.http.requests import Request, parse_query
from headwater.protocol import (
    content_types,
    cursors,
    etags,
    framing,
    incarnations,
    json_mode,
    lifetimes,
    offsets,
    producers,
)
from headwater.protocol.commands import Ancestry, Append, Create, Delete, SetAttrs, Version
from headwater.protocol.lifetimes import FOREVER
from headwater.protocol.limits import ATTRS_BYTES_MAX, NUMBER_MAX, STREAM_SEQ_BYTES_MAX
from headwater.protocol.producers import Producer
from headwater.protocol.queries import Head, Read, Records
from headwater.protocol.refusals import Code, Refusal
from headwater.protocol.replies import Duplicate
from headwater.streams.forking import ForkRequest

LONG_POLL_MS_MAX = 60_000

_NUMBER = re.compile(r"0|[1-9][0-9]{0,18}")
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


class BadBody(NamedTuple):
    """An append whose body is refused, unless the stream's state has something to say before that."""

    append: Append
    refusal: Refusal


def parse_create(request: Request, address: Address, journal: str) -> Create | ForkRequest | Refusal:
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
    attrs = _parse_attrs_header(request)
    if isinstance(attrs, Refusal):
        return attrs
    ancestry = _parse_ancestry(request, content_type, None if lifetime is FOREVER else lifetime)
    if isinstance(ancestry, Refusal):
        return ancestry
    name, needs_bucket = address.name, not address.flat
    if ancestry is not None:
        return ForkRequest(name, ancestry, closed, request.body, *writer, attrs, needs_bucket)
    content_type = content_type or content_types.DEFAULT
    payload, ends = request.body, None
    if payload and content_types.is_json(content_type):
        messages = json_mode.split(payload)
        if isinstance(messages, Refusal):
            return messages
        payload, ends = b"".join(messages), json_mode.message_ends(messages)
    return Create(name, content_type, lifetime, closed, payload, ends, *writer, attrs, needs_bucket)


class _Writer(NamedTuple):
    """Who writes, and under which conditions."""

    seq: str | None
    producer: Producer | None
    incarnation: int | None


_ANYBODY = _Writer(None, None, None)
_WRITER_HEADERS = frozenset({b"producer-id", b"producer-epoch", b"producer-seq", b"stream-seq", b"stream-incarnation"})


def _parse_writer(request: Request, journal: str) -> _Writer | Refusal:
    headers, producer = request.headers, None
    if _WRITER_HEADERS.isdisjoint(headers) and not request.query:
        return _ANYBODY
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
    """The name behind the path of a fork's source, on whichever surface."""
    address = addresses.parse(path)
    if isinstance(address, Refusal) or address.resource is not Resource.STREAM:
        return Refusal(Code.INVALID_HEADER, "Stream-Forked-From must be the path of a stream, as in its URL.")
    return address.name


def parse_append(request: Request, name: str, journal: str) -> Append | BadBody | Refusal:
    """A POST to a stream: an append, a close, or both."""
    body, headers = request.body, request.headers
    writer = _parse_writer(request, journal)
    if isinstance(writer, Refusal):
        return writer
    conditions: tuple[Any, ...] = ()
    if b"if-match" in headers or b"stream-record-match" in headers:
        parsed = _parse_conditions(request, journal)
        if isinstance(parsed, Refusal):
            return parsed
        conditions = parsed
    close = b"stream-closed" in headers and request.says_true(b"stream-closed")
    if not body:
        if not close:
            return Refusal(Code.EMPTY_BODY, "There is nothing to append; send a body, or Stream-Closed: true to close.")
        return Append(name, b"", None, "", True, *writer, *conditions)
    content_type = request.header(b"content-type")
    if not content_type:
        return Refusal(Code.CONTENT_TYPE_MISSING, "An append needs the Content-Type of its stream.")
    if not content_types.is_json(content_type):
        return Append(name, body, None, content_type, close, *writer, *conditions)
    messages = _messages(body)
    if isinstance(messages, Refusal):
        return BadBody(Append(name, body, None, content_type, close, *writer, *conditions), messages)
    payload, ends = b"".join(messages), json_mode.message_ends(messages)
    return Append(name, payload, ends, content_type, close, *writer, *conditions)


def _messages(body: bytes) -> list[bytes] | Refusal:
    messages = json_mode.split(body)
    return messages or Refusal(Code.EMPTY_BODY, "There is nothing to append: the JSON array is empty.")


def _parse_conditions(request: Request, journal: str) -> tuple[tuple[Version, ...] | None, int | None] | Refusal:
    """What must hold for an append: the stream as an ETag saw it, and the ordinal that is next."""
    if_match, record = request.header(b"if-match"), request.header(b"stream-record-match")
    if record is not None and _NUMBER.fullmatch(record) is None:
        return Refusal(Code.INVALID_HEADER, f"Stream-Record-Match {record[:40]!r} is no whole number.")
    versions = None if if_match is None else etags.parse(journal, if_match)
    return versions, None if record is None else int(record)


class Batch(NamedTuple):
    """An append-batch: one append if it is atomic, else one per frame; the bytes and messages of each frame."""

    appends: list[Append | BadBody]
    frames: list[tuple[int, int]]
    atomic: bool

    def is_same(self, accepted: Duplicate) -> bool:
        """Whether an atomic batch can be the request that was accepted: as many bytes, and as many messages."""
        if accepted.size != sum(size for size, _ in self.frames):
            return False
        if accepted.record is None or accepted.record_next is None:
            return True
        return accepted.record_next - accepted.record == sum(messages for _, messages in self.frames)


def parse_batch(request: Request, name: str, journal: str) -> Batch | Refusal:
    """A POST to append-batch: with producer headers all frames are one append, without each is its own."""
    writer = _parse_writer(request, journal)
    if isinstance(writer, Refusal):
        return writer
    conditions = _parse_conditions(request, journal)
    if isinstance(conditions, Refusal):
        return conditions
    frames = framing.split(request.body)
    if isinstance(frames, Refusal):
        return frames
    content_type = request.header(b"content-type")
    if not content_type:
        return Refusal(Code.CONTENT_TYPE_MISSING, "An append needs the Content-Type of its stream.")
    split: list[list[bytes] | Refusal] = [[frame] for frame in frames]
    if content_types.is_json(content_type):
        split = [_messages(frame) for frame in frames]
    close = request.says_true(b"stream-closed")
    if writer.producer is not None:
        return _atomic_batch(name, split, writer, conditions, content_type=content_type, close=close)
    return _separate_batch(name, split, writer, conditions, content_type=content_type, close=close)


def _atomic_batch(
    name: str,
    split: list[list[bytes] | Refusal],
    writer: "_Writer",
    conditions: tuple[tuple[Version, ...] | None, int | None],
    *,
    content_type: str,
    close: bool,
) -> Batch | Refusal:
    whole: list[bytes] = []
    frames = []
    for messages in split:
        if isinstance(messages, Refusal):
            return messages
        whole += messages
        frames.append((sum(map(len, messages)), len(messages)))
    append = Append(name, b"".join(whole), json_mode.message_ends(whole), content_type, close, *writer, *conditions)
    return Batch([append], frames, atomic=True)


def _separate_batch(
    name: str,
    split: list[list[bytes] | Refusal],
    writer: "_Writer",
    conditions: tuple[tuple[Version, ...] | None, int | None],
    *,
    content_type: str,
    close: bool,
) -> Batch:
    """Each frame with the conditions as they are after those before it, so that they hold for all or fail for all."""
    versions, record = conditions
    appends: list[Append | BadBody] = []
    for index, messages in enumerate(split):
        last = close and index == len(split) - 1
        if isinstance(messages, Refusal):
            appends.append(BadBody(Append(name, b"-", None, content_type, last, *writer), messages))
            continue
        payload = b"".join(messages)
        appends.append(
            Append(name, payload, json_mode.message_ends(messages), content_type, last, *writer, versions, record)
        )
        if versions is not None:
            versions = tuple(Version(v.incarnation, v.tail + len(payload), v.closed) for v in versions)
        record = None if record is None else record + len(messages)
    return Batch(appends, [], atomic=False)


class _Attrs(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What attributes may say."""

    title: str | None = None
    metadata: dict[str, Any] | None = None


def parse_attrs(text: bytes) -> bytes | Refusal:
    """Attributes in one canonical form, so that they can be compared."""
    if len(text) > ATTRS_BYTES_MAX:
        return Refusal(Code.TOO_LARGE, f"Attributes are at most {ATTRS_BYTES_MAX} bytes of JSON.")
    try:
        attrs = msgspec.json.decode(text, type=_Attrs)
        return msgspec.json.encode(attrs, order="deterministic")
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        return Refusal(Code.INVALID_JSON, f"Attributes are an object with a title and metadata at most: {error}.")


def _parse_attrs_header(request: Request) -> bytes | Refusal | None:
    text = request.headers.get(b"stream-attrs")
    return None if text is None else parse_attrs(text)


def parse_set_attrs(request: Request, name: str, journal: str) -> SetAttrs | Refusal:
    """A PUT of attributes."""
    incarnation = parse_incarnation(request, journal)
    if isinstance(incarnation, Refusal):
        return incarnation
    content_type = request.header(b"content-type")
    if content_type is not None and not content_types.is_json(content_type):
        return Refusal(Code.BAD_REQUEST, "Attributes are application/json.")
    attrs = parse_attrs(request.body)
    return attrs if isinstance(attrs, Refusal) else SetAttrs(name, attrs, incarnation)


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
        if text is not None and not (name == "record" and text == "now") and _NUMBER.fullmatch(text) is None:
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


def parse_read(request: Request, name: str, journal: str) -> ReadRequest | Refusal:
    """A GET of a stream."""
    if _READ_HEADERS.isdisjoint(request.headers):
        return _parse_plain_read(request.query, name, journal)
    return _parse_read(request, name, journal)


@lru_cache(maxsize=4096)
def _parse_plain_read(query: bytes, name: str, journal: str) -> ReadRequest | Refusal:
    """A GET that says everything in its URL: readers of one stream come with the same one."""
    return _parse_read(Request(b"GET", b"", b"", query, {}, b""), name, journal)


def _parse_read(request: Request, name: str, journal: str) -> ReadRequest | Refusal:
    parsed = _parse_read_query(request.query)
    if isinstance(parsed, Refusal):
        return parsed
    offset, live, cursor, timeout, bytes_max, records, named = parsed
    incarnation = None
    if named or b"stream-incarnation" in request.headers:
        meant = parse_incarnation(request, journal)
        if isinstance(meant, Refusal):
            return meant
        incarnation = meant
    if live is Live.SSE and b"last-event-id" in request.headers:
        resumed = _last_event(request, journal)
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
