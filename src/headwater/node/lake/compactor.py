"""The compactor: makes segments fewer and larger and drops their dead rows, while readers keep reading them.

    plan      choose the segments, by the pure planner, in a thread
    rewrite   row group by row group, in the same thread, which rests most of the time
    store     each new segment as soon as it is finished, under its own key, read back and compared
    swap      by one command; the sweeper deletes the old objects later

A rewrite that is interrupted or refused leaves at most objects that no state names.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from threading import Event

from headwater.lake.compaction.planning import Candidate, Rewrite, plan
from headwater.lake.compaction.rewriting import Cuts, Keep, Rewritten, rewrite
from headwater.lake.format import new_segment_id, segment_key
from headwater.lake.segments.reader import Read
from headwater.lake.segments.writer import Written
from headwater.node.committer import ask
from headwater.node.lake.flusher import PUBLISH_DEADLINE_US, store_checked
from headwater.node.lake.parts import LakeParts
from headwater.node.threads import in_thread
from headwater.protocol.limits import SECOND_US
from headwater.streams.cold import ALL, Held
from headwater.streams.commands.consumers import DropConsumer
from headwater.streams.commands.lake import Publication, SwapSegments
from headwater.streams.replies import Placed
from headwater.streams.segments import Segment
from headwater.streams.state import Stream

WARM_STREAMS_MAX = 1_000
"""How many streams that are being written to are examined to find one in too many pieces."""

Purged = Callable[[str, int], bool]
"""Whether a life is purged, by its name and incarnation; called in threads."""

log = logging.getLogger(__name__)


class CompactFailed(Exception):
    """Segments were not replaced; the old ones remain valid."""


class Compactor:
    """Carries out one rewrite at a time."""

    def __init__(self, parts: LakeParts, overdue: Callable[[], frozenset[int]] = frozenset) -> None:
        """`overdue` says which segments have rows that died long ago."""
        self._parts = parts
        self._shard, self._state, self._store, self._submit, self._now = parts[:5]
        limits, self._intervals, self._overdue = parts.limits.compact, parts.limits.intervals, overdue
        self._limits, self._segment_bytes = limits, parts.limits.flush.segment_bytes
        self._thread = ThreadPoolExecutor(1, "lake-compact")
        self._lock = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._stopping = Event()
        self._resumed_seconds = 0.0
        self._time_share = limits.time_share
        self._avoid: dict[int, int] = {}
        self._dense: dict[int, int] = {}
        """Segments whose dead rows all belong to appends that are still needed, with their number of live rows."""
        self._crowded_name: str | None = None
        self._nothing_to_do: tuple[int, int, frozenset[int], frozenset[int]] | None = None
        """What the last plan was made from, if it found nothing to rewrite."""
        self.rewrites = self.failures = self.bytes_read = self.bytes_written = 0

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._repeat())

    async def stop(self) -> None:
        """Stop at the next row group; an unfinished rewrite starts over after the restart."""
        self._stopping.set()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._thread.shutdown()

    async def _repeat(self) -> None:
        while True:
            failures = self.failures
            if not await self.compact_once():
                failed = self.failures > failures
                pauses = self._intervals
                await asyncio.sleep(pauses.compact_retry_seconds if failed else pauses.compact_check_seconds)

    async def compact_once(self) -> bool:
        """Do the most useful rewrite; return whether there was one and it succeeded."""
        async with self._lock:
            planned = None if self._stopping.is_set() else await self._plan()
            if planned is None:
                return False
            try:
                await self._carry_out(planned)
            except Exception as error:
                # Any failure concerns these segments only, and they are unchanged.
                if not self._stopping.is_set():
                    self.failures += 1
                    until = self._now() + int(self._intervals.compact_avoid_seconds * SECOND_US)
                    self._avoid |= dict.fromkeys(planned.numbers, until)
                    log.error("rewriting segments %s failed; they stay in place: %s", list(planned.numbers), error)
                return False
            self.rewrites += 1
            return True

    async def purge(self, number: int, purged: Purged) -> None:
        """Rewrite a segment without the dead rows of these lives; consumers that have not read them are removed."""
        async with self._lock:
            held = self._state.cold.segments.get(number)
            if held is not None:
                planned = Rewrite("purge", (Candidate(number, held.segment, held.live_rows),))
                await self._carry_out(planned, purged)
                self.rewrites += 1

    # -- Planning -------------------------------------------------------------------------------------------------

    async def _plan(self) -> Rewrite | None:
        cold, now = self._state.cold, self._now()
        self._avoid = {number: until for number, until in self._avoid.items() if until > now}
        lowest, avoid, overdue = cold.lowest_consumer(now), frozenset(self._avoid), self._overdue()
        seen = cold.changed_at, lowest, avoid, overdue
        if self._nothing_to_do == seen:
            return None
        held, flushed, crowded = cold.segments.copy(), cold.flushed, self._crowded()
        work = partial(plan, limits=self._limits.rewrite, crowded=crowded, avoid=avoid, overdue=overdue)
        dense = self._dense = {number: rows for number, rows in self._dense.items() if number in cold.segments}
        planned = await in_thread(self._thread, lambda: work(_flushed(held, flushed, dense), lowest))
        self._nothing_to_do = seen if planned is None else None
        return planned

    def _crowded(self) -> frozenset[int]:
        """The segments of a stream in too many pieces: one being written to, or one met in the last rewrite."""
        names = [*islice(self._state.warm, WARM_STREAMS_MAX), self._crowded_name or ""]
        streams = [stream for name in names if (stream := self._state.streams.get(name)) is not None]
        worst = max(streams, key=_pieces, default=None)
        if worst is None or _pieces(worst) <= self._limits.extents_max:
            self._crowded_name = None
            return frozenset()
        self._crowded_name = worst.name
        return frozenset(extent.segment for extent in worst.extents)

    # -- Rewriting ------------------------------------------------------------------------------------------------

    async def _carry_out(self, planned: Rewrite, purged: Purged | None = None) -> None:
        started = time.monotonic()
        deadline = self._now() + PUBLISH_DEADLINE_US
        publications: list[Publication] = []
        if planned.is_drop:
            dropped = max(segment.last_position for segment in planned.segments)
        else:
            with self._parts.reading(planned.segments):
                # If a consumer registers later with a lower position, the swap is refused.
                keep = Keep(self._dead_below, self._state.cold.lowest_consumer(self._now()))
                self._time_share = self._limits.time_share
                if purged is not None:
                    keep, self._time_share = keep._replace(purged=purged), 1.0
                rewritten = await in_thread(self._thread, lambda: self._rewrite(planned, keep, deadline, publications))
            if planned.why in ("sparse", "overdue") and not rewritten.rows_dropped:
                self._dense |= {one.number: one.live_rows for one in planned.candidates}
                await in_thread(self._thread, lambda: self._delete(publications))
                return
            dropped = rewritten.dropped
        if purged is not None:
            await self._remove_consumers(dropped)
        reply = await ask(self._submit, SwapSegments(planned.numbers, tuple(publications), deadline, dropped))
        if not isinstance(reply, Placed):
            raise CompactFailed(f"the swap was refused: {reply}")
        log.info(
            "compaction (%s): %d segments of %d bytes became %d of %d bytes in %.1f s",
            planned.why,
            len(planned.numbers),
            sum(segment.size for segment in planned.segments),
            len(publications),
            sum(publication.segment.size for publication in publications),
            time.monotonic() - started,
        )

    async def _remove_consumers(self, dropped: int) -> None:
        """Remove those that have not read everything up to a position, and would wait for rows that are gone."""
        now = self._now()
        for name, consumer in list(self._state.cold.consumers.items()):
            if not consumer.is_lease and consumer.position < dropped and not consumer.has_lapsed(now):
                log.warning("consumer %s has not read rows that are purged, so it is removed", name)
                await ask(self._submit, DropConsumer(name))

    def _delete(self, publications: list[Publication]) -> None:
        """Delete the objects of a rewrite that was not worth a swap."""
        for publication in publications:
            self._store.delete(self._key(publication.segment))

    def _rewrite(self, planned: Rewrite, keep: Keep, deadline: int, publications: list[Publication]) -> Rewritten:
        """Merge the segments and store the new ones, in the thread; `publications` receives each of them."""

        def put(written: Written) -> None:
            segment = written.segment
            store_checked(self._store, self._key(segment), written.data)
            self.bytes_written += segment.size
            publications.append(Publication(segment, tuple(written.rows)))

        self._resumed_seconds = time.monotonic()
        return rewrite(
            self._read_of,
            planned.segments,
            keep,
            Cuts(self._segment_bytes, self._limits.streams_max),
            new_id=lambda: new_segment_id(deadline, secrets.token_hex(6)),
            put=put,
        )

    def _dead_below(self, name: str, incarnation: int) -> int:
        """The offset below which a life's rows are dead. A stale answer only keeps too much: they never revive."""
        stream = self._state.streams.get(name)
        if stream is None or stream.incarnation != incarnation:
            return ALL
        extents = stream.extents
        if len(extents) > self._limits.extents_max:
            self._crowded_name = name
        # Not the floor: a swap replaces whole extents only.
        return extents[0].start if extents else ALL

    def _read_of(self, segment: Segment) -> Read:
        return partial(self._read, self._key(segment))

    def _read(self, key: str, start: int, size: int) -> bytes:
        """Read from the store, after a rest that leaves most of the time to other work."""
        worked_seconds = time.monotonic() - self._resumed_seconds
        if self._stopping.wait(worked_seconds * (1 / self._time_share - 1)):
            raise CompactFailed("the server is stopping")
        self._resumed_seconds = time.monotonic()
        data = self._store.read(key, start, size)
        self.bytes_read += len(data)
        return data

    def _key(self, segment: Segment) -> str:
        return segment_key(self._shard, segment.first_position, segment.last_position, segment.id)


def _pieces(stream: Stream) -> int:
    return len(stream.extents)


def _flushed(held: dict[int, Held], flushed: int, dense: dict[int, int]) -> list[Candidate]:
    """All segments but those of a flush in progress; one known to be dense counts as fully alive."""
    whole = (
        (number, one.segment, one.live_rows) for number, one in held.items() if one.segment.last_position <= flushed
    )
    return [
        Candidate(number, segment, segment.rows if dense.get(number) == live_rows else live_rows)
        for number, segment, live_rows in whole
    ]
