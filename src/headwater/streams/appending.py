"""Appends and closes. The protocol defines the order of the checks, and one function implements it.

presence (404, 410)  ->  incarnation (410)  ->  closed (duplicate 204, close-only 204, 409)
->  content type (409)  ->  producer (403, 400, 409, 429, duplicate 204, or 409 if its content differs)
->  If-Match, Stream-Record-Match (412)  ->  Stream-Seq (409)  ->  accepted
"""

from typing import NamedTuple

from crc32c import crc32c

from headwater.protocol import message_ends
from headwater.protocol.content_types import is_json, media_type
from headwater.protocol.lifetimes import FOREVER
from headwater.protocol.limits import PRODUCER_IDLE_US, PRODUCERS_PER_STREAM_MAX
from headwater.protocol.names import bucket_of
from headwater.protocol.producers import DUPLICATE, GAP, NEW, STALE, LastAccepted, Producer, compare
from headwater.protocol.refusals import Code, Refusal
from headwater.streams import finishing
from headwater.streams.commands.forks import CreateFork
from headwater.streams.commands.streams import Append, Create
from headwater.streams.hot import HOT_APPEND_BYTES, Hot, hot_cost
from headwater.streams.replies import Appended, ClosedOnly, Duplicate, Reply
from headwater.streams.state import State, Stream


class BadBody(NamedTuple):
    """An append with an invalid body. It is refused for its body unless the stream's state gives an earlier reason."""

    append: Append
    refusal: Refusal


def judge_standing(state: State, command: Append, now: int) -> Stream | Reply:
    """The stream, or an outcome that no later append can change, which may be returned without logging the command."""
    stream = state.find(command.name, command.incarnation, now)
    if isinstance(stream, Refusal) or not stream.closed:
        return stream
    return _judge_closed(stream, command)


def judge(state: State, command: Append, now: int) -> Stream | Reply:
    """The stream if the append is accepted, else the outcome."""
    stream = judge_standing(state, command, now)
    if not isinstance(stream, Stream):
        return stream
    given, expected = command.content_type, stream.content_type
    if command.payload and given != expected and media_type(given) != media_type(expected):
        return _content_type_mismatch(stream, given)
    if command.producer is not None:
        outcome = _judge_producer(state, stream, command, command.producer, now)
        if outcome is not None:
            return outcome
    if command.if_match is not None or command.record_match is not None:
        refusal = _judge_conditions(stream, command)
        if refusal is not None:
            return refusal
    if command.seq is not None and stream.seq is not None and command.seq <= stream.seq:
        return Refusal(
            Code.STREAM_SEQ_CONFLICT,
            f"Stream-Seq {command.seq!r} does not sort after the last one, {stream.seq!r}.",
            incarnation=stream.incarnation,
            next_offset=stream.tail,
        )
    return stream


def _judge_conditions(stream: Stream, command: Append) -> Refusal | None:
    refusal = stream.judge_version(command.if_match)
    if refusal is not None or command.record_match is None:
        return refusal
    if not is_json(stream.content_type):
        detail = f"Stream {stream.name!r} has no record numbers, because it is not a JSON stream."
        return Refusal(Code.BAD_REQUEST, detail, incarnation=stream.incarnation)
    if command.record_match == stream.record_next:
        return None
    return Refusal(
        Code.RECORD_PRECONDITION_FAILED,
        f"The next record number of {stream.name!r} is {stream.record_next}, not {command.record_match}.",
        incarnation=stream.incarnation,
        next_offset=stream.tail,
        record_next=stream.record_next,
    )


def apply(state: State, command: Append) -> Reply:
    """Judge, then append the messages, close the stream, and remember the producer."""
    stream = state.streams.get(command.name)
    if stream is not None and _is_next(state, stream, command):
        return _append_next(state, stream, command)
    return _judge_and_append(state, command)


def _is_next(state: State, stream: Stream, command: Append) -> bool:
    """Whether `judge` certainly accepts an append, as it does nearly all: one without conditions to an open stream."""
    if stream.closed or stream.deleted or state.observers:
        return False
    if stream.lifetime is not FOREVER and stream.expired(state.now):
        return False
    if command.close or not command.payload or command.content_type != stream.content_type:
        return False
    if command.seq is not None or command.incarnation is not None:
        return False
    if command.if_match is not None or command.record_match is not None:
        return False
    producer = command.producer
    if producer is None:
        return True
    last = None if stream.producers is None else stream.producers.get(producer.id)
    follows = last is not None and producer.seq == last.seq + 1 and producer.epoch == last.epoch
    return follows and producer.id not in state.finished


