"""What the chores of one shard's lake have in common: what they work with, and their limits."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from headwater.lake.compaction.planning import REWRITE_LIMITS, RewriteLimits
from headwater.lake.damage import LakeDamaged
from headwater.log.seam import CommandLog
from headwater.node.committer import Now, Submit
from headwater.protocol.limits import STREAMS_PER_SEGMENT_MAX
from headwater.settings import Settings
from headwater.storage.store import KeyExists, KeyMissing, Store, StoreFailed
from headwater.streams.segments import Segment
from headwater.streams.state import State

STORE_TROUBLE = (StoreFailed, KeyExists, KeyMissing, LakeDamaged)
"""What a chore of the lake may run into; anything else is a bug, whose traceback belongs into the log."""
ORPHAN_SECONDS = 900.0
"""How long after its deadline an object that no state names is deleted, unless history is kept for less."""

_DEFAULTS = Settings()


class FlushLimits(NamedTuple):
    """When a flush begins, and how large its objects are."""

    interval_seconds: float = _DEFAULTS.flush_seconds
    """How long an append stays hot before age alone makes a flush due."""
    bytes_min: int = _DEFAULTS.flush_bytes_min
    """Hot bytes needed for age to make a flush due: fewer are not worth an object."""
    bytes_max: int = _DEFAULTS.flush_bytes_max
    """Hot bytes that make a flush due at once."""
    journal_bytes: int = _DEFAULTS.flush_journal_bytes
    """Journal bytes since the last flush that make one due, however little is hot."""
    segment_bytes: int = _DEFAULTS.flush_segment_bytes
    """Approximate payload of one object."""
    concurrency: int = _DEFAULTS.flush_concurrency
    """How many objects are built and uploaded at a time."""

    @classmethod
    def of(cls, settings: Settings) -> "FlushLimits":
        return cls(
            settings.flush_seconds,
            settings.flush_bytes_min,
            settings.flush_bytes_max,
            settings.flush_journal_bytes,
            settings.flush_segment_bytes,
            settings.flush_concurrency,
        )


class CompactLimits(NamedTuple):
    """How much is rewritten at a time, and which share of the time it may take."""

    rewrite: RewriteLimits = REWRITE_LIMITS
    streams_max: int = STREAMS_PER_SEGMENT_MAX
    time_share: float = 0.25
    extents_max: int = 64
    """A stream in more pieces than this comes first: each costs memory, and a request when it is read."""


class LakeIntervals(NamedTuple):
    """How often the chores check for work, and how long they wait after a failure. Only tests make them short."""

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


class LakeLimits(NamedTuple):
    """How much may be hot, when it is flushed, how long history and dead rows are kept, and what chores may take."""

    hot_bytes_max: int = _DEFAULTS.hot_bytes_max
    flush: FlushLimits = FlushLimits()
    history_seconds: float = _DEFAULTS.lake_history_seconds
    """How long snapshots of the tables are kept."""
    flush_at_stop: bool = _DEFAULTS.flush_at_stop
    intervals: LakeIntervals = LakeIntervals()
    erase_seconds: float = _DEFAULTS.erase_seconds
    """Within which time dead rows are rewritten away."""
    compact: CompactLimits = CompactLimits()

    @property
    def grace_seconds(self) -> float:
        """How long after its deadline an object that no state names is deleted."""
        return min(self.history_seconds, ORPHAN_SECONDS)

    @property
    def dead_seconds_max(self) -> float:
        """How long a segment may have dead rows: once rewritten, its object stays while a snapshot lists it."""
        return max(self.erase_seconds - self.history_seconds, 0.0)

    @property
    def list_history_seconds(self) -> float:
        """How long snapshots of `streams` are kept: a deleted name is in the table for up to two walks more."""
        return min(self.history_seconds, max(self.erase_seconds - 2 * self.intervals.streams_write_seconds, 0.0))

    @classmethod
    def of(cls, settings: Settings) -> "LakeLimits":
        return cls(
            settings.hot_bytes_max,
            FlushLimits.of(settings),
            settings.lake_history_seconds,
            settings.flush_at_stop,
            erase_seconds=settings.erase_seconds,
        )


LAKE_LIMITS = LakeLimits()


class LakeParts(NamedTuple):
    """The shard that a chore works for, its log and store, how it changes the state, and the limits."""

    shard: int
    state: State
    store: Store
    submit: Submit
    now: Now
    in_use: Counter[str]
    """How many reads use each segment; one that is in use is not deleted."""
    command_log: CommandLog
    limits: LakeLimits = LAKE_LIMITS

    def now_ms(self) -> int:
        """Return the time of the shard in the unit of Iceberg's snapshots."""
        return self.now() // 1000

    @contextmanager
    def reading(self, segments: Sequence[Segment]) -> Iterator[None]:
        """Count a read of each of these segments while the block lasts."""
        ids = [segment.id for segment in segments]
        self.in_use.update(ids)
        try:
            yield
        finally:
            self.in_use.subtract(ids)
            for segment_id in ids:
                if not self.in_use[segment_id]:
                    del self.in_use[segment_id]
