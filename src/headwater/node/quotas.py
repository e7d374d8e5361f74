"""Quotas: whether a bucket has room for what a request would add to it.

They are judged by the applied state, before a command is submitted, and never when it is applied: settings must not
decide state. So what is being committed at that moment may exceed a quota. A bucket is full for a request if what it
has and what the request would add are more than its quota.

- Duplicates come first. A retry of an accepted append, a PUT of a stream that exists and a close add nothing, and get
  their usual answers. So do a producer that was fenced off and requests that are refused whatever is in flight.
- Any other outcome may still change with what is in flight, in particular a gap that an earlier append of the same
  producer is about to fill. In a full bucket, all of these are refused.
- Stored bytes are those of the messages, once for a stream and its forks, also of a deleted stream while forks need it.
  Snapshots do not count, since publishing one is how a full bucket makes room.
"""

from collections.abc import Mapping
from typing import TypeAlias

from headwater.access.limits import Quota
from headwater.node.node import Node
from headwater.protocol.names import bucket_of
from headwater.protocol.refusals import Code, Refusal
from headwater.streams.buckets import judge_bucket
from headwater.streams.commands.streams import Append, Create
from headwater.streams.forking import ForkRequest

Quotas: TypeAlias = Mapping[str, Quota]
"""By bucket."""

ANY_BUCKET = "*"
"""The key of the quota that every bucket without one of its own has, each for itself."""

_DECIDED = frozenset({Code.PRODUCER_EPOCH_STALE, Code.PRODUCER_PAYLOAD_MISMATCH})
"""Refusals of producers that no later append can change."""


def quota_of(quotas: Quotas, bucket: str) -> Quota | None:
    """The quota of a bucket."""
    return quotas.get(bucket) or quotas.get(ANY_BUCKET)


def refuse_streams(node: Node, quotas: Quotas, bucket: str, new: int = 1) -> Refusal | None:
    """Why a bucket has no room for new streams."""
    quota = quota_of(quotas, bucket)
    if quota is None or quota.streams is None or new <= 0:
        return None
    used = sum(shard.state.lives[bucket] for shard in node.shards)
    if used + new <= quota.streams:
        return None
    return Refusal(
        Code.QUOTA_EXCEEDED,
        f"Bucket {bucket!r} has {used:,} of {quota.streams:,} streams that it may have; delete some first.",
    )


def refuse_bytes(node: Node, quotas: Quotas, bucket: str, new: int) -> Refusal | None:
    """Why a bucket has no room for new bytes."""
    quota = quota_of(quotas, bucket)
    if quota is None or quota.stored_bytes is None or new <= 0:
        return None
    used = sum(shard.state.bytes[bucket] for shard in node.shards)
    if used + new <= quota.stored_bytes:
        return None
    return Refusal(
        Code.QUOTA_EXCEEDED,
        f"Bucket {bucket!r} stores {used:,} of {quota.stored_bytes:,} bytes that it may store, and {new:,} more do not "
        "fit; delete or trim streams first.",
    )


def judge(node: Node, quotas: Quotas, command: Append | Create | ForkRequest) -> Refusal | None:
    """Why a command may not be submitted: it would add more than its bucket has room for."""
    if isinstance(command, Append):
        return judge_append(node, quotas, command, len(command.payload))
    return _judge_create(node, quotas, command)


def judge_append(node: Node, quotas: Quotas, command: Append, new: int) -> Refusal | None:
    """Why an append may not be submitted; `new` are its bytes, or those of all appends that follow from its request."""
    refusal = refuse_bytes(node, quotas, bucket_of(command.name), new)
    if refusal is None or node.early(command) is not None:
        return None
    outcome = node.judge_append(command)
    adds_nothing = outcome is not None and not isinstance(outcome, Refusal)
    is_decided = isinstance(outcome, Refusal) and outcome.code in _DECIDED
    return None if adds_nothing or is_decided else refusal


def judge_target(node: Node, quotas: Quotas, name: str) -> Refusal | None:
    """Why an append without a producer may not be submitted, whatever its body is: its bucket is full already."""
    return judge_append(node, quotas, Append(name, b"-"), 1)


def _judge_create(node: Node, quotas: Quotas, command: Create | ForkRequest) -> Refusal | None:
    # Whether the body of a fork is JSON depends on its source, so brackets and whitespace count here as well.
    name, new = command.name, len(command.payload if isinstance(command, Create) else command.body)
    bucket, state = bucket_of(name), node.shard_of(name).state
    stream = state.streams.get(name)
    replaced = 0
    if stream is not None:
        if stream.deleted or stream.pins or not isinstance(node.present(name), Refusal):
            return None  # Its name is taken.
        replaced = stream.stored_bytes
    refusal = None if stream is not None else refuse_streams(node, quotas, bucket)
    refusal = refusal or refuse_bytes(node, quotas, bucket, new - replaced if new else 0)
    if refusal is None or judge_bucket(state, name, needed=command.needs_bucket) is not None:
        return None
    return refusal
