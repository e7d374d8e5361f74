"""The cataloger: writes a catalog whenever the lake has changed, and deletes those that can no longer be in use."""

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TypeVar

from headwater.lake.catalog import (
    Contents,
    ForkRow,
    TombstoneRow,
    catalog_key,
    newest_catalog,
    parse_catalog_key,
    write_catalog,
)
from headwater.node.lake.intervals import LAKE_INTERVALS, LakeIntervals
from headwater.storage.store import KeyExists, KeyMissing, Store, StoreFailed
from headwater.streams.state import State

T = TypeVar("T")

log = logging.getLogger(__name__)


class Cataloger:
    """Writes one catalog at a time; `write` returns once one covers everything applied before the call."""

    def __init__(
        self,
        shard: int,
        state: State,
        store: Store,
        grace_seconds: float,
        publishing: Callable[[], bool] = lambda: False,
        *,
        intervals: LakeIntervals = LAKE_INTERVALS,
    ) -> None:
        self._state, self._store, self._publishing = state, store, publishing
        self._grace_seconds, self._shard, self._intervals = grace_seconds, shard, intervals
        self._thread = ThreadPoolExecutor(1, "catalog")
        self._writing = asyncio.Lock()
        self._loop_task: asyncio.Task[None] | None = None
        self._written: dict[int, float] = {}
        """The catalogs in the store by position, and when each was first seen there."""
        self._left_out: dict[str, float] = {}
        """Retired segments, and when this process first wrote a catalog without them."""
        self._found = False
        self._newest = 0, 0
        """The position of the newest catalog, and the one up to which it declares every live row flushed."""
        self._reached = 0
        """Up to which position every live row is known to be in the lake; catalogs never declare less than before."""

    def start(self) -> None:
        self._loop_task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        if self._loop_task is not None:
            self._loop_task.cancel()
            await asyncio.gather(self._loop_task, return_exceptions=True)
        self._thread.shutdown()

    async def _run(self) -> None:
        while True:
            try:
                await self._keep_up()
            except (StoreFailed, KeyExists, KeyMissing) as error:
                log.error("the catalog lags behind the lake: %s", error)
            await asyncio.sleep(self._intervals.catalog_check_seconds)

    async def _keep_up(self) -> None:
        async with self._writing:
            await self._find()
        if self._state.cold.changed_at > self._newest[0]:
            await self.write()
        await self._drop_old()

    async def _find(self) -> None:
        """Take in the catalogs of earlier processes, as if new since their age is unknown; delete incomplete ones."""
        if self._found:
            return
        keys = await self._in_thread(self._keys)
        whole = {parsed for key in keys if key.endswith(".json") and (parsed := parse_catalog_key(key))}
        for key in keys:
            parsed = parse_catalog_key(key)
            if parsed in whole:
                self._written.setdefault(parsed[1], time.monotonic())
            elif parsed is not None:
                await self._in_thread(self._store.delete, key)
        self._reached = max(self._reached, await self._in_thread(self._flushed_before))
        self._found = True

    def _flushed_before(self) -> int:
        """What the newest catalog of an earlier process declares flushed; 0 if it is damaged and will be replaced."""
        try:
            catalog = newest_catalog(self._store, self._shard)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            log.error("the newest catalog is damaged: %s", error)
            return 0
        return 0 if catalog is None or catalog.log_id != self._state.log_id else catalog.flushed

    def _keys(self) -> list[str]:
        return [item.key for item in self._store.items(f"catalog/shard={self._shard}/")]

    async def write(self) -> None:
        """Wait until a catalog covers everything applied so far."""
        cold = self._state.cold
        wanted = max(cold.changed_at, cold.flushed), self._flushed
        async with self._writing:
            await self._find()
            if self._newest[0] >= wanted[0] and self._newest[1] >= wanted[1]:
                return
            contents, retired = self._contents(), list(cold.retired)
            await self._in_thread(write_catalog, self._store, contents)
            self._newest = contents.position, contents.flushed
            self._reached = max(self._reached, contents.flushed)
            now = self._written[contents.position] = time.monotonic()
            self._left_out = {segment_id: self._left_out.get(segment_id, now) for segment_id in retired}

    def has_left_out(self, segment_id: str) -> bool:
        """Whether a catalog without this segment is older than the grace period, so that no reader can need it."""
        since = self._left_out.get(segment_id)
        return since is not None and since <= time.monotonic() - self._grace_seconds

    @property
    def _flushed(self) -> int:
        """The position up to which every row that will ever be in the lake is there: the current one if nothing is hot.

        Not while a flush publishes: rows that it took from a life that has ended since are not published yet.
        """
        if self._state.warm or self._publishing():
            return max(self._state.cold.flushed, self._reached)
        return self._state.position

    def _contents(self) -> Contents:
        state, cold = self._state, self._state.cold
        forks = []
        for name in state.forks:
            stream = state.streams[name]
            origin = stream.origin
            assert origin is not None
            start = min(max(origin.start, stream.start), origin.to)
            source = origin.name, origin.incarnation
            forks.append(ForkRow(name, stream.incarnation, stream.deleted, *source, start, origin.to))
        return Contents(
            self._shard,
            state.log_id,
            state.position,
            self._flushed,
            cold.dropped,
            state.now,
            [(number, held.segment, held.live_rows) for number, held in cold.segments.items()],
            [
                TombstoneRow(tombstone.name, incarnation, tombstone.below)
                for incarnation, tombstone in cold.tombstones.items()
            ],
            forks,
        )

    async def _drop_old(self) -> None:
        """Delete catalogs that were replaced more than the grace period ago."""
        expired = time.monotonic() - self._grace_seconds
        positions = sorted(self._written)
        for position, newer in pairwise(positions):
            if self._written[newer] < expired:
                for kind in ("json", "tombstones.parquet", "forks.parquet"):
                    await self._in_thread(self._store.delete, catalog_key(self._shard, position, kind))
                del self._written[position]

    async def _in_thread(self, work: Callable[..., T], *arguments: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)
