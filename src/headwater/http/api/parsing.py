"""From a request to the command that it asks for, or a refusal. Nothing here looks at state."""

import re
from typing import Any, NamedTuple

import msgspec

from headwater.http import addresses
from headwater.http.addresses import Address, Resource
from headwater.http.wire.requests import Request, parse_query
from headwater.protocol import content_types, etags, incarnations, json_mode, lifetimes, offsets, producers
from headwater.protocol.etags import Version
from headwater.protocol.lifetimes import FOREVER
from headwater.protocol.limits import ATTRS_BYTES_MAX, STREAM_SEQ_BYTES_MAX
from headwater.protocol.producers import Producer
from headwater.protocol.refusals import Code, Refusal
from headwater.streams.appending import BadBody
from headwater.streams.commands import Ancestry, Append, Create, Delete, SetAttrs
from headwater.streams.forking import ForkRequest
from headwater.streams.queries import Head

NUMBER = re.compile(r"0|[1-9][0-9]{0,18}")


def parse_create(request: Request, address: Address, log_id: str) -> Create | ForkRequest | Refusal:
    """A PUT of a stream."""
    writer = parse_writer(request, log_id)
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


class Writer(NamedTuple):
    """Who writes, and under which conditions."""

    seq: str | None
    producer: Producer | None
    incarnation: int | None


_ANYBODY = Writer(None, None, None)
_WRITER_HEADERS = frozenset({b"producer-id", b"producer-epoch", b"producer-seq", b"stream-seq", b"stream-incarnation"})


def parse_writer(request: Request, log_id: str) -> Writer | Refusal:
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
    incarnation = parse_incarnation(request, log_id)
    if isinstance(incarnation, Refusal):
        return incarnation
    return Writer(seq, producer, incarnation)


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
    if steps_text is not None and NUMBER.fullmatch(steps_text) is None:
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


def parse_append(request: Request, name: str, log_id: str) -> Append | BadBody | Refusal:
    """A POST to a stream: an append, a close, or both."""
    body, headers = request.body, request.headers
    writer = parse_writer(request, log_id)
    if isinstance(writer, Refusal):
        return writer
    conditions: tuple[Any, ...] = ()
    if b"if-match" in headers or b"stream-record-match" in headers:
        parsed = parse_conditions(request, log_id)
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
    messages = split_messages(body)
    if isinstance(messages, Refusal):
        return BadBody(Append(name, body, None, content_type, close, *writer, *conditions), messages)
    payload, ends = b"".join(messages), json_mode.message_ends(messages)
    return Append(name, payload, ends, content_type, close, *writer, *conditions)


def split_messages(body: bytes) -> list[bytes] | Refusal:
    messages = json_mode.split(body)
    return messages or Refusal(Code.EMPTY_BODY, "There is nothing to append: the JSON array is empty.")


def parse_conditions(request: Request, log_id: str) -> tuple[tuple[Version, ...] | None, int | None] | Refusal:
    """What must hold for an append: the stream as an ETag saw it, and the ordinal that is next."""
    if_match, record = request.header(b"if-match"), request.header(b"stream-record-match")
    if record is not None and NUMBER.fullmatch(record) is None:
        return Refusal(Code.INVALID_HEADER, f"Stream-Record-Match {record[:40]!r} is no whole number.")
    versions = None if if_match is None else etags.parse(log_id, if_match)
    return versions, None if record is None else int(record)


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


def parse_set_attrs(request: Request, name: str, log_id: str) -> SetAttrs | Refusal:
    """A PUT of attributes."""
    incarnation = parse_incarnation(request, log_id)
    if isinstance(incarnation, Refusal):
        return incarnation
    content_type = request.header(b"content-type")
    if content_type is not None and not content_types.is_json(content_type):
        return Refusal(Code.BAD_REQUEST, "Attributes are application/json.")
    attrs = parse_attrs(request.body)
    return attrs if isinstance(attrs, Refusal) else SetAttrs(name, attrs, incarnation)


def parse_delete(request: Request, name: str, log_id: str) -> Delete | Refusal:
    """A DELETE of a stream."""
    incarnation = parse_incarnation(request, log_id)
    return incarnation if isinstance(incarnation, Refusal) else Delete(name, incarnation)


def parse_head(request: Request, name: str, log_id: str) -> Head | Refusal:
    """A HEAD of a stream."""
    incarnation = parse_incarnation(request, log_id)
    return incarnation if isinstance(incarnation, Refusal) else Head(name, incarnation)


def parse_incarnation(request: Request, log_id: str) -> int | Refusal | None:
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
    return None if text is None else incarnations.parse(log_id, text)
