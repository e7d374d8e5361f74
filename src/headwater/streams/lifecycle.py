"""The lifecycle of a stream: create, delete, touch, expire.

A name is free when nothing exists under it, or only an expired life that no fork pins. A life that forks pin is never
removed: it becomes a ghost, and is removed with the last pin.
"""

import msgspec

from headwater.protocol.content_types import is_json, media_type
from headwater.protocol.lifetimes import Lifetime
from headwater.protocol.producers import Producer, Standing, compare
from headwater.protocol.refusals import Code, Refusal, incarnation_changed
from headwater.streams import finishing
from headwater.streams.appending import extend, judge_repeat, remember
from headwater.streams.buckets import judge_bucket
from headwater.streams.commands.forks import Ancestry, CreateFork
from headwater.streams.commands.streams import Create, Delete, Expire, Touch
from headwater.streams.handling import handles
from headwater.streams.replies import Created, Deleted, Done, Existed, Reply
from headwater.streams.state import State, Stream


class Configuration(msgspec.Struct, frozen=True, gc=False):
    """The configuration that a PUT requests; a fork inherits the content type and lifetime that it leaves out."""

    content_type: str | None
    lifetime: Lifetime | None
    closed: bool
    attrs: bytes | None
    ancestry: Ancestry | None = None
    incarnation: int | None = None
    absent: bool = False


def judge_name(state: State, name: str, wanted: Configuration, now: int) -> Reply | None:
    """None if a stream may be created under this name, else the outcome."""
    stream = state.streams.get(name)
    if stream is None:
        return None
    if stream.deleted or stream.expired(now):
        if stream.deleted or stream.pins:
            return Refusal(
                Code.FORK_CONFLICT, f"Stream {name!r} was deleted, but its forks still need it; use another name."
            )
        return None
    if wanted.incarnation is not None and wanted.incarnation != stream.incarnation:
        return incarnation_changed(name, stream.incarnation)
    if wanted.absent:
        return Refusal(
            Code.PRECONDITION_FAILED,
            f"Stream {name!r} exists already, and If-None-Match asks that it does not.",
            incarnation=stream.incarnation,
            next_offset=stream.tail,
            closed=stream.closed,
        )
    difference = _difference(stream, wanted)
    if difference is None:
        return Existed(stream.incarnation, stream.content_type, stream.tail, stream.closed)
    return Refusal(
        Code.STREAM_EXISTS,
        f"Stream {name!r} {difference}; delete it or use another name.",
        incarnation=stream.incarnation,
        next_offset=stream.tail,
        closed=stream.closed,
    )


def _difference(stream: Stream, wanted: Configuration) -> str | None:
    if not _same_ancestry(stream.ancestry, wanted.ancestry):
        return "exists with another origin"
    if wanted.content_type is not None and media_type(wanted.content_type) != media_type(stream.content_type):
        return "exists with another content type"
    if wanted.lifetime is not None and not wanted.lifetime.same_as(stream.lifetime):
        return "exists with another lifetime"
    if wanted.attrs is not None and wanted.attrs != (stream.attrs or b"{}"):
        return "exists with other attributes"
    if wanted.closed == stream.closed:
        return None
    return "is already closed" if stream.closed else "exists and is not closed"


def _same_ancestry(first: Ancestry | None, wanted: Ancestry | None) -> bool:
    if first is None or wanted is None:
        return first is wanted
    same_point = wanted.offset is None or wanted.offset == first.offset
    return first.source == wanted.source and same_point and first.sub_offset == wanted.sub_offset


@handles(Create)
def create(state: State, command: Create) -> Reply:
    """Create a stream, or report what exists in its place."""
    wanted = Configuration(
        command.content_type,
        command.lifetime,
        command.closed,
        command.attrs,
        incarnation=command.incarnation,
        absent=command.absent,
    )
    outcome = judge_name(state, command.name, wanted, state.now) or judge_founding(state, command)
    if outcome is not None:
        return judge_retry(state, outcome, command.name, command.producer, command.payload, command.ends)
    return enter(state, new_life(state, command), command)


