"""Positions in the server's log, keyed by shard as the API reports them. There is one shard."""

import json
from collections.abc import Mapping
from typing import Any

from headwater.client import admin

SHARD = str(admin.SHARD)


class UnknownShards(Exception):
    """Positions name other shards than the only one."""


def by_shard(position: int) -> dict[str, int]:
    """A position in the form that the API and the checkpoints use."""
    return {SHARD: position}


def position_in(shards: Mapping[str, int]) -> int:
    """The position of the only shard.

    >>> position_in(by_shard(17))
    17
    """
    if set(shards) != {SHARD}:
        raise UnknownShards(f"Expected the position of shard {SHARD} and no other, but got shards {sorted(shards)}.")
    return shards[SHARD]


def lag_in(progress: Mapping[str, Any]) -> int | None:
    """How many positions of the log a query on the lake is behind, from its `lastProgress`; None if that is unknown.

    Not all positions have rows, so a query that has read everything may be a few behind.

    >>> lag_in({"sources": [{"endOffset": '{"shards": {"0": 57}}', "latestOffset": '{"shards": {"0": 60}}'}]})
    3
    >>> lag_in({"sources": [{"endOffset": None, "latestOffset": None}]}) is None
    True
    """
    source = progress["sources"][0]
    ends = [json.loads(source[name] or "null") for name in ("endOffset", "latestOffset")]
    if any(end is None for end in ends):
        return None
    reached, newest = (position_in(end["shards"]) for end in ends)
    return max(newest - reached, 0)
