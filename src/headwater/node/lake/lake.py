"""The lake of a shard: the reads that need it, and the chores that keep it."""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from headwater.log.seam import CommandLog
from headwater.node.committer import Now, Submit
from headwater.node.lake.cataloger import Cataloger
from headwater.node.lake.compactor import COMPACT_LIMITS, Compactor
from headwater.node.lake.flusher import FLUSH_LIMITS, Flusher, FlushFailed, FlushLimits
from headwater.node.lake.intervals import LAKE_INTERVALS, LakeIntervals
from headwater.node.lake.parts import LakeParts
from headwater.node.lake.swaps import Swaps
from headwater.node.lake.sweeper import LakeSweeper
from headwater.node.reads.cold import ColdReads
from headwater.settings import Settings
from headwater.storage.store import KeyExists, KeyMissing, Store, StoreFailed
from headwater.streams.fetched import Fetched
from headwater.streams.queries import Query
from headwater.streams.replies import Reply
from headwater.streams.state import State

_DEFAULTS = Settings()


class LakeLimits(NamedTuple):
    """How much may be hot, when it is flushed, and how long replaced objects are kept."""

    hot_bytes_max: int = _DEFAULTS.hot_bytes_max
    flush: FlushLimits = FLUSH_LIMITS
    grace_seconds: float = _DEFAULTS.lake_grace_seconds
    flush_at_stop: bool = _DEFAULTS.flush_at_stop
    intervals: LakeIntervals = LAKE_INTERVALS

    @classmethod
    def of(cls, settings: Settings) -> "LakeLimits":
        flush = FlushLimits.of(settings)
        return cls(settings.hot_bytes_max, flush, settings.lake_grace_seconds, settings.flush_at_stop)


LAKE_LIMITS = LakeLimits()


class Lake:
    """Cold reads, flushes, catalogs, sweeps, compaction and swaps of one shard."""

    def __init__(
        self,
        shard: int,
        state: State,
        store: Store,
        *,
        answer: Callable[[Query, Fetched], Reply],
        submit: Submit,
        now: Now,
        command_log: CommandLog,
        limits: LakeLimits,
    ) -> None:
        self._limits = limits
        self.store = store
        intervals = limits.intervals
        self.reads = ColdReads(shard, state, store, answer, retry_seconds=intervals.read_retry_seconds)
        parts = LakeParts(shard, state, store, submit, now, self.reads.in_use, intervals)
        self.flusher = Flusher(parts, limits.flush, lambda: command_log.size_bytes)
        self.cataloger = Cataloger(
            shard,
            state,
            store,
            limits.grace_seconds,
            lambda: self.flusher.publishing,
            leased=lambda: state.cold.leased(now()),
            intervals=intervals,
        )
        self.compactor = Compactor(parts, COMPACT_LIMITS._replace(segment_bytes=limits.flush.segment_bytes))
        self.swaps = Swaps(parts)
        self.sweeper = LakeSweeper(parts, lambda: self.cataloger.left_out_position, limits.grace_seconds)

    def start(self) -> None:
        self.flusher.start()
        self.cataloger.start()
        self.compactor.start()
        self.sweeper.start()

    async def stop(self) -> None:
        if self._limits.flush_at_stop:
            await asyncio.gather(self.flush(), return_exceptions=True)
        await self.sweeper.stop()
        await self.compactor.stop()
        await self.swaps.stop()
        await self.flusher.stop()
        await self.cataloger.stop()
        await self.reads.stop()

    def after_batch(self) -> None:
        self.flusher.after_batch()

    async def flush(self) -> int:
        """Wait until everything applied so far is in the lake and in a catalog; the position up to which it is."""
        position = await self.flusher.flush()
        try:
            await self.cataloger.write()
        except (StoreFailed, KeyExists, KeyMissing) as error:
            raise FlushFailed(str(error)) from error
        return position
