"""Snapshots, retention and attributes.

A snapshot stands at a border between messages. One is visible at a time, the latest; its blob was made durable before
the command that names it. Where history is trimmed, the snapshot's offset becomes the earliest that is retained.
"""

from headwater.protocol.refusals import Code, Refusal, incarnation_changed
from headwater.streams.commands import Discarded, PublishSnapshot, Retain, SetAttrs
from headwater.streams.replies import Acknowledged, Done, Published, Reply
from headwater.streams.state import State, Stream


def judge_publish(stream: Stream, offset: int, *, trims: bool) -> Refusal | None:
    """Why no snapshot may be published at an offset, as far as that does not depend on its bytes."""
    if offset > stream.tail:
        return _conflict(stream, f"The snapshot's offset lies beyond the tail of {stream.name!r}.")
    visible = stream.snapshot
    if offset < stream.start or (trims and visible is not None and offset < visible.offset):
        return _trimmed(stream)
    if visible is not None and offset < visible.offset:
        return _conflict(stream, f"The stream {stream.name!r} has a later snapshot.")
    return None


def publish(state: State, command: PublishSnapshot) -> Reply:
    """Show a snapshot in place of the one before; whatever happens, the blob that is not shown is let go of."""
    stream, snapshot = state.present(command.name, state.now), command.snapshot
    if isinstance(stream, Stream) and stream.incarnation != command.incarnation:
        stream = incarnation_changed(stream.name, stream.incarnation)
    if isinstance(stream, Refusal):
        state.discarded[snapshot.blob] = None
        return stream
    refusal = judge_publish(stream, snapshot.offset, trims=command.trims)
    if refusal is not None:
        state.discarded[snapshot.blob] = None
        return refusal
    visible = stream.snapshot
    if visible is not None and visible.offset == snapshot.offset:
        state.discarded[snapshot.blob] = None
        if (visible.digest, visible.content_type) != (snapshot.digest, snapshot.content_type):
            return _conflict(stream, f"The stream {stream.name!r} has another snapshot at this offset.")
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


def retain(state: State, command: Retain) -> Reply:
    """Let history before an offset go, as far as the snapshot covers it."""
    stream = state.present(command.name, state.now)
    if isinstance(stream, Refusal):
        return stream
    if stream.incarnation != command.incarnation:
        return incarnation_changed(stream.name, stream.incarnation)
    if stream.snapshot is None or command.offset > stream.snapshot.offset:
        return _conflict(stream, f"No snapshot of {stream.name!r} covers what would be lost; publish one first.")
    if command.offset < stream.start:
        return _trimmed(stream)
    state.before_change(stream)
    _retain_from(state, stream, command.offset, command.record)
    return Acknowledged(stream.incarnation)


def set_attrs(state: State, command: SetAttrs) -> Reply:
    """Replace the attributes; also of a closed stream."""
    stream = state.present(command.name, state.now)
    if isinstance(stream, Refusal):
        return stream
    if command.incarnation is not None and command.incarnation != stream.incarnation:
        return incarnation_changed(stream.name, stream.incarnation)
    state.before_change(stream)
    stream.attrs = command.attrs
    stream.touched_at = state.now
    return Acknowledged(stream.incarnation)


def discarded(state: State, command: Discarded) -> Reply:
    """The blob is gone from disk."""
    state.discarded.pop(command.blob, None)
    return Done()


def _retain_from(state: State, stream: Stream, offset: int, record: int) -> None:
    stream.start, stream.record_start = offset, record
    state.trim(stream)


def _published(stream: Stream) -> Published:
    assert stream.snapshot is not None
    return Published(stream.incarnation, stream.snapshot.offset, stream.tail, stream.closed)


def _conflict(stream: Stream, detail: str) -> Refusal:
    return Refusal(Code.SNAPSHOT_CONFLICT, detail, incarnation=stream.incarnation, next_offset=stream.tail)


def _trimmed(stream: Stream) -> Refusal:
    return Refusal(
        Code.OFFSET_TRIMMED,
        f"The stream {stream.name!r} no longer holds bytes that early.",
        incarnation=stream.incarnation,
        earliest_offset=stream.start,
    )
