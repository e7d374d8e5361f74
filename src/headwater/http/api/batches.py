"""What the URL table does for append-batch and for attributes."""

from functools import partial
from typing import Any

import msgspec

from headwater.http.addresses import Address
from headwater.http.api import batch_bodies as batch_parsing
from headwater.http.api import parsing
from headwater.http.api.batch_bodies import Batch
from headwater.http.exchange import READ, WRITE, Exchange
from headwater.http.wire import statuses
from headwater.http.wire.rendering import JSON_LINES
from headwater.http.wire.requests import Request
from headwater.http.wire.statuses import Answer, Voice
from headwater.protocol.offsets import render
from headwater.protocol.refusals import Code, Refusal
from headwater.streams.appending import BadBody
from headwater.streams.queries import Head
from headwater.streams.replies import Appended, Described, Duplicate, Reply

_ABOUT_THE_STREAM = frozenset({Code.STREAM_NOT_FOUND, Code.STREAM_GONE, Code.INCARNATION_CHANGED, Code.OVERLOADED})


def append_batch(request: Request, address: Address, exchange: Exchange) -> None:
    batch = batch_parsing.parse_batch(request, address.name, exchange.node.log_id)
    if isinstance(batch, Refusal):
        exchange.reply(batch)
    else:
        exchange.run(WRITE, _submit, batch, exchange)


def _submit(batch: Batch, exchange: Exchange) -> None:
    replies: list[Reply | None] = [None] * len(batch.appends)

    def done(index: int, reply: Reply) -> None:
        replies[index] = reply
        if None not in replies:
            exchange.answer(_answer(batch, [reply for reply in replies if reply is not None], exchange))

    for index, append in enumerate(batch.appends):
        if isinstance(append, BadBody):
            done(index, exchange.node.judge_standing(append.append) or append.refusal)
        else:
            exchange.node.submit(append, partial(done, index))


def _answer(batch: Batch, replies: list[Reply], exchange: Exchange) -> Answer:
    first = replies[0]
    if isinstance(first, Refusal) and (batch.atomic or first.code in _ABOUT_THE_STREAM):
        return statuses.answer(first, exchange.voice)
    lines = _incarnation_line(replies, exchange.voice)
    succeeded = not any(isinstance(reply, Refusal) for reply in replies)
    if succeeded and "return=minimal" in (exchange.request.header(b"prefer") or "").replace(" ", "").lower():
        return Answer(204, f"{lines}Preference-Applied: return=minimal\r\n")
    acks: list[dict[str, Any]] = []
    if batch.atomic:
        assert isinstance(first, Appended | Duplicate)
        acks = _shared_acks(batch, first, exchange.voice)
    else:
        acks = [_ack(reply, exchange.voice) for reply in replies]
    return Answer(200, JSON_LINES + lines, msgspec.json.encode(acks))


def _incarnation_line(replies: list[Reply], voice: Voice) -> str:
    """Which life the frames met; none is known where every frame was refused unread."""
    for reply in replies:
        if isinstance(reply, Appended | Duplicate | Refusal) and reply.incarnation is not None:
            return statuses.incarnation_line(reply.incarnation, voice)
    return ""


def _ack(reply: Reply, voice: Voice) -> dict[str, Any]:
    """The acknowledgement of one frame that was an append of its own."""
    if isinstance(reply, Refusal):
        ack: dict[str, Any] = {"status": statuses.REFUSALS[reply.code][0]}
        if reply.next_offset is not None:
            ack["stream_next_offset"] = render(reply.next_offset, voice.form)
        return ack | {"stream_closed": reply.closed, "error_code": reply.code.value, "error": reply.detail}
    assert isinstance(reply, Appended)
    ack = {"status": 204, "stream_next_offset": render(reply.next_offset, voice.form)}
    if reply.record is not None:
        ack |= {"stream_record_start": reply.record, "stream_record_next": reply.record_next}
    return ack


def _shared_acks(batch: Batch, reply: Appended | Duplicate, voice: Voice) -> list[dict[str, Any]]:
    """The acknowledgements of frames that were one append: where each of them ends within it."""
    if isinstance(reply, Duplicate) and not batch.is_same(reply):
        # How the accepted request was framed is not known, or not any more; the offset is behind all of it.
        return [{"status": 204, "stream_next_offset": render(reply.next_offset, voice.form)} for _ in batch.frames]
    acks: list[dict[str, Any]] = []
    offset, record = reply.next_offset - sum(size for size, _ in batch.frames), reply.record
    for size, messages in batch.frames:
        offset += size
        ack: dict[str, Any] = {"status": 200 if isinstance(reply, Appended) else 204}
        ack["stream_next_offset"] = render(offset, voice.form)
        if record is not None:
            ack |= {"stream_record_start": record, "stream_record_next": record + messages}
            record += messages
        acks.append(ack)
    return acks


# -- Attributes -------------------------------------------------------------------------------------------------------


def set_attrs(request: Request, address: Address, exchange: Exchange) -> None:
    command = parsing.parse_set_attrs(request, address.name, exchange.node.log_id)
    if isinstance(command, Refusal):
        exchange.reply(command)
    else:
        exchange.run(WRITE, exchange.node.submit, command, exchange.reply)


def get_attrs(request: Request, address: Address, exchange: Exchange) -> None:
    query = parsing.parse_head(request, address.name, exchange.node.log_id)
    if isinstance(query, Refusal):
        exchange.reply(query)
    else:
        exchange.run(READ, _attrs, query, exchange)


def _attrs(query: Head, exchange: Exchange) -> None:
    reply = exchange.node.describe(query)
    if isinstance(reply, Described):
        lines = JSON_LINES + statuses.incarnation_line(reply.incarnation, exchange.voice)
        exchange.answer(Answer(200, lines, reply.attrs or b"{}"))
    else:
        exchange.reply(reply)
