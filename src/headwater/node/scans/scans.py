"""Scans: ranges of many streams as of one instant, as one Arrow stream, made a window at a time as it is read."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial

import pyarrow as pa

from headwater.lake.segments.reader import Footer, SegmentDamaged
from headwater.lake.segments.selection import Choice, choose
from headwater.node.committer import Now
from headwater.node.reads.cold import ColdReads
from headwater.node.scans.batches import END, Chosen, Projection, encode, needs
from headwater.node.scans.descriptions import Names, describe
from headwater.node.scans.instants import LOOKUPS_PER_STEP, Instant
from headwater.node.scans.locations import locate
from headwater.node.scans.pace import Pace
from headwater.node.scans.windows import ColdPart, Limits, OffsetRange, Part, Times, windows
from headwater.node.threads import in_thread
from headwater.protocol.limits import KIB, MIB, SCANS_MAX
from headwater.protocol.refusals import Code, Problem, Refusal
from headwater.storage.store import KeyMissing, StoreFailed
from headwater.streams.cold import ALL
from headwater.streams.queries import Ordinal, Range
from headwater.streams.state import State, Stream

WINDOW = Limits(rows=32_768, bytes=8 * MIB)
"""How much is built at a time: little enough for memory, and enough to make the cost of a batch negligible."""
SEND_BYTES = 256 * KIB
"""How much of a batch is passed to the connection at a time."""
BUILD_THREADS = 2
"""How many windows are built at a time, however many scans there are."""
GROUPS_AT_A_TIME = 4
"""How many row groups one scan reads at a time."""


class Scans:
    """Answers requests about many streams at once; owns the threads that build batches."""

    def __init__(self, state: State, now: Now, touch: Callable[[Stream], None], reads: ColdReads | None) -> None:
        self._state, self._now, self._touch, self._reads = state, now, touch, reads
        self._threads = ThreadPoolExecutor(BUILD_THREADS, "scan")
        self.in_progress: set[Instant] = set()
        """The instants of scans that are being planned or read."""

    def stop(self) -> None:
        self._threads.shutdown(cancel_futures=True)

    async def describe(self, names: Names, limit: int) -> bytes:
        """The living streams of these names, as an Arrow stream."""
        return await describe(self._state, self._now, names, limit)

    async def locate(self, ordinals: Sequence[Ordinal]) -> list[int | None]:
        """The offset at which each of these records begins, as of now."""
        with closing(Instant(self._state, self._now(), self._reads)) as instant:
            return await locate(instant, self._reads, ordinals)

    async def plan(self, ranges: Sequence[Range], columns: Iterable[str] | None, times: Times) -> "Scan | Refusal":
        """A scan of these ranges as of now, or a refusal that lists every range that cannot be read."""
        if len(self.in_progress) >= SCANS_MAX:
            return Refusal(Code.OVERLOADED, f"{SCANS_MAX} scans are in progress; try again in a second.")
        instant = Instant(self._state, self._now(), self._reads)
        self.in_progress.add(instant)
        wanted: deque[OffsetRange] = deque()
        problems: list[Problem] = []
        pace = Pace()
        try:
            for first in range(0, len(ranges), LOOKUPS_PER_STEP):
                for index, one in enumerate(ranges[first : first + LOOKUPS_PER_STEP], first):
                    stream = judge(instant, one, index)
                    if isinstance(stream, Problem):
                        problems.append(stream)
                    else:
                        if stream.lifetime.ttl_seconds is not None:
                            self._touch(stream)
                        if one.start < min(one.until, stream.tail):
                            wanted.append(OffsetRange(stream, one.start, one.until))
                await pace.rest()
        except BaseException:
            self._end(instant)
            raise
        if problems:
            self._end(instant)
            detail = f"{len(problems)} of {len(ranges)} ranges cannot be read; `problems` says which and why."
            return Refusal(Code.RANGES_UNAVAILABLE, detail, problems=tuple(problems))
        instant.end_lookups()
        end = partial(self._end, instant)
        return Scan(instant, wanted, Projection(columns, times), self._reads, self._threads, end=end)

    def _end(self, instant: Instant) -> None:
        instant.close()
        self.in_progress.discard(instant)


def judge(instant: Instant, one: Range, index: int) -> Stream | Problem:
    """The stream of a range, or why the range cannot be read."""
    stream = instant.find(one.name)
    if isinstance(stream, Refusal):
        return Problem(index, stream.code)
    if stream.incarnation != one.incarnation:
        return Problem(index, Code.INCARNATION_CHANGED)
    if one.start < stream.start and one.start < one.until:
        return Problem(index, Code.OFFSET_TRIMMED, stream.start)
    return stream


class Scan:
    """Ranges that can all be read; the caller must close it, read or not."""

    def __init__(
        self,
        instant: Instant,
        wanted: deque[OffsetRange],
        projection: Projection,
        reads: ColdReads | None,
        threads: ThreadPoolExecutor,
        *,
        end: Callable[[], None],
    ) -> None:
        self._instant, self._wanted, self._projection = instant, wanted, projection
        self._reads, self._threads, self._end = reads, threads, end

    def close(self) -> None:
        """Release everything the scan holds. Idempotent."""
        self._end()
        self._wanted.clear()

    async def parts(self) -> AsyncGenerator[bytes, None]:
        """The bytes of the Arrow stream; raises LakeUnreadable if the store does not return what was put there."""
        yield self._projection.schema.serialize().to_pybytes()
        limits = WINDOW if self._projection.payloads else Limits(WINDOW.rows, ALL)
        upcoming = windows(self._wanted, self._instant, self._projection.times, limits)
        while (window := await in_thread(self._threads, next, upcoming, None)) is not None:
            batch = await self._batch(window)
            if batch is not None:
                data = memoryview(batch)
                for at in range(0, len(data), SEND_BYTES):
                    yield data[at : at + SEND_BYTES].tobytes()
        yield END

    async def _batch(self, window: list[Part]) -> pa.Buffer | None:
        segments = {part.segment.id: part.segment for part in window if isinstance(part, ColdPart)}
        if not segments or self._reads is None:
            return await in_thread(self._threads, encode, window, (), self._projection)
        try:
            footers = {id: await self._reads.footer(segment) for id, segment in segments.items()}
            needed = await in_thread(self._threads, needs, window, footers)
            gate = asyncio.Semaphore(GROUPS_AT_A_TIME)
            work = [
                self._choose(gate, footers[id], group, indexes, choices)
                for (id, group), (indexes, choices) in needed.items()
            ]
            chosen = await asyncio.gather(*work)
        except (StoreFailed, KeyMissing, SegmentDamaged) as error:
            raise self._reads.unreadable(error) from error
        return await in_thread(self._threads, encode, window, chosen, self._projection)

    async def _choose(
        self, gate: asyncio.Semaphore, footer: Footer, group: int, indexes: list[int], choices: list[Choice]
    ) -> Chosen:
        assert self._reads is not None
        async with gate:
            table = await self._reads.table(footer, group, self._projection.needed)
            rows, counts = await in_thread(self._threads, choose, table, choices)
        return rows, list(zip(indexes, counts, strict=True))
