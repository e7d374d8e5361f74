"""The one place where commands change state: each command of a batch in order, each with a reply."""

from collections.abc import Callable, Mapping
from typing import Any

from headwater.streams import (  # noqa: F401 (importing a module enters its handlers)
    appending,
    buckets,
    consumers,
    finishing,
    forking,
    handling,
    lifecycle,
    membership,
    purges,
    snapshots,
    tiering,
)
from headwater.streams.batches import Batch
from headwater.streams.commands.streams import Append
from headwater.streams.replies import Reply
from headwater.streams.state import State

handling.handles(Append)(appending.apply)

HANDLERS: Mapping[type, Callable[[State, Any], Reply]] = handling.HANDLERS


def apply(state: State, batch: Batch) -> list[Reply]:
    """Apply a decided batch; a shard's time never runs backwards."""
    assert batch.first_position == state.position + 1, "the log has a hole or was applied twice"
    state.now = max(state.now, batch.at)
    replies = []
    for command in batch.commands:
        state.position += 1
        replies.append(HANDLERS[type(command)](state, command))
    return replies
