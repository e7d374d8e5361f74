"""Snapshots, retention and attributes.

A snapshot is placed at a message boundary. Only the latest one is visible; its blob was made durable before the command
that names it. When history is trimmed, the snapshot's offset becomes the earliest retained offset.
"""

from headwater.protocol.refusals import Code, Refusal
from headwater.streams.commands.snapshots import NO_SNAPSHOT, Discarded, PublishSnapshot, Retain
from headwater.streams.commands.streams import SetAttrs
from headwater.streams.handling import handles
from headwater.streams.replies import Acknowledged, Done, Published, Reply
from headwater.streams.state import State, Stream


def beyond_tail(stream: Stream) -> Refusal:
    """The answer for an offset that the stream has not reached: no one knows whether a message will end there."""
    return _conflict(stream, f"The offset is beyond the tail of {stream.name!r}.")


def _judge_publish(state: State, stream: Stream, command: PublishSnapshot) -> Refusal | None:
    """Why a snapshot may not be published, apart from reasons that depend on its bytes."""
    if command.deadline is not None and state.now > command.deadline:
        return Refusal(
            Code.REQUEST_TIMEOUT,
            f"The snapshot of {stream.name!r} took too long to arrive; upload it again.",
            incarnation=stream.incarnation,
        )
    refusal = stream.judge_version(command.if_match)
    if refusal is not None:
        return refusal
    visible, offset = stream.snapshot, command.snapshot.offset
    present = NO_SNAPSHOT if visible is None else visible.digest
    if command.replaces is not None and command.replaces != present:
        return _conflict(stream, f"The latest snapshot of {stream.name!r} is not the one in Stream-Snapshot-Match.")
    if command.tail is not None and offset > command.tail:
        return beyond_tail(stream)
    return judge_publish(stream, offset, trims=command.trims)


def judge_publish(stream: Stream, offset: int, *, trims: bool) -> Refusal | None:
    """Why a snapshot may not be published at this offset, whatever it contains and whatever the client expects."""
    visible = stream.snapshot
    if offset > stream.tail:
        return beyond_tail(stream)
    if offset < stream.start or (trims and visible is not None and offset < visible.offset):
        return _trimmed(stream)
    if visible is not None and offset < visible.offset:
        return _conflict(stream, f"Stream {stream.name!r} has a later snapshot.")
    return None


@handles(PublishSnapshot)
def publish(state: State, command: PublishSnapshot) -> Reply:
    """Make a snapshot visible in place of the previous one; the blob that is not visible is released in any case."""
    stream, snapshot = state.find(command.name, command.incarnation, state.now), command.snapshot
    if isinstance(stream, Refusal):
        state.discarded[snapshot.blob] = None
        return stream
    refusal = _judge_publish(state, stream, command)
    if refusal is not None:
        state.discarded[snapshot.blob] = None
        return refusal
    visible = stream.snapshot
    if visible is not None and visible.offset == snapshot.offset:
        state.discarded[snapshot.blob] = None
        if (visible.digest, visible.content_type) != (snapshot.digest, snapshot.content_type):
            return _conflict(stream, f"Stream {stream.name!r} has another snapshot at this offset.")
        if command.trims and stream.start < visible.offset:
            state.before_change(stream)
            _retain_from(state, stream, visible.offset, visible.record)
        return _published(stream)
    state.before_change(stream)
    stream.snapshot = snapshot
    if visible is not None:
        state.discard(stream, visible.blob)
    if command.trims:
        _retain_from(state, stream, snapshot.offset, snapshot.record)
    return _published(stream)


@handles(Retain)
def retain(state: State, command: Retain) -> Reply:
    """Drop history before an offset, as far as the snapshot covers it."""
    stream = state.find(command.name, command.incarnation, state.now)
    if isinstance(stream, Refusal):
        return stream
    if stream.snapshot is None or command.offset > stream.snapshot.offset:
        return _conflict(
            stream, f"No snapshot of {stream.name!r} covers the data that would be dropped; publish one first."
        )
    if command.tail is not None and command.offset > command.tail:
        return beyond_tail(stream)
    if command.offset < stream.start:
        return _trimmed(stream)
    state.before_change(stream)
    _retain_from(state, stream, command.offset, command.record)
    return Acknowledged(stream.incarnation)


@handles(SetAttrs)
def set_attrs(state: State, command: SetAttrs) -> Reply:
    """Replace the attributes, even of a closed stream."""
    now = state.now if command.asked_at is None else min(command.asked_at, state.now)
    stream = state.find(command.name, command.incarnation, now)
    if isinstance(stream, Refusal):
        return stream
    state.before_change(stream)
    stream.attrs = command.attrs
    stream.touched_at = state.now
    return Acknowledged(stream.incarnation)


@handles(Discarded)
def discarded(state: State, command: Discarded) -> Reply:
    """The blob is gone from disk."""
    state.discarded.pop(command.blob, None)
    return Done()


def _retain_from(state: State, stream: Stream, offset: int, record: int) -> None:
    stored_bytes = stream.stored_bytes
    stream.start, stream.record_start = offset, record
    state.recount(stream, stored_bytes)
    state.trim(stream)


def _published(stream: Stream) -> Published:
    assert stream.snapshot is not None
    visible = stream.snapshot
    return Published(stream.incarnation, visible.offset, stream.tail, stream.closed, visible.digest)


def _conflict(stream: Stream, detail: str) -> Refusal:
    return Refusal(Code.SNAPSHOT_CONFLICT, detail, incarnation=stream.incarnation, next_offset=stream.tail)


def _trimmed(stream: Stream) -> Refusal:
    return Refusal(
        Code.OFFSET_TRIMMED,
        f"Stream {stream.name!r} no longer has data that old; it was trimmed.",
        incarnation=stream.incarnation,
        earliest_offset=stream.start,
    )
