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


def lag_in(progress: Mapping[str, Any] | None) -> int | None:
    """How many positions of the log a query on the lake is behind, from its `lastProgress`; None if that is unknown.

    Not all positions have rows, so a query that has read everything may be a few behind. A query that has just started
    has no progress yet. Of several sources, the first one that reads a lake counts.

    >>> lag_in({"sources": [{"endOffset": '{"shards": {"0": 57}}', "latestOffset": '{"shards": {"0": 60}}'}]})
    3
    >>> lag_in({"sources": [{"endOffset": None, "latestOffset": None}]}) is None
    True
    """
    for source in progress["sources"] if progress is not None else ():
        reached, newest = (_position_of(source[name]) for name in ("endOffset", "latestOffset"))
        if reached is not None and newest is not None:
            return max(newest - reached, 0)
    return None


def _position_of(offset: str | None) -> int | None:
    """The position in an offset of the lake's source; None for one of another source."""
    try:
        found = json.loads(offset or "null")
    except ValueError:
        return None
    return position_in(found["shards"]) if isinstance(found, dict) and "shards" in found else None
