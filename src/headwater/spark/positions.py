"""Positions in the server's log, keyed by shard as the API reports them. There is one shard."""

from collections.abc import Mapping

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