def _append_next(state: State, stream: Stream, command: Append) -> Appended:
    """As `_judge_and_append` for such an append, in half its time."""
    now, payload, ends, producer = state.now, command.payload, command.ends, command.producer
    offset, record, size = stream.tail, stream.record_next, len(payload)
    messages = 1 if ends is None else message_ends.count(ends)
    hot = Hot(offset, payload, ends, record, state.position, now, producer)
    if stream.hot is None:
        stream.hot = [hot]
        state.warm[stream.name] = None
    else:
        stream.hot.append(hot)
    state.bytes[command.name.partition("/")[0]] += size
    state.hot_bytes += size + HOT_APPEND_BYTES + messages * message_ends.END_BYTES
    stream.tail, stream.record_next = tail, record_next = offset + size, record + messages
    stream.written_at = stream.touched_at = now
    epoch = seq = None
    if producer is not None:
        epoch, seq = producer.epoch, producer.seq
        known = stream.producers
        assert known is not None, "its last request is remembered"
        del known[producer.id]  # So that the longest idle one stays the first.
        crc = crc32c(payload) if ends is None else checksum(payload, ends)
        known[producer.id] = LastAccepted(epoch, seq, tail, record, record_next, now, size, crc, False)
    if not is_json(stream.content_type):
        return Appended(stream.incarnation, tail, False, None, None, epoch, seq)
    return Appended(stream.incarnation, tail, False, record, record_next, epoch, seq)


def _judge_and_append(state: State, command: Append) -> Reply:
    """Append after all checks."""
    now = state.now if command.asked_at is None else min(command.asked_at, state.now)
    stream = judge(state, command, now)
    if not isinstance(stream, Stream):
        _renew(state, command, now)
        return stream
    if state.observers:
        state.before_change(stream)
    record, payload, producer = stream.record_next, command.payload, command.producer
    if payload:
        extend(state, stream, payload, command.ends, producer)
    stream.closed = command.close
    stream.written_at = stream.touched_at = state.now
    if command.seq is not None:
        stream.seq = command.seq
    epoch = seq = None
    if producer is not None:
        epoch, seq = producer.epoch, producer.seq
        if state.finished and stream.producers and producer.id not in stream.producers:
            full = len(stream.producers) >= PRODUCERS_PER_STREAM_MAX
            finishing.forget(stream.producers, state.finished, full=full)
        remember(stream, command, record, state.now, closes=command.close)
    if not payload:
        return ClosedOnly(stream.incarnation, stream.tail, epoch, seq)
    if not is_json(stream.content_type):
        return Appended(stream.incarnation, stream.tail, stream.closed, None, None, epoch, seq)
    return Appended(stream.incarnation, stream.tail, stream.closed, record, stream.record_next, epoch, seq)


def _renew(state: State, command: Append, now: int) -> None:
    """A write that changes nothing still counts as a use of the stream."""
    stream = state.present(command.name, now)
    slides = isinstance(stream, Stream) and stream.lifetime.ttl_seconds is not None
    if isinstance(stream, Stream) and slides and command.incarnation in (None, stream.incarnation):
        state.before_change(stream)
        stream.touched_at = state.now


def extend(state: State, stream: Stream, payload: bytes, ends: bytes | None, producer: Producer | None) -> None:
    """Add one append's messages to the end of a stream."""
    tail, record, size = stream.tail, stream.record_next, len(payload)
    hot = Hot(tail, payload, ends, record, state.position, state.now, producer)
    if stream.hot is None:
        stream.hot = [hot]
        state.warm[stream.name] = None
    else:
        stream.hot.append(hot)
    stream.tail = tail + size
    state.bytes[bucket_of(stream.name)] += size
    messages = 1 if ends is None else message_ends.count(ends)
    stream.record_next = record + messages
    state.hot_bytes += hot_cost(size, 1, messages)


def _content_type_mismatch(stream: Stream, content_type: str) -> Refusal:
    return Refusal(
        Code.CONTENT_TYPE_MISMATCH,
        f"Stream {stream.name!r} has content type {stream.content_type}, not {content_type or 'none'}.",
        incarnation=stream.incarnation,
        next_offset=stream.tail,
    )


def _judge_closed(stream: Stream, command: Append) -> Reply:
    producer, known = command.producer, stream.producers
    if producer is not None and known is not None:
        last = known.get(producer.id)
        if last is not None and compare(last, producer) is DUPLICATE:
            return _judge_duplicate(stream, last, producer, command)
    if command.close and not command.payload:
        return ClosedOnly(stream.incarnation, stream.tail)
    return Refusal(
        Code.STREAM_CLOSED,
        f"Stream {stream.name!r} is closed; nothing can be appended to it.",
        incarnation=stream.incarnation,
        next_offset=stream.tail,
        closed=True,
    )


