"""The cataloger: writes a catalog whenever the lake has changed, and deletes those that can no longer be in use.

Segments, tombstones and forks are never gathered as a whole. The state records which of them have changed, the loop
takes a limited number of these at a time, and a thread keeps the `Listing` that catalogs are made from.
"""

import asyncio
import logging
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from headwater.lake.catalog import (
    KINDS,
    Catalog,
    Edition,
    ForkRow,
    TombstoneRow,
    catalog_key,
    newest_catalog,
    parse_catalog_key,
    write_catalog,
)
from headwater.lake.listing import Changes, Heading, Listing
from headwater.node.lake.intervals import LAKE_INTERVALS, LakeIntervals
from headwater.storage.store import KeyExists, KeyMissing, Store, StoreFailed
from headwater.streams.cold import ALL
from headwater.streams.state import State

CHANGES_PER_TURN = 2_000
"""How many changed segments, tombstones and forks are taken from the state before the loop gets a turn."""
CATALOG_SECONDS = 60.0
"""How long a reader may take from the flush after its lease to its catalog: those written later are not kept for it."""

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
        leased: Callable[[], set[int]] = set,
        intervals: LakeIntervals = LAKE_INTERVALS,
    ) -> None:
        self._state, self._store, self._publishing, self._leased = state, store, publishing, leased
        self._grace_seconds, self._shard, self._intervals = grace_seconds, shard, intervals
        self._thread = ThreadPoolExecutor(1, "catalog")
        self._writing = asyncio.Lock()
        self._loop_task: asyncio.Task[None] | None = None
        self._written: dict[Edition, float] = {}
        """The catalogs in the store, and when each was first seen there."""
        self._attempted: set[Edition] = set()
        """Catalogs that may be in the store in part, or whole: the store did not say."""
        self._generation = 0
        self._unlisted = state.cold.record_unlisted({state.streams[name].incarnation: name for name in state.forks})
        self._listing = Listing()
        """Used in the thread only."""
        self._taken: deque[tuple[int, Changes]] = deque()
        """Numbered changes on their way to the listing. They stay here if the request for a catalog is cancelled."""
        self._taken_count = 0
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
            if parsed is None:
                continue
            self._generation = max(self._generation, parsed[1].generation)
            if parsed in whole:
                self._written.setdefault(parsed[1], time.monotonic())
            else:
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
            heading = await self._take_changes()
            self._attempted.add(heading.edition)
            try:
                await self._in_thread(self._write, heading, self._taken_count)
            except KeyExists:
                self._found = False  # Something else has written here: look again before the next attempt.
                raise
            self._attempted.discard(heading.edition)
            self._newest = heading.edition.position, heading.flushed
            self._reached = max(self._reached, heading.flushed)
            self._written[heading.edition] = time.monotonic()

    @property
    def left_out_position(self) -> int:
        """No catalog has listed segments retired up to this position for the grace period, so no reader needs them."""
        # A reader takes its lease, waits for a flush and reads a catalog: no segment that retired before is in it.
        first_lease = min(self._leased(), default=ALL)
        return max((one.position for one in self._expired() if one.position < first_lease), default=0)

    def _expired(self) -> list[Edition]:
        """The catalogs that have been in the store for the grace period."""
        expired = time.monotonic() - self._grace_seconds
        return [edition for edition, at in self._written.items() if at <= expired]

    @property
    def _flushed(self) -> int:
        """The position up to which every row that will ever be in the lake is there: the current one if nothing is hot.

        Not while a flush publishes: rows that it took from a life that has ended since are not published yet.
        """
        if self._state.warm or self._publishing():
            return max(self._state.cold.flushed, self._reached)
        return self._state.position

    # -- What a catalog lists -----------------------------------------------------------------------------------------

    async def _take_changes(self) -> Heading:
        """Take everything that has changed, some per turn; the last turn ends with the heading, as of one position."""
        while len(self._unlisted) > CHANGES_PER_TURN:
            self._take(CHANGES_PER_TURN)
            await asyncio.sleep(0)
        self._take(CHANGES_PER_TURN)
        self._generation += 1
        state = self._state
        edition = Edition(state.position, self._generation)
        return Heading(self._shard, state.log_id, edition, self._flushed, state.cold.dropped, state.now)

    def _take(self, limit: int) -> None:
        unlisted, cold = self._unlisted, self._state.cold
        changes = Changes([], [], [])
        for _ in range(min(limit, len(unlisted.segments))):
            number = unlisted.segments.popitem()[0]
            changes.segments.append((number, cold.segments.get(number)))
        for _ in range(min(limit - len(changes.segments), len(unlisted.tombstones))):
            incarnation = unlisted.tombstones.popitem()[0]
            tombstone = cold.tombstones.get(incarnation)
            row = None if tombstone is None else TombstoneRow(tombstone.name, incarnation, tombstone.below)
            changes.tombstones.append((incarnation, row))
        for _ in range(min(limit - len(changes.segments) - len(changes.tombstones), len(unlisted.forks))):
            incarnation, name = unlisted.forks.popitem()
            changes.forks.append((incarnation, self._fork(name, incarnation)))
        self._taken_count += 1
        self._taken.append((self._taken_count, changes))

    def _fork(self, name: str, incarnation: int) -> ForkRow | None:
        stream = self._state.streams.get(name)
        if stream is None or stream.incarnation != incarnation:
            return None
        origin = stream.origin
        assert origin is not None
        start = min(max(origin.start, stream.start), origin.to)
        return ForkRow(name, incarnation, stream.deleted, origin.name, origin.incarnation, start, origin.to)

    def _write(self, heading: Heading, up_to: int) -> Catalog:
        """In the thread: bring the listing up to the heading's position, and store it."""
        while self._taken and self._taken[0][0] <= up_to:
            self._listing.update(self._taken.popleft()[1])
        return write_catalog(self._store, self._listing.contents(heading))

    # -- Old catalogs -------------------------------------------------------------------------------------------------

    async def _drop_old(self) -> None:
        """Delete catalogs that were replaced more than the grace period ago, unless a lease needs them."""
        replacement, needed = max(self._expired(), default=Edition(0, 0)), self._needed()
        for edition in sorted({*self._written, *self._attempted}):
            if edition < replacement and not any(first <= edition <= last for first, last in needed):
                for kind in KINDS:
                    await self._in_thread(self._store.delete, catalog_key(self._shard, edition, kind))
                self._written.pop(edition, None)
                self._attempted.discard(edition)

    def _needed(self) -> list[tuple[Edition, Edition]]:
        """For each lease, the first and the last catalog that its reader can have read."""
        editions, needed = sorted(self._written), []
        for position in self._leased():
            after = bisect_left(editions, Edition(position, 0))
            first = last = editions[max(after - 1, 0)] if editions else Edition(0, 0)
            for edition in editions[after:]:
                if self._written[edition] > self._written[editions[after]] + CATALOG_SECONDS:
                    break
                last = edition
            needed.append((first, last))
        return needed

    async def _in_thread(self, work: Callable[..., T], *arguments: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)
