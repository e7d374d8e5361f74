"""Streams: create, fork, append, close, describe, delete. Reading is in `reads`."""

from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from headwater.access.grants import Action
from headwater.http.api.attributes import parse_attributes
from headwater.http.api.conditions import (
    NUMBER,
    parse_conditions,
    parse_head,
    parse_incarnation,
    parse_versions,
    parse_writer,
)
from headwater.http.context import Context
from headwater.http.exchange.exchange import IN_TURN, READ, WRITE, Exchange
from headwater.http.wire import addresses, statuses
from headwater.http.wire.addresses import Address
from headwater.http.wire.requests import Request
from headwater.http.wire.statuses import Answer, Dialect
from headwater.node.committer import Done, Submit
from headwater.node.node import Node
from headwater.node.quotas import Quotas, judge_target
from headwater.node.quotas import judge as judge_quota
from headwater.protocol import content_types, etags, headers, json_mode, lifetimes, message_ends, offsets, producers
from headwater.protocol.json_mode import is_object as is_json_object
from headwater.protocol.lifetimes import FOREVER, Lifetime
from headwater.protocol.limits import KIB
from headwater.protocol.offsets import Form
from headwater.protocol.refusals import Code, Refusal
from headwater.streams.appending import BadBody
from headwater.streams.commands import Command
from headwater.streams.commands.forks import Ancestry
from headwater.streams.commands.streams import Append, Create, Delete
from headwater.streams.forking import ForkRequest, split_body
from headwater.streams.queries import Head
from headwater.streams.replies import Described

_CLOSED = headers.STREAM_CLOSED.key
_CONTENT_TYPE = headers.CONTENT_TYPE.key
_IF_MATCH, _RECORD_MATCH = headers.IF_MATCH.key, headers.STREAM_RECORD_MATCH.key
_PRODUCER_ID, _PRODUCER_EPOCH = headers.PRODUCER_ID.key, headers.PRODUCER_EPOCH.key
_PRODUCER_SEQ = headers.PRODUCER_SEQ.key
_RARE = frozenset({_CLOSED, _IF_MATCH, _RECORD_MATCH, headers.STREAM_SEQ.key, headers.STREAM_INCARNATION.key})
"""Headers that few appends have."""

SPLIT_ON_LOOP_BYTES_MAX = 64 * KIB
"""A larger JSON body is split in a thread: splitting takes up to half a microsecond for each of its bytes."""

_NO_MESSAGES = Refusal(Code.EMPTY_BODY, "There is nothing to append: the JSON array is empty.")

C = TypeVar("C", Append, Create)


class Unsplit(NamedTuple, Generic[C]):
    """A command whose payload is a JSON body that is yet to be split into messages."""

    command: C


def _split(command: C) -> C | Refusal:
    """The command with the messages of its JSON body."""
    messages = json_mode.split(command.payload)
    if isinstance(messages, Refusal):
        return messages
    return msgspec.structs.replace(command, payload=b"".join(messages), ends=message_ends.of(messages))


def submitter(exchange: Exchange) -> Submit:
    """Submits appends and creations that the quotas of their buckets allow, and answers the others."""
    guard, node = exchange.context.guard, exchange.node
    if guard is None or not guard.policy.buckets:
        return node.submit
    return partial(_submit_within, node, guard.policy.buckets)


def _submit_within(node: Node, quotas: Quotas, command: Command, done: Done) -> None:
    assert isinstance(command, Append | Create)
    refusal = judge_quota(node, quotas, command)
    if refusal is None:
        node.submit(command, done)
    else:
        done(refusal)


# -- Creating ---------------------------------------------------------------------------------------------------------


def create(request: Request, address: Address, exchange: Exchange) -> None:
    """Create a stream, or fork one."""
    parsed = parse_create(request, address, exchange.dialect, exchange.context.flat_prefixes)
    if isinstance(parsed, ForkRequest) and not exchange.identity.may(Action.READ, parsed.ancestry.source):
        exchange.reply(exchange.refuse_right(Action.READ, parsed.ancestry.source))
    elif isinstance(parsed, ForkRequest):
        # Whether its body is JSON depends on the source; splitting it on the loop could take too long.
        if len(parsed.body) > SPLIT_ON_LOOP_BYTES_MAX:
            exchange.run(IN_TURN, exchange.work_beside, partial(split_body, parsed), partial(_fork, exchange))
        else:
            exchange.run(IN_TURN, _fork, exchange, parsed)
    elif isinstance(parsed, Unsplit):
        exchange.run(WRITE, exchange.work_beside, partial(_split, parsed.command), partial(_create, exchange))
    else:
        _create(exchange, parsed)


def _fork(exchange: Exchange, request: ForkRequest) -> None:
    quotas = exchange.context.quotas
    refusal = judge_quota(exchange.node, quotas, request) if quotas else None
    if refusal is None:
        exchange.node.fork(request, exchange.reply)
    else:
        exchange.reply(refusal)


