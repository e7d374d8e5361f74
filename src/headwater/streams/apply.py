"""The one place where commands change state: each command of a batch in order, each with a reply."""

from collections.abc import Callable, Mapping
from typing import Any

from headwater.streams import (
    appending,
    buckets,
    consumers,
    finishing,
    forking,
    lifecycle,
    membership,
    purging,
    snapshots,
    tiering,
)
from headwater.streams.batches import Batch
from headwater.streams.cluster import AskFlush, AskTables, Cataloged, Checkpoint, Evict, Join, Keep, RaiseLevel
from headwater.streams.commands import (
    Append,
    Confirm,
    Create,
    CreateFork,
    Delete,
    Discarded,
    DropBucket,
    Expire,
    FinishProducer,
    ForgetSegments,
    OpenBucket,
    Paid,
    Pin,
    PublishSegment,
    PublishSnapshot,
    Retain,
    SealBucket,
    SetAttrs,
    Settle,
    SettleBucket,
    SwapSegments,
    Touch,
    Unpin,
    UnsealBucket,
)
from headwater.streams.purges import AdvancePurge, AskPurge, WithdrawSegments
from headwater.streams.registrations import DropConsumer, LeaseLake, RegisterConsumer, RegisterConsumerFor
from headwater.streams.replies import Reply
from headwater.streams.state import State

Handlers = Mapping[type, Callable[[State, Any], Reply]]

HANDLERS: Handlers = {
    Append: appending.apply,
    FinishProducer: finishing.finish,
    Create: lifecycle.create,
    Delete: lifecycle.delete,
    Touch: lifecycle.touch,
    Expire: lifecycle.expire,
    Pin: forking.pin,
    Confirm: forking.confirm,
    Unpin: forking.unpin,
    CreateFork: forking.create_fork,
    Settle: forking.settle,
    Paid: forking.paid,
    PublishSnapshot: snapshots.publish,
    Retain: snapshots.retain,
    SetAttrs: snapshots.set_attrs,
    Discarded: snapshots.discarded,
    OpenBucket: buckets.open_bucket,
    SealBucket: buckets.seal_bucket,
    UnsealBucket: buckets.unseal_bucket,
    DropBucket: buckets.drop_bucket,
    SettleBucket: buckets.settle_bucket,
    PublishSegment: tiering.publish,
    SwapSegments: tiering.swap,
    ForgetSegments: tiering.forget,
    RegisterConsumer: consumers.register,
    RegisterConsumerFor: consumers.register_for,
    LeaseLake: consumers.lease,
    DropConsumer: consumers.drop,
    Join: membership.join,
    Evict: membership.evict,
    Keep: membership.keep,
    RaiseLevel: membership.raise_level,
    Checkpoint: membership.checkpoint,
    AskFlush: membership.ask_flush,
    AskTables: membership.ask_tables,
    Cataloged: membership.cataloged,
    AskPurge: purging.ask,
    AdvancePurge: purging.advance,
    WithdrawSegments: purging.withdraw,
}


def apply(state: State, batch: Batch, handlers: Handlers = HANDLERS) -> list[Reply]:
    """Apply a decided batch; a shard's time never runs backwards."""
    assert batch.first_position == state.position + 1, "the log has a hole or was applied twice"
    state.now = max(state.now, batch.at)
    replies = []
    for command in batch.commands:
        state.position += 1
        replies.append(handlers[type(command)](state, command))
    return replies
