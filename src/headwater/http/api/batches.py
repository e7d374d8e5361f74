"""Batches: several appends to one stream in one request."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import msgspec

from headwater.http.api.conditions import Writer, parse_conditions, parse_writer
from headwater.http.api.streams import SPLIT_ON_LOOP_BYTES_MAX, split_messages
from headwater.http.exchange.exchange import IN_TURN, WRITE, Exchange
from headwater.http.wire import statuses
from headwater.http.wire.addresses import Address
from headwater.http.wire.codes import REFUSALS
from headwater.http.wire.rendering import JSON_LINES
from headwater.http.wire.requests import Request
from headwater.http.wire.statuses import Answer, Dialect
from headwater.node.quotas import judge_append
from headwater.protocol import content_types, framing, headers, message_ends
from headwater.protocol.etags import Version
from headwater.protocol.limits import MESSAGES_PER_APPEND_MAX
from headwater.protocol.offsets import render
from headwater.protocol.refusals import Code, Refusal
from headwater.streams.appending import BadBody
from headwater.streams.commands.streams import Append
from headwater.streams.replies import Appended, Duplicate, Reply

_ABOUT_THE_STREAM = frozenset(
    {
        *(Code.STREAM_NOT_FOUND, Code.STREAM_GONE, Code.INCARNATION_CHANGED, Code.OVERLOADED),
        *(Code.PRECONDITION_FAILED, Code.RECORD_PRECONDITION_FAILED, Code.STREAM_SEQ_CONFLICT),
    }
)
"""Refusals of the first frame that hold for the whole request."""

# -- Parsing ----------------------------------------------------------------------------------------------------------


class Batch(NamedTuple):
    """The appends of a batch. A joint batch has one of all frames, or of all valid ones; else each frame is one."""

    appends: list[Append | BadBody]
    frames: list[tuple[int, int] | Refusal]
    """The bytes and messages of each frame of a joint batch, or what is wrong with it."""
    joint: bool

    def is_same(self, accepted: Duplicate) -> bool:
        """Whether a joint batch may be the request that was accepted: it has as many bytes and messages."""
        sizes = [frame for frame in self.frames if not isinstance(frame, Refusal)]
        if accepted.size != sum(size for size, _ in sizes):
            return False
        if accepted.record is None or accepted.record_next is None:
            return True
        return accepted.record_next - accepted.record == sum(messages for _, messages in sizes)


class _Frames(NamedTuple):
    """The frames of a request, each split into messages, and what goes for all of them."""

    name: str
    split: list[list[bytes] | Refusal]
    writer: Writer
    versions: tuple[Version, ...] | None
    record: int | None
    content_type: str
    close: bool

    def append(self, messages: list[bytes], *, close: bool) -> Append:
        payload, ends = b"".join(messages), message_ends.of(messages)
        return Append(self.name, payload, ends, self.content_type, close, *self.writer, self.versions, self.record)

    def bad(self, refusal: Refusal) -> BadBody:
        return BadBody(self.append([b"-"], close=self.close), refusal)


def parse_batch(request: Request, name: str, log_id: str) -> Batch | Refusal:
    """The appends that a request asks for: one if it has a producer or a condition, else one per frame."""
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
    split: list[list[bytes] | Refusal] | Refusal = [[frame] for frame in frames]
    if content_types.is_json(content_type):
        split = _split(frames)
    if isinstance(split, Refusal):
        return split
    close = request.says_true(headers.STREAM_CLOSED.key)
    parsed = _Frames(name, split, writer, *conditions, content_type, close)
    if writer.producer is not None:
        return _joint_batch(parsed)
    # A condition or a sequence is judged once: after the first frame it would no longer hold.
    conditional = writer.seq is not None or conditions != (None, None)
    any_valid = not all(isinstance(messages, Refusal) for messages in split)
    return _joint_batch(parsed) if conditional and any_valid else _separate_batch(parsed)


def _split(frames: list[bytes]) -> list[list[bytes] | Refusal] | Refusal:
    """The messages of each frame; all frames together have the limit of one append."""
    split: list[list[bytes] | Refusal] = []
    count = 0
    for frame in frames:
        messages = split_messages(frame)
        if not isinstance(messages, Refusal):
            count += len(messages)
            if count > MESSAGES_PER_APPEND_MAX:
                detail = f"The batch has more than {MESSAGES_PER_APPEND_MAX} messages; append them in parts."
                return Refusal(Code.TOO_LARGE, detail)
        split.append(messages)
    return split


def _joint_batch(frames: _Frames) -> Batch:
    """One append of all frames. With a producer all must be valid, otherwise an invalid one fails alone."""
    whole: list[bytes] = []
    sizes: list[tuple[int, int] | Refusal] = []
    for messages in frames.split:
        if not isinstance(messages, Refusal):
            whole += messages
            sizes.append((sum(map(len, messages)), len(messages)))
        elif frames.writer.producer is not None:
            return Batch([frames.bad(messages)], [], joint=True)
        else:
            sizes.append(messages)
    close = frames.close and not isinstance(sizes[-1], Refusal)
    return Batch([frames.append(whole, close=close)], sizes, joint=True)


def _separate_batch(frames: _Frames) -> Batch:
    """One append per frame; an invalid one fails alone."""
    appends: list[Append | BadBody] = []
    for index, messages in enumerate(frames.split):
        last = frames.close and index == len(frames.split) - 1
        appends.append(frames.bad(messages) if isinstance(messages, Refusal) else frames.append(messages, close=last))
    return Batch(appends, [], joint=False)


# -- Answering --------------------------------------------------------------------------------------------------------


def append(request: Request, address: Address, exchange: Exchange) -> None:
    """Append each frame of the body, or all of them as one if the request has a producer or a condition."""
    parse = partial(parse_batch, request, address.name, exchange.node.log_id)
    if len(request.body) > SPLIT_ON_LOOP_BYTES_MAX:
        exchange.run(WRITE, _append_large, address.name, parse, exchange)
    else:
        _append(exchange, parse())


def _append_large(name: str, parse: Callable[[], Batch | Refusal], exchange: Exchange) -> None:
    early = exchange.node.early(Append(name, b"-"))
    if isinstance(early, Refusal) and early.code in _ABOUT_THE_STREAM:
        exchange.reply(early)
    else:
        exchange.work_beside(parse, partial(_append, exchange))


def _append(exchange: Exchange, batch: Batch | Refusal) -> None:
    if isinstance(batch, Refusal):
        exchange.reply(batch)
    elif exchange.node.shared and any(isinstance(append, BadBody) for append in batch.appends):
        exchange.run(
            IN_TURN, _submit, batch, exchange
        )  # What is wrong with the stream comes before what is with a body.
    else:
        exchange.run(WRITE, _submit, batch, exchange)


def _submit(batch: Batch, exchange: Exchange) -> None:
    refusal = _judge_quota(batch, exchange)
    if refusal is not None:
        exchange.reply(refusal)
        return
    replies: list[Reply | None] = [None] * len(batch.appends)

    def done(index: int, reply: Reply) -> None:
        replies[index] = reply
        if None not in replies:
            exchange.answer(_answer(batch, [reply for reply in replies if reply is not None], exchange))

    for index, append in enumerate(batch.appends):
        if isinstance(append, BadBody):
            done(index, exchange.node.judge_append(append.append) or append.refusal)
        else:
            exchange.node.submit(append, partial(done, index))


def _judge_quota(batch: Batch, exchange: Exchange) -> Refusal | None:
    """Why the bucket has no room for the batch as a whole."""
    quotas = exchange.context.quotas
    appends = [append for append in batch.appends if isinstance(append, Append)] if quotas else []
    if not appends:
        return None
    return judge_append(exchange.node, quotas, appends[0], sum(len(append.payload) for append in appends))


def _answer(batch: Batch, replies: list[Reply], exchange: Exchange) -> Answer:
    first, dialect = replies[0], exchange.dialect
    # On a shared log, another node may create the stream between two frames.
    none_met_it = all(isinstance(reply, Refusal) and reply.code in _ABOUT_THE_STREAM for reply in replies)
    if isinstance(first, Refusal) and (batch.joint or none_met_it):
        return statuses.answer(first, dialect)
    lines = _incarnation_line(replies, dialect)
    failed = any(isinstance(outcome, Refusal) for outcome in (*replies, *batch.frames))
    if isinstance(first, Appended | Duplicate) and first.producer_epoch is not None:
        lines += statuses.producer_lines(first.producer_epoch, first.producer_seq)
    if not failed and "return=minimal" in (exchange.request.header(headers.PREFER.key) or "").replace(" ", "").lower():
        return Answer(204, f"{lines}{headers.PREFERENCE_APPLIED.line}return=minimal\r\n")
    if batch.joint:
        assert isinstance(first, Appended | Duplicate)
        acks = _shared_acks(batch, first, dialect)
    else:
        acks = [_ack(reply, dialect) for reply in replies]
    return Answer(200, JSON_LINES + lines, msgspec.json.encode(acks))


def _incarnation_line(replies: list[Reply], dialect: Dialect) -> str:
    """The incarnation that the frames met; unknown if every frame was refused before it reached the stream."""
    for reply in replies:
        if isinstance(reply, Appended | Duplicate | Refusal) and reply.incarnation is not None:
            return statuses.incarnation_line(reply.incarnation, dialect)
    return ""


def _ack(reply: Reply, dialect: Dialect) -> dict[str, Any]:
    """The acknowledgement of a frame that was one append."""
    if isinstance(reply, Refusal):
        ack: dict[str, Any] = {"status": REFUSALS[reply.code][0]}
        if reply.next_offset is not None:
            ack["stream_next_offset"] = render(reply.next_offset, dialect.form)
        return ack | {"stream_closed": reply.closed, "error_code": reply.code.value, "error": reply.detail}
    assert isinstance(reply, Appended)
    ack = {"status": 204, "stream_next_offset": render(reply.next_offset, dialect.form)}
    if reply.record is not None:
        ack |= {"stream_record_start": reply.record, "stream_record_next": reply.record_next}
    return ack


def _shared_acks(batch: Batch, reply: Appended | Duplicate, dialect: Dialect) -> list[dict[str, Any]]:
    """The acknowledgements of frames that together were one append: where each of them ends in it."""
    if isinstance(reply, Duplicate) and not batch.is_same(reply):
        # The frames of the accepted request are unknown, so every frame gets the offset after all of them.
        return [{"status": 204, "stream_next_offset": render(reply.next_offset, dialect.form)} for _ in batch.frames]
    acks: list[dict[str, Any]] = []
    status = 200 if isinstance(reply, Appended) and reply.producer_epoch is not None else 204
    size_of_all = sum(frame[0] for frame in batch.frames if not isinstance(frame, Refusal))
    offset, record = reply.next_offset - size_of_all, reply.record
    for frame in batch.frames:
        if isinstance(frame, Refusal):
            acks.append(_ack(frame, dialect))
            continue
        size, messages = frame
        offset += size
        ack: dict[str, Any] = {"status": status}
        ack["stream_next_offset"] = render(offset, dialect.form)
        if record is not None:
            ack |= {"stream_record_start": record, "stream_record_next": record + messages}
            record += messages
        acks.append(ack)
    return acks