def _create(exchange: Exchange, command: Create | Refusal) -> None:
    if isinstance(command, Create):
        exchange.run(WRITE, submitter(exchange), command, exchange.reply)
    else:
        exchange.reply(command)


def parse_create(
    request: Request, address: Address, dialect: Dialect, flat: tuple[bytes, ...]
) -> Create | Unsplit[Create] | ForkRequest | Refusal:
    """The command for a PUT of a stream."""
    writer = parse_writer(request, dialect.log_id)
    if isinstance(writer, Refusal):
        return writer
    lifetime = lifetimes.parse(request.header(headers.STREAM_TTL.key), request.header(headers.STREAM_EXPIRES_AT.key))
    if isinstance(lifetime, Refusal):
        return lifetime
    content_type = request.header(_CONTENT_TYPE)
    if content_type is not None and not content_types.is_valid(content_type):
        content_type = None
    closed = request.says_true(_CLOSED)
    attributes_text = request.headers.get(headers.STREAM_ATTRS.key)
    attributes = None if attributes_text is None else parse_attributes(attributes_text)
    if isinstance(attributes, Refusal):
        return attributes
    ancestry = _parse_ancestry(request, flat, dialect.form, content_type, None if lifetime is FOREVER else lifetime)
    if isinstance(ancestry, Refusal):
        return ancestry
    name, needs_bucket = address.name, not address.flat
    if_none_match = request.header(headers.IF_NONE_MATCH.key)
    if if_none_match is not None and if_none_match.strip() != "*":
        detail = f"{headers.IF_NONE_MATCH.name} can only be * here: create the stream if there is none."
        return Refusal(Code.INVALID_HEADER, detail)
    absent = if_none_match is not None
    if ancestry is not None:
        return ForkRequest(name, ancestry, closed, request.body, *writer, attributes, needs_bucket, absent)
    content_type = content_type or content_types.DEFAULT
    body = request.body
    command = Create(name, content_type, lifetime, closed, body, None, *writer, attributes, needs_bucket, absent)
    if not body or not content_types.is_json(content_type):
        return command
    return Unsplit(command) if len(body) > SPLIT_ON_LOOP_BYTES_MAX else _split(command)


def _parse_ancestry(
    request: Request, flat: tuple[bytes, ...], form: Form, content_type: str | None, lifetime: Lifetime | None
) -> Ancestry | Refusal | None:
    source_path = request.headers.get(headers.STREAM_FORKED_FROM.key)
    offset_text = request.header(headers.STREAM_FORK_OFFSET.key)
    steps_text = request.header(headers.STREAM_FORK_SUB_OFFSET.key)
    forked_from, fork_offset = headers.STREAM_FORKED_FROM.name, headers.STREAM_FORK_OFFSET.name
    sub_offset = headers.STREAM_FORK_SUB_OFFSET.name
    if source_path is None:
        if offset_text is not None or steps_text is not None:
            return Refusal(Code.INVALID_HEADER, f"{fork_offset} and {sub_offset} require {forked_from}.")
        return None
    source = addresses.stream_at(source_path.strip(), flat)
    if source is None:
        return Refusal(Code.INVALID_HEADER, f"{forked_from} must be the path of a stream, as in its URL.")
    offset = None if offset_text is None else offsets.parse(offset_text, form)
    if offset_text is not None and (offset is None or offset == offsets.NOW):
        return Refusal(Code.INVALID_OFFSET, f"{fork_offset} {offset_text[:40]!r} is not an offset of this server.")
    if steps_text is not None and NUMBER.fullmatch(steps_text) is None:
        return Refusal(Code.INVALID_HEADER, f"{sub_offset} {steps_text[:40]!r} is not a whole number.")
    steps = int(steps_text or 0)
    if steps and offset is None:
        detail = f"{sub_offset} requires {fork_offset}: nothing follows the tail, which is the default."
        return Refusal(Code.INVALID_HEADER, detail)
    return Ancestry(source, offset, steps, content_type, lifetime)


# -- Appending --------------------------------------------------------------------------------------------------------


def judge(request: Request, address: Address, context: Context) -> Refusal | None:
    """Why an append would be refused whatever its body is: there is no such stream, or no room."""
    refusal = context.node.judge_target(address.name)
    if refusal is not None or not context.quotas or headers.PRODUCER_ID.key in request.headers:
        return refusal
    return judge_target(context.node, context.quotas, address.name)


def append(request: Request, address: Address, exchange: Exchange) -> None:
    """Append to a stream, close it, or both."""
    parsed = parse_append(request, address.name, exchange.node.log_id)
    if isinstance(parsed, Unsplit):
        exchange.run(WRITE, _append_large, parsed.command, exchange)
    else:
        _append(exchange, parsed)


def _append(exchange: Exchange, parsed: Append | BadBody | Refusal) -> None:
    if isinstance(parsed, Append):
        exchange.run(WRITE, submitter(exchange), parsed, exchange.reply)
    elif isinstance(parsed, BadBody):
        exchange.run(READ, _refuse_body, parsed, exchange)
    else:
        exchange.reply(parsed)


