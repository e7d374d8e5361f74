"""Forks: the commands on each shard, and the saga that connects them.

A fork pins a range of its source and copies nothing. The source may be in another shard, so no command touches both;
the saga does, and it may be interrupted after any step:

    query the target          if it exists, it alone determines the answer
    resolve the fork point    to a byte position in one life of the source
    Pin                       on the source, with a deadline
    CreateFork                on the target, refused after the deadline
    Confirm                   on the source after 201, without waiting; any other outcome waits for Unpin instead

A process that dies in between leaves a pin without a fork. After the deadline, `Settle` asks the target's shard whether
a fork holds the pin; from then on none can take it. A fork that is removed leaves a debt in its shard's state until its
source has released the pin.
"""

from collections.abc import Generator

import msgspec

from headwater.protocol import json_mode, message_ends
from headwater.protocol.content_types import is_json, media_type
from headwater.protocol.limits import FORK_DEPTH_MAX
from headwater.protocol.producers import Producer
from headwater.protocol.refusals import Code, Refusal, stream_not_found
from headwater.streams.commands import Command
from headwater.streams.commands.forks import Ancestry, Confirm, CreateFork, Origin, Paid, Pin, Settle, Unpin
from headwater.streams.handling import handles
from headwater.streams.lifecycle import Configuration, enter, judge_founding, judge_name, judge_retry, new_life
from headwater.streams.queries import Anchor, ForkTarget, Query, SplitBody
from headwater.streams.replies import Absent, Anchored, Created, Done, Existed, Pinned, Reply, Settled
from headwater.streams.state import Hold, OpenPin, State, Stream


def query_target(state: State, query: ForkTarget, now: int) -> Reply:
    """What exists under the name of a fork that is about to be created."""
    outcome = judge_name(
        state,
        query.name,
        _configuration(query.ancestry, query.closed, query.attrs, query.incarnation, absent=query.absent),
        now,
    )
    if outcome is None:
        return Absent()
    if query.producer is None or not isinstance(outcome, Existed):
        return outcome
    messages = _messages(query.body, query.split, outcome.content_type)
    if isinstance(messages, Refusal):
        return messages
    return judge_retry(state, outcome, query.name, query.producer, *messages)


def _configuration(
    ancestry: Ancestry, closed: bool, attrs: bytes | None, incarnation: int | None, *, absent: bool
) -> Configuration:
    return Configuration(ancestry.content_type, ancestry.lifetime, closed, attrs, ancestry, incarnation, absent)


def source_of_fork(state: State, name: str, now: int) -> Stream | Refusal:
    """The stream to fork; a deleted one that is kept for its forks cannot be forked again."""
    stream = state.present(name, now)
    if isinstance(stream, Refusal) and stream.code is Code.STREAM_GONE:
        return Refusal(Code.FORK_CONFLICT, f"Source {name!r} was deleted and can no longer be forked.")
    return stream


@handles(Pin)
def pin(state: State, command: Pin) -> Reply:
    """Pin the source's bytes up to the fork point."""
    stream = source_of_fork(state, command.name, state.now)
    if isinstance(stream, Refusal):
        return stream
    if command.incarnation is not None and command.incarnation != stream.incarnation:
        return stream_not_found(command.name)
    depth = stream.origin.depth + 1 if stream.origin else 1
    if depth > FORK_DEPTH_MAX:
        return Refusal(
            Code.FORK_CONFLICT,
            f"Source {command.name!r} is already the end of a chain of {FORK_DEPTH_MAX} forks, the maximum.",
        )
    to, record_to = command.to, command.record_to
    if to is None or record_to is None:
        to, record_to = stream.tail, stream.record_next
    visible = stream.snapshot
    if stream.start and visible is not None and to < visible.offset:
        # History was trimmed, perhaps after the point was resolved: without that snapshot a fork would be incomplete.
        return Refusal(
            Code.OFFSET_TRIMMED,
            f"Source {command.name!r} no longer has the data that a fork at this offset would begin with.",
            incarnation=stream.incarnation,
            earliest_offset=visible.offset,
        )
    state.before_change(stream)
    if stream.pins is None:
        stream.pins = {}
    snapshot = visible if visible is not None and visible.offset <= to else None
    stream.pins.pop(command.pin, None)  # A repeated pin comes last, as every new one.
    stream.pins[command.pin] = Hold(stream.start, to, None if snapshot is None else snapshot.blob)
    state.unconfirmed[command.pin] = OpenPin(stream.name, stream.incarnation, command.fork, command.deadline)
    return Pinned(
        stream.incarnation,
        stream.content_type,
        stream.lifetime,
        stream.start,
        to,
        stream.record_start,
        record_to,
        depth,
        snapshot,
    )


@handles(Confirm)
def confirm(state: State, command: Confirm) -> Reply:
    """The fork exists: its pin no longer has a deadline."""
    state.unconfirmed.pop(command.pin, None)
    return Done()


@handles(Unpin)
def unpin(state: State, command: Unpin) -> Reply:
    """Release the source; a deleted one is removed with its last pin."""
    state.unconfirmed.pop(command.pin, None)
    stream = state.streams.get(command.name)
    if stream is None or stream.incarnation != command.incarnation or not stream.pins or command.pin not in stream.pins:
        return Done()
    state.before_change(stream)
    stored_bytes = stream.stored_bytes
    hold = stream.pins.pop(command.pin)
    stream.pins = stream.pins or None
    state.recount(stream, stored_bytes)
    if hold.blob is not None and (stream.snapshot is None or stream.snapshot.blob != hold.blob):
        state.discard(stream, hold.blob)
    if stream.deleted and stream.pins is None:
        state.remove(stream)
    else:
        state.trim(stream)
    return Done()