def judge_retry(  # noqa: PLR0917
    state: State, outcome: Reply, name: str, producer: Producer | None, payload: bytes, ends: bytes | None
) -> Reply:
    """The outcome of a PUT of a stream that exists, unless its producer wrote other content under the same number."""
    if producer is None or not isinstance(outcome, Existed):
        return outcome
    stream = state.streams[name]
    last = (stream.producers or {}).get(producer.id)
    if last is None or compare(last, producer) is not Standing.DUPLICATE:
        return outcome
    # A PUT that finds its stream asks for a closed one if and only if it is closed.
    return judge_repeat(stream, last, producer, payload, ends, closes=stream.closed) or outcome


def new_life(state: State, command: Create | CreateFork) -> Stream:
    """An empty life that begins with this command."""
    return Stream(
        name=command.name,
        incarnation=state.position,
        content_type=command.content_type,
        lifetime=command.lifetime,
        created_at=state.now,
        written_at=state.now,
        touched_at=state.now,
    )


def judge_founding(state: State, command: Create | CreateFork) -> Refusal | None:
    """Why a free name may not be taken: its bucket, or a producer that has finished or does not begin with this."""
    refusal = judge_bucket(state, command.name, needed=command.needs_bucket)
    producer = command.producer
    if refusal is not None or producer is None:
        return refusal
    if producer.seq == 0:
        return finishing.refusal(producer) if producer.id in state.finished else None
    return Refusal(
        Code.PRODUCER_SEQ_CONFLICT,
        f"Producer {producer.id!r} creates {command.name!r} with sequence number {producer.seq} instead of 0.",
        expected_seq=0,
        received_seq=producer.seq,
    )


def enter(state: State, stream: Stream, command: Create | CreateFork) -> Created:
    """Add a new life with its first bytes under its name, replacing an expired one."""
    expired = state.streams.get(stream.name)
    if expired is not None:
        state.remove(expired)
    state.add(stream)
    record, producer = stream.record_next, command.producer
    if command.payload:
        extend(state, stream, command.payload, command.ends, producer)
    stream.closed, stream.seq, stream.attrs = command.closed, command.seq, command.attrs
    epoch, seq = (None, None) if producer is None else (producer.epoch, producer.seq)
    records = (record, stream.record_next) if command.payload and is_json(stream.content_type) else (None, None)
    if producer is not None:
        remember(stream, command, record, state.now, closes=command.closed)
    return Created(stream.incarnation, stream.content_type, stream.tail, stream.closed, epoch, seq, *records)


@handles(Delete)
def delete(state: State, command: Delete) -> Reply:
    """Delete a stream."""
    stream = state.find(command.name, command.incarnation, state.now)
    if isinstance(stream, Refusal):
        return stream
    refusal = stream.judge_version(command.if_match)
    if refusal is not None:
        return refusal
    state.end(stream)
    return Deleted(stream.incarnation)


@handles(Touch)
def touch(state: State, command: Touch) -> Reply:
    """Renew a sliding lifetime, if that life was alive when it was read."""
    at = min(command.asked_at, state.now)
    stream = state.present(command.name, at if command.alive_at is None else min(command.alive_at, at))
    if isinstance(stream, Stream) and stream.incarnation == command.incarnation and at > stream.touched_at:
        state.before_change(stream)
        stream.touched_at = at
    return Done()


@handles(Expire)
def expire(state: State, command: Expire) -> Reply:
    """End an expired life; one that was renewed or replaced in the meantime stays."""
    stream = state.streams.get(command.name)
    if stream is None or stream.incarnation != command.incarnation or stream.deleted or not stream.expired(state.now):
        return Done()
    state.end(stream)
    return Deleted(stream.incarnation)