def _append_large(append: Append, exchange: Exchange) -> None:
    early = exchange.node.early(append)
    # A retry is recognised by its messages, which have not been split yet.
    if early is None or (isinstance(early, Refusal) and early.code is Code.PRODUCER_PAYLOAD_MISMATCH):
        exchange.work_beside(partial(_split_append, append), partial(_append, exchange))
    else:
        exchange.reply(early)


def _split_append(append: Append) -> Append | BadBody:
    split = _split(append)
    if isinstance(split, Append):
        return split if split.payload else BadBody(append, _NO_MESSAGES)
    return BadBody(append, split)


def _refuse_body(bad: BadBody, exchange: Exchange) -> None:
    exchange.reply(exchange.node.judge_append(bad.append) or bad.refusal)


def parse_append(request: Request, name: str, log_id: str) -> Append | Unsplit[Append] | BadBody | Refusal:
    """The command for a POST to a stream."""
    body, given = request.body, request.headers
    if body and not request.query and _RARE.isdisjoint(given):
        plain = _parse_plain_append(given, body, name)
        if plain is not None:
            return plain
    writer = parse_writer(request, log_id)
    if isinstance(writer, Refusal):
        return writer
    conditions: tuple[Any, ...] = ()
    if _IF_MATCH in given or _RECORD_MATCH in given:
        parsed = parse_conditions(request, log_id)
        if isinstance(parsed, Refusal):
            return parsed
        conditions = parsed
    close = _CLOSED in given and request.says_true(_CLOSED)
    if not body:
        if not close:
            detail = (
                f"There is nothing to append; send a body, or {headers.STREAM_CLOSED.line}true to close the stream."
            )
            return Refusal(Code.EMPTY_BODY, detail)
        return Append(name, b"", None, "", True, *writer, *conditions)
    content_type = content_types.of_header(given.get(_CONTENT_TYPE, b""))
    if not content_type:
        return Refusal(Code.CONTENT_TYPE_MISSING, "An append needs the Content-Type of its stream.")
    if not content_types.is_json(content_type):
        return Append(name, body, None, content_type, close, *writer, *conditions)
    if len(body) > SPLIT_ON_LOOP_BYTES_MAX:
        return Unsplit(Append(name, body, None, content_type, close, *writer, *conditions))
    messages = split_messages(body)
    if isinstance(messages, Refusal):
        return BadBody(Append(name, body, None, content_type, close, *writer, *conditions), messages)
    payload, ends = b"".join(messages), message_ends.of(messages)
    return Append(name, payload, ends, content_type, close, *writer, *conditions)


def _parse_plain_append(given: dict[bytes, bytes], body: bytes, name: str) -> Append | None:
    """The command for a POST of the usual kind: a JSON object, perhaps with producer headers. None for all others."""
    content_type = content_types.of_header(given.get(_CONTENT_TYPE, b""))
    is_object = content_types.is_json(content_type) and len(body) <= SPLIT_ON_LOOP_BYTES_MAX and is_json_object(body)
    if not is_object:
        return None
    identity = given.get(_PRODUCER_ID)
    if identity is None:
        whole = _PRODUCER_EPOCH not in given and _PRODUCER_SEQ not in given
        return Append(name, body, None, content_type) if whole else None
    producer = producers.parse_plain(identity, given.get(_PRODUCER_EPOCH, b""), given.get(_PRODUCER_SEQ, b""))
    return None if producer is None else Append(name, body, None, content_type, False, None, producer)


def split_messages(body: bytes) -> list[bytes] | Refusal:
    """The messages of a JSON body, at least one."""
    return json_mode.split(body) or _NO_MESSAGES


# -- Describing and deleting ------------------------------------------------------------------------------------------


def head(request: Request, address: Address, exchange: Exchange) -> None:
    """Describe a stream in headers."""
    parsed = parse_head(request, address.name, exchange.node.log_id)
    if isinstance(parsed, Refusal):
        exchange.reply(parsed)
    else:
        exchange.run(READ, _describe, parsed, exchange)


def _describe(query: Head, exchange: Exchange) -> None:
    reply = exchange.node.describe(query)
    if_none_match = exchange.request.header(headers.IF_NONE_MATCH.key)
    if isinstance(reply, Described) and if_none_match is not None:
        etag = etags.render(exchange.dialect.log_id, reply.incarnation, 0, reply.next_offset, reply.closed)
        if etags.matches(if_none_match, etag):
            exchange.answer(Answer(304, statuses.answer(reply, exchange.dialect).headers))
            return
    exchange.reply(reply)


def delete(request: Request, address: Address, exchange: Exchange) -> None:
    """Delete a stream."""
    log_id = exchange.node.log_id
    incarnation = parse_incarnation(request, log_id)
    if isinstance(incarnation, Refusal):
        exchange.reply(incarnation)
    else:
        command = Delete(address.name, incarnation, parse_versions(request, log_id))
        exchange.run(WRITE, exchange.node.submit, command, exchange.reply)
