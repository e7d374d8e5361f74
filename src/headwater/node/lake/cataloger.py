"""The cataloger: commits a snapshot of the lake's tables whenever the lake has changed.

Segments, tombstones and forks are never gathered as a whole. The state records which of them have changed, the loop
takes a limited number of these at a time, and a thread keeps the tables and commits the difference. A cataloger that
begins finds out from the store what the tables list.
"""

import asyncio
from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from headwater.lake.catalog import ForkRow
from headwater.lake.iceberg.messages import Heading
from headwater.lake.iceberg.pinned_rows import Source
from headwater.lake.iceberg.tables import Changes, LakeTables
from headwater.log.seam import reach
from headwater.node.lake.parts import STORE_TROUBLE, LakeParts
from headwater.node.periodic import Periodic
from headwater.node.threads import in_thread
from headwater.protocol.limits import SECOND_US
from headwater.streams.cold import ALL, Tombstone
from headwater.streams.segments import Segment

CHANGES_PER_TURN = 2_000
"""How many changed segments, tombstones and forks are taken from the state before the loop gets a turn."""
CATALOG_MS = 60_000
"""How long a reader with a lease may take from its flush to its snapshot; later snapshots are not kept for it."""


class Cataloger:
    """Commits one snapshot at a time; `write` returns once one covers everything applied before the call."""

    def __init__(self, parts: LakeParts, publishing: Callable[[], bool] = lambda: False) -> None:
        """`publishing` says whether a flush has rows that are neither hot nor published."""
        state, limits = parts.state, parts.limits
        self._state = state
        self._publishing, self._barrier = publishing, parts.command_log.barrier
        self._now, self._dead_us_max = parts.now, int(limits.dead_seconds_max * SECOND_US)
        self.overdue: frozenset[int] = frozenset()
        """The segments that have had dead rows for longer than they may."""
        self._thread = ThreadPoolExecutor(1, "catalog")
        self._writing = asyncio.Lock()
        self._periodic = Periodic(
            self._keep_up,
            limits.intervals.catalog_check_seconds,
            "the lake's tables lag behind the lake",
            expected=STORE_TROUBLE,
        )
        self._unlisted = state.cold.record_unlisted({state.streams[name].incarnation: name for name in state.forks})
        self.tables = LakeTables(
            parts.store, parts.shard, state.log_id, history_seconds=limits.history_seconds, now_ms=parts.now_ms
        )
        """Changed in the thread only."""
        self._taken: deque[tuple[int, Changes]] = deque()
        """Numbered changes on their way to the tables. They stay here if the request for a commit is cancelled."""
        self._taken_count = 0
        self._found = False
        self._newest = 0, 0
        """The position of the newest snapshot, and the one up to which it declares every live row flushed."""
        self._reached = 0
        """Up to which position every live row is known to be in the lake; snapshots never declare less than before."""

    def start(self) -> None:
        self._periodic.start()

    async def stop(self) -> None:
        await self._periodic.stop()
        self._thread.shutdown()

    async def _keep_up(self) -> None:
        """Commit what has changed; after a failure this begins with what is in the store."""
        async with self._writing:
            await self._find()
        if self._state.cold.changed_at > self._newest[0]:
            await self.write()
        await self.tidy()

    async def tidy(self) -> None:
        """Drop the snapshots whose time has come, and delete what only they needed; not while cut off from the log."""
        if not await reach(self._barrier):
            return
        async with self._writing:
            await in_thread(self._thread, self.tables.tidy, self._leased_snapshots())
            self.overdue = await in_thread(self._thread, self._long_dead)

    def _long_dead(self) -> frozenset[int]:
        return frozenset(self.tables.messages.dead_since((self._now() - self._dead_us_max) // 1000))

    async def _find(self) -> None:
        """Find out what the tables list, after the start and after every failure: whether it took effect is unknown."""
        if not self._found:
            await in_thread(self._thread, self.tables.load)
            self._reached = max(self._reached, self.tables.messages.flushed)
            self._found = True

    async def write(self) -> None:
        """Wait until a snapshot covers everything applied so far."""
        cold = self._state.cold
        wanted = max(cold.changed_at, cold.flushed), self._flushed
        async with self._writing:
            await self._find()
            if self._newest[0] >= wanted[0] and self._newest[1] >= wanted[1]:
                return
            await self._write(self._commit)

    async def _write(self, commit: Callable[[Heading, int], None]) -> None:
        heading = await self._take_changes()
        self._found = False
        await in_thread(self._thread, commit, heading, self._taken_count)
        self._found = True
        self._newest = heading.position, heading.flushed
        self._reached = max(self._reached, heading.flushed)

    async def forget_history(self) -> int:
        """Commit the present state, and drop all earlier snapshots of all tables, even those being read.

        The position of the snapshots that remain: what was replaced up to there is in none of them.
        """
        async with self._writing:
            await self._find()
            await self._write(self._commit_alone)
            return self._newest[0]

    def needs(self, segment: Segment, retired_at: int) -> bool:
        """Whether a snapshot that is kept lists a segment that was replaced at a position."""
        return not self._found or self.tables.needs(segment.id, retired_at)

    @property
    def _flushed(self) -> int:
        """The position up to which every row that will ever be in the lake is there: the current one if nothing is hot.

        Not while a flush publishes: rows that it took from a life that has ended since are not published yet.
        """
        if self._state.warm or self._publishing():
            return max(self._state.cold.flushed, self._reached)
        return self._state.position

    # -- What a snapshot lists ----------------------------------------------------------------------------------------

    async def _take_changes(self) -> Heading:
        """Take everything that has changed, some per turn; the last turn ends with the heading, as of one position."""
        while len(self._unlisted) > CHANGES_PER_TURN:
            self._take(CHANGES_PER_TURN)
            await asyncio.sleep(0)
        self._take(CHANGES_PER_TURN)
        state = self._state
        return Heading(state.position, self._flushed, state.cold.dropped, state.now)

    def _take(self, limit: int) -> None:
        unlisted, cold = self._unlisted, self._state.cold
        sources: list[tuple[int, Source | None]] = []
        changes = Changes([], [], [], sources)
        for _ in range(min(limit, len(unlisted.segments))):
            number = unlisted.segments.popitem()[0]
            changes.segments.append((number, cold.segments.get(number)))
        for _ in range(min(limit - len(changes.segments), len(unlisted.tombstones))):
            incarnation = unlisted.tombstones.popitem()[0]
            tombstone = cold.tombstones.get(incarnation)
            changes.tombstones.append((incarnation, tombstone))
            sources.append((incarnation, None if tombstone is None else self._source(tombstone, incarnation)))
        for _ in range(min(limit - len(changes.segments) - len(changes.tombstones), len(unlisted.forks))):
            incarnation, name = unlisted.forks.popitem()
            changes.forks.append((incarnation, self._fork(name, incarnation)))
        self._taken_count += 1
        self._taken.append((self._taken_count, changes))

    def _source(self, tombstone: Tombstone, incarnation: int) -> Source | None:
        """The life of a tombstone, if forks may need its dead rows."""
        stream = self._state.streams.get(tombstone.name)
        if stream is None or stream.incarnation != incarnation or not stream.pins:
            return None
        return Source(stream.extents, ALL if stream.deleted else stream.record_start)

    def _fork(self, name: str, incarnation: int) -> ForkRow | None:
        stream = self._state.streams.get(name)
        if stream is None or stream.incarnation != incarnation:
            return None
        origin = stream.origin
        assert origin is not None
        start = min(max(origin.start, stream.start), origin.to)
        record = min(max(origin.record_start, stream.record_start), origin.record_to)
        source = origin.name, origin.incarnation
        return ForkRow(name, incarnation, stream.deleted, *source, start, origin.to, record, origin.record_to)

    def _commit(self, heading: Heading, up_to: int) -> None:
        """In the thread: bring the tables up to the heading's position."""
        while self._taken and self._taken[0][0] <= up_to:
            self.tables.update(self._taken.popleft()[1])
        self.tables.commit(heading, self._leased_snapshots())

    def _commit_alone(self, heading: Heading, up_to: int) -> None:
        self._commit(heading, up_to)
        self.tables.forget_history(heading)

    # -- Old snapshots ------------------------------------------------------------------------------------------------

    def _leased_snapshots(self) -> set[int]:
        """The snapshots that the readers of leases can have read."""
        snapshots, needed = self.tables.snapshots, set[int]()
        for position in self._state.cold.leased(self._now()):
            after = bisect_left(snapshots, position, key=lambda one: one.position)
            needed.update(one.id for one in snapshots[max(after - 1, 0) : after + 1])
            needed.update(one.id for one in snapshots[after:] if one.at_ms <= snapshots[after].at_ms + CATALOG_MS)
        return needed