def _judge_producer(state: State, stream: Stream, command: Append, producer: Producer, now: int) -> Reply | None:
    known = stream.producers
    last = known.get(producer.id) if known is not None else None
    standing = compare(last, producer)
    if standing is NEW:
        if producer.id in state.finished:
            return finishing.refusal(producer, stream.incarnation)
        return _judge_room(state, stream, now) if last is None else None
    if last is None or standing is GAP:
        expected = 0 if last is None else last.seq + 1
        return Refusal(
            Code.PRODUCER_SEQ_CONFLICT,
            f"Producer {producer.id!r} sent sequence number {producer.seq}, but {expected} is expected.",
            incarnation=stream.incarnation,
            expected_seq=expected,
            received_seq=producer.seq,
        )
    if standing is DUPLICATE:
        return _judge_duplicate(stream, last, producer, command)
    if standing is STALE:
        return Refusal(
            Code.PRODUCER_EPOCH_STALE,
            f"Producer {producer.id!r} is at epoch {last.epoch}; epoch {producer.epoch} is fenced off.",
            incarnation=stream.incarnation,
            producer_epoch=last.epoch,
        )
    return Refusal(
        Code.PRODUCER_EPOCH_INVALID,
        f"Producer {producer.id!r} begins epoch {producer.epoch} with sequence number {producer.seq} instead of 0.",
        incarnation=stream.incarnation,
        producer_epoch=last.epoch,
    )


def _judge_room(state: State, stream: Stream, now: int) -> Refusal | None:
    known = stream.producers
    if known is None or len(known) < PRODUCERS_PER_STREAM_MAX or _longest_idle(known).at <= now - PRODUCER_IDLE_US:
        return None
    if not known.keys().isdisjoint(state.finished):
        return None
    return Refusal(
        Code.PRODUCERS_TOO_MANY,
        f"Stream {stream.name!r} has {len(known)} active producers, the maximum; use fewer producer ids.",
        incarnation=stream.incarnation,
    )


def _longest_idle(known: dict[str, LastAccepted]) -> LastAccepted:
    # `remember` moves a producer to the end with each request, so the first one has been idle the longest.
    return known[next(iter(known))]


def judge_repeat(
    stream: Stream, last: LastAccepted, producer: Producer, payload: bytes, ends: bytes | None, *, closes: bool
) -> Refusal | None:
    """Why a request with the number of the producer's last one is not a retry of it: its content differs."""
    if producer.seq != last.seq or (closes and last.closes):
        return None
    if (len(payload), checksum(payload, ends)) == (last.size, last.crc):
        return None
    return Refusal(
        Code.PRODUCER_PAYLOAD_MISMATCH,
        f"Producer {producer.id!r} already wrote other content as sequence number {producer.seq} of epoch "
        f"{producer.epoch}; begin a higher epoch, or use another producer id.",
        incarnation=stream.incarnation,
        next_offset=stream.tail,
        closed=stream.closed,
    )


def checksum(payload: bytes, ends: bytes | None) -> int:
    """The checksum by which a producer's retry is recognised."""
    crc = crc32c(payload)
    return crc if ends is None else crc32c(ends, crc)


def remember(stream: Stream, command: Append | Create | CreateFork, record: int, now: int, *, closes: bool) -> None:
    """Keep a producer's last accepted request and the response to it."""
    producer = command.producer
    assert producer is not None
    if stream.producers is None:
        stream.producers = {}
    known = stream.producers
    if known.pop(producer.id, None) is None and len(known) >= PRODUCERS_PER_STREAM_MAX:
        del known[next(iter(known))]
    payload, ends = command.payload, command.ends
    known[producer.id] = LastAccepted(
        producer.epoch,
        producer.seq,
        stream.tail,
        record,
        stream.record_next,
        now,
        len(payload),
        crc32c(payload) if ends is None else checksum(payload, ends),
        closes,
    )


def _judge_duplicate(stream: Stream, last: LastAccepted, producer: Producer, command: Append) -> Duplicate | Refusal:
    refusal = judge_repeat(stream, last, producer, command.payload, command.ends, closes=command.close)
    if refusal is not None:
        return refusal
    # The response to the last request is remembered; for an older one the tail is the best answer.
    if producer.seq != last.seq:
        return Duplicate(stream.incarnation, stream.tail, stream.closed, last.epoch, last.seq)
    record, record_next = (last.record, last.record_next) if is_json(stream.content_type) else (None, None)
    return Duplicate(
        stream.incarnation, last.next_offset, stream.closed, last.epoch, last.seq, record, record_next, last.size
    )
