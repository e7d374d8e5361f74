"""Attributes of streams: replace, read."""

from typing import Any

import msgspec

from headwater.http.api.conditions import parse_head, parse_incarnation
from headwater.http.exchange.exchange import READ, WRITE, Exchange
from headwater.http.wire import statuses
from headwater.http.wire.addresses import Address
from headwater.http.wire.rendering import JSON_LINES
from headwater.http.wire.requests import Request
from headwater.http.wire.statuses import Answer
from headwater.protocol import content_types, headers, json_mode
from headwater.protocol.limits import ATTRS_BYTES_MAX
from headwater.protocol.refusals import Code, Refusal
from headwater.streams.commands.streams import SetAttrs
from headwater.streams.queries import Head
from headwater.streams.replies import Described


class _Attributes(msgspec.Struct, frozen=True, omit_defaults=True):
    """What attributes contain; other fields are dropped."""

    title: str | None = None
    metadata: dict[str, Any] | None = None


def parse_attributes(text: bytes) -> bytes | Refusal:
    """Attributes in canonical form, so that they can be compared."""
    if len(text) > ATTRS_BYTES_MAX:
        return Refusal(Code.TOO_LARGE, f"Attributes can have at most {ATTRS_BYTES_MAX} bytes of JSON.")
    if json_mode.is_too_deep(text):
        return json_mode.TOO_DEEP
    try:
        attributes = msgspec.json.decode(text, type=_Attributes)
        return msgspec.json.encode(attributes, order="deterministic")
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return Refusal(
            Code.INVALID_JSON, f"Attributes are an object with a title, a string, and metadata, an object: {error}."
        )


def replace(request: Request, address: Address, exchange: Exchange) -> None:
    """Replace all attributes of a stream."""
    command = _parse_replace(request, address.name, exchange.node.log_id)
    if isinstance(command, Refusal):
        exchange.reply(command)
    else:
        exchange.run(WRITE, exchange.node.submit, command, exchange.reply)


def _parse_replace(request: Request, name: str, log_id: str) -> SetAttrs | Refusal:
    incarnation = parse_incarnation(request, log_id)
    if isinstance(incarnation, Refusal):
        return incarnation
    content_type = request.header(headers.CONTENT_TYPE.key)
    if content_type is not None and not content_types.is_json(content_type):
        return Refusal(Code.BAD_REQUEST, f"Attributes must be application/json, not {content_type[:100]!r}.")
    attributes = parse_attributes(request.body)
    return attributes if isinstance(attributes, Refusal) else SetAttrs(name, attributes, incarnation)


def read(request: Request, address: Address, exchange: Exchange) -> None:
    """The attributes of a stream; an empty object if it has none."""
    query = parse_head(request, address.name, exchange.node.log_id)
    if isinstance(query, Refusal):
        exchange.reply(query)
    else:
        exchange.run(READ, _read, query, exchange)


def _read(query: Head, exchange: Exchange) -> None:
    reply = exchange.node.describe(query)
    if isinstance(reply, Described):
        lines = JSON_LINES + statuses.incarnation_line(reply.incarnation, exchange.dialect)
        exchange.answer(Answer(200, lines, reply.attrs or b"{}"))
    else:
        exchange.reply(reply)