@handles(CreateFork)
def create_fork(state: State, command: CreateFork) -> Reply:
    """Create the fork, or report what exists in its place; its pin is valid only until the deadline."""
    wanted = _configuration(command.ancestry, command.closed, command.attrs, None, absent=command.absent)
    outcome = judge_name(state, command.name, wanted, state.now) or judge_founding(state, command)
    if outcome is not None:
        return judge_retry(state, outcome, command.name, command.producer, command.payload, command.ends)
    if state.now > command.deadline:
        return Refusal(Code.OVERLOADED, "The fork took too long to create; try again.")
    origin = command.origin
    stream = new_life(state, command)
    stream.origin, stream.ancestry, stream.snapshot = origin, command.ancestry, command.snapshot
    stream.start, stream.record_start = origin.start, origin.record_start
    stream.tail, stream.record_next = origin.to, origin.record_to
    return enter(state, stream, command)


@handles(Settle)
def settle(state: State, command: Settle) -> Reply:
    """Whether a fork holds the pin, or held it and owes its release; no answer is final before the deadline."""
    if state.now <= command.deadline:
        return Refusal(Code.OVERLOADED, "The pin's deadline has not passed yet.")
    stream = state.streams.get(command.name)
    holds = stream is not None and stream.origin is not None and stream.origin.pin == command.pin
    return Settled(holds or command.pin in state.owed)


@handles(Paid)
def paid(state: State, command: Paid) -> Reply:
    """The source has released the pin."""
    state.owed.pop(command.pin, None)
    return Done()


# -- The saga --------------------------------------------------------------------------------------------------------


class ForkRequest(msgspec.Struct, frozen=True, gc=False):
    """A client's request for a fork: its name, its fork point, and what else a create may carry."""

    name: str
    ancestry: Ancestry
    closed: bool
    body: bytes
    seq: str | None = None
    producer: Producer | None = None
    incarnation: int | None = None
    attrs: bytes | None = None
    needs_bucket: bool = False
    absent: bool = False
    split: SplitBody | None = None
    """The body as JSON, if it was split beforehand."""


Saga = Generator[Command | Query | Reply, Reply | None, None]
"""Yields commands and queries, each for the shard that owns its name, and is sent the replies. A reply that it yields
is the client's answer; the client does not wait for what follows."""


def fork(request: ForkRequest, pin_id: str, deadline: int) -> Saga:
    """Create a fork; `pin_id` is unique to this attempt."""
    ancestry = request.ancestry
    target = yield ForkTarget(
        request.name,
        request.closed,
        ancestry,
        request.incarnation,
        request.attrs,
        request.producer,
        request.body,
        request.absent,
        request.split,
    )
    if not isinstance(target, Absent):
        yield _reply(target)
        return
    point = Pin(ancestry.source, pin_id, request.name, deadline)
    if ancestry.offset is not None:
        anchor = yield Anchor(ancestry.source, ancestry.offset, ancestry.sub_offset)
        if not isinstance(anchor, Anchored):
            yield _reply(anchor)
            return
        point = Pin(ancestry.source, pin_id, request.name, deadline, anchor.incarnation, anchor.to, anchor.record_to)
    pinned = yield point
    if not isinstance(pinned, Pinned):
        yield _reply(pinned)
        return
    creation = _creation(request, pinned, pin_id, deadline)
    outcome = creation if isinstance(creation, Refusal) else _reply((yield creation))
    if isinstance(outcome, Created):
        yield outcome
        yield Confirm(ancestry.source, pinned.incarnation, pin_id)
    else:
        yield Unpin(ancestry.source, pinned.incarnation, pin_id)
        yield outcome


def _reply(sent: Reply | None) -> Reply:
    assert sent is not None, "a saga is sent a reply to every command and query"
    return sent


def split_body(request: ForkRequest) -> ForkRequest:
    """The request with its body split as JSON, which takes long if it is large; its source may be of another type."""
    return msgspec.structs.replace(request, split=_split(request.body))


def _split(body: bytes) -> SplitBody:
    messages = json_mode.split(body)
    return messages if isinstance(messages, Refusal) else (b"".join(messages), message_ends.of(messages))


def _messages(body: bytes, split: SplitBody | None, content_type: str) -> SplitBody:
    """The messages of a body, and where they end."""
    if not body or not is_json(content_type):
        return body, None
    return _split(body) if split is None else split


def _creation(request: ForkRequest, pinned: Pinned, pin_id: str, deadline: int) -> CreateFork | Refusal:
    ancestry = request.ancestry
    if ancestry.content_type is not None and media_type(ancestry.content_type) != media_type(pinned.content_type):
        return Refusal(
            Code.CONTENT_TYPE_MISMATCH,
            f"Source {ancestry.source!r} has content type {pinned.content_type}; a fork cannot have "
            f"{ancestry.content_type}.",
        )
    messages = _messages(request.body, request.split, pinned.content_type)
    if isinstance(messages, Refusal):
        return messages
    origin = Origin(
        ancestry.source,
        pinned.incarnation,
        pinned.start,
        pinned.to,
        pinned.record_start,
        pinned.record_to,
        pin_id,
        pinned.depth,
        None if pinned.snapshot is None else pinned.snapshot.blob,
    )
    return CreateFork(
        request.name,
        pinned.content_type if ancestry.content_type is None else ancestry.content_type,
        pinned.lifetime if ancestry.lifetime is None else ancestry.lifetime,
        request.closed,
        *messages,
        origin,
        ancestry,
        deadline,
        request.seq,
        request.producer,
        pinned.snapshot,
        request.attrs,
        request.needs_bucket,
        request.absent,
    )
