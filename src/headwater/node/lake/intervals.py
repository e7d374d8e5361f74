"""How often the lake's chores check for work, and how long they wait after a failure."""

from typing import NamedTuple


class LakeIntervals(NamedTuple):
    """Tests make them short; nothing else needs to."""

    flush_check_seconds: float = 0.5
    flush_retry_seconds: float = 2.0
    catalog_check_seconds: float = 5.0
    """How far a catalog may lag behind deletes and trims, which no client waits for."""
    streams_write_seconds: float = 240.0
    """How long the table of the streams is left alone after it was written, unless a client asks for it."""
    compact_check_seconds: float = 5.0
    compact_retry_seconds: float = 10.0
    compact_avoid_seconds: float = 600.0
    """How long segments whose rewrite failed are left alone: a damaged one must not delay the rewrites of others."""
    sweep_check_seconds: float = 5.0
    """How often retired segments are checked."""
    orphans_check_seconds: float = 600.0
    """How often the store is searched for objects that no state names."""
    read_retry_seconds: tuple[float, ...] = (0.05, 0.5)
    """The pauses before each further attempt at a read that failed."""


LAKE_INTERVALS = LakeIntervals()
