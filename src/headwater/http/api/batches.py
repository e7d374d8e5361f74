"""Batches: several appends to one stream in one request."""

from functools import partial
from typing import Any, NamedTuple

import msgspec

from headwater.http.addresses import Address
from headwater.http.api.conditions import Writer, parse_conditions, parse_writer
from headwater.http.api.streams import split_messages
from headwater.http.exchange import WRITE, Exchange
from headwater.http.wire import statuses
from headwater.http.wire.rendering import JSON_LINES
from headwater.http.wire.requests import Request
from headwater.http.wire.statuses import Answer, Voice
from headwater.protocol import content_types, framing, headers, json_mode
from headwater.protocol.etags import Version
from headwater.protocol.offsets import render
from headwater.protocol.refusals import Code, Refusal
from headwater.streams.appending import BadBody
from headwater.streams.commands import Append
from headwater.streams.replies import Appended, Duplicate, Reply

_ABOUT_THE_STREAM = frozenset({Code.STREAM_NOT_FOUND, Code.STREAM_GONE, Code.INCARNATION_CHANGED, Code.OVERLOADED})

# -- Parsing ----------------------------------------------------------------------------------------------------------


class Batch(NamedTuple):
    """The appends of a batch: one if it is atomic, else one per frame; the bytes and messages of each frame."""

    appends: list[Append | BadBody]
    frames: list[tuple[int, int]]
    atomic: bool

    def is_same(self, accepted: Duplicate) -> bool:
        """Whether an atomic batch may be the request that was accepted: it has as many bytes and messages."""
        if accepted.size != sum(size for size, _ in self.frames):
            return False
        if accepted.record is None or accepted.record_next is None:
            return True
        return accepted.record_next - accepted.record == sum(messages for _, messages in self.frames)


class _Frames(NamedTuple):
    """The frames of a request, each split into messages, and what goes for all of them."""

    name: str
    split: list[list[bytes] | Refusal]
    writer: Writer
    versions: tuple[Version, ...] | None
    record: int | None
    content_type: str
    close: bool


def parse_batch(request: Request, name: str, log_id: str) -> Batch | Refusal:
    """The appends that a request asks for: one of all frames with producer headers, otherwise one per frame."""
    writer = parse_writer(request, log_id)
    if isinstance(writer, Refusal):
        return writer
    conditions = parse_conditions(request, log_id)
    if isinstance(conditions, Refusal):
        return conditions
    frames = framing.split(request.body)
    if isinstance(frames, Refusal):
        return frames
    content_type = request.header(headers.CONTENT_TYPE.key)
    if not content_type:
        return Refusal(Code.CONTENT_TYPE_MISSING, "An append needs the Content-Type of its stream.")
    split: list[list[bytes] | Refusal] = [[frame] for frame in frames]
    if content_types.is_json(content_type):
        split = [split_messages(frame) for frame in frames]
    close = request.says_true(headers.STREAM_CLOSED.key)
    parsed = _Frames(name, split, writer, *conditions, content_type, close)
    return _separate_batch(parsed) if writer.producer is None else _atomic_batch(parsed)


def _atomic_batch(frames: _Frames) -> Batch | Refusal:
    """One append of all frames."""
    whole: list[bytes] = []
    sizes = []
    for messages in frames.split:
        if isinstance(messages, Refusal):
            return messages
        whole += messages
        sizes.append((sum(map(len, messages)), len(messages)))
    append = Append(
        frames.name,
        b"".join(whole),
        json_mode.message_ends(whole),
        frames.content_type,
        frames.close,
        *frames.writer,
        frames.versions,
        frames.record,
    )
    return Batch([append], sizes, atomic=True)


def _separate_batch(frames: _Frames) -> Batch:
    """One append per frame. Each has the conditions as the frames before it leave them: they hold or fail for all."""
    name, split, writer, versions, record, content_type, close = frames
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


# -- Answering --------------------------------------------------------------------------------------------------------


def append(request: Request, address: Address, exchange: Exchange) -> None:
    """Append each frame of the body, or all of them as one if the request has a producer."""
    batch = parse_batch(request, address.name, exchange.node.log_id)
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
    if succeeded and "return=minimal" in (exchange.request.header(headers.PREFER.key) or "").replace(" ", "").lower():
        return Answer(204, f"{lines}{headers.PREFERENCE_APPLIED.line}return=minimal\r\n")
    acks: list[dict[str, Any]] = []
    if batch.atomic:
        assert isinstance(first, Appended | Duplicate)
        acks = _shared_acks(batch, first, exchange.voice)
    else:
        acks = [_ack(reply, exchange.voice) for reply in replies]
    return Answer(200, JSON_LINES + lines, msgspec.json.encode(acks))


def _incarnation_line(replies: list[Reply], voice: Voice) -> str:
    """The incarnation that the frames met; unknown if every frame was refused before it reached the stream."""
    for reply in replies:
        if isinstance(reply, Appended | Duplicate | Refusal) and reply.incarnation is not None:
            return statuses.incarnation_line(reply.incarnation, voice)
    return ""


def _ack(reply: Reply, voice: Voice) -> dict[str, Any]:
    """The acknowledgement of a frame that was one append."""
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
    """The acknowledgements of frames that together were one append: where each of them ends in it."""
    if isinstance(reply, Duplicate) and not batch.is_same(reply):
        # The frames of the accepted request are unknown, so every frame gets the offset after all of them.
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
