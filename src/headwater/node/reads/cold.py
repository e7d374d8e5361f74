"""Cold reads: queries that need bytes of the lake. Threads fetch the bytes, then the query is answered again."""

import asyncio
import logging
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from functools import partial
from operator import attrgetter
from typing import NamedTuple, TypeVar

import pyarrow as pa

from headwater.lake.cache import Cache
from headwater.lake.format import segment_key
from headwater.lake.segments.reader import (
    SERVED,
    Footer,
    Group,
    GroupRows,
    Read,
    SegmentDamaged,
    read_footer,
    read_group,
)
from headwater.log.seam import Barrier, reach
from headwater.protocol.refusals import Code, Refusal
from headwater.storage.store import KeyMissing, Store, StoreFailed
from headwater.streams.fetched import Fetched, NotFetched, Run
from headwater.streams.queries import Query
from headwater.streams.reading import Slice
from headwater.streams.replies import Reply
from headwater.streams.segments import Extent, Segment
from headwater.streams.state import State, Stream

GROUPS_BYTES_MAX = 64 * 1024 * 1024
TABLES_BYTES_MAX = 64 * 1024 * 1024
FOOTERS_BYTES_MAX = 32 * 1024 * 1024
"""How much memory decoded row groups (for pages, for scans) and footers may take."""
READ_THREADS = 8
"""How many reads of the store run at a time."""
ROUNDS_MAX = 64
"""How often one query may need more of the lake: a few times, unless its segments keep being replaced."""

T = TypeVar("T")

log = logging.getLogger(__name__)


class LocatedExtent(NamedTuple):
    """An extent with the segment that its number referred to when it was looked up."""

    segment: Segment
    extent: Extent


class Stretch(NamedTuple):
    """A range of a stream's bytes that lies in the lake."""

    stream: Stream
    extents: list[LocatedExtent]
    start: int
    end: int


class Table(NamedTuple):
    """Some columns of a row group."""

    rows: pa.Table
    cost_bytes: int


class SegmentMissing(KeyMissing):
    """The store has no object of a segment: it was replaced and deleted meanwhile, or it is lost."""

    def __init__(self, segment: Segment, error: KeyMissing) -> None:
        super().__init__(str(error))
        self.segment = segment


class LakeUnreadable(OSError):
    """The store did not return what was put there."""


class ColdReads:
    """Fetches runs from the store; a segment that is being read is not deleted."""

    def __init__(
        self,
        shard: int,
        state: State,
        store: Store,
        answer: Callable[[Query, Fetched], Reply],
        *,
        barrier: Barrier,
        retry_seconds: tuple[float, ...],
    ) -> None:
        self._shard, self._state, self._store, self._answer = shard, state, store, answer
        self._barrier, self._retry_seconds = barrier, retry_seconds
        self._threads = ThreadPoolExecutor(READ_THREADS, "lake-read")
        self._footers: Cache[Footer] = Cache(FOOTERS_BYTES_MAX, self._threads)
        self._groups: Cache[Group] = Cache(GROUPS_BYTES_MAX, self._threads)
        self._tables: Cache[Table] = Cache(TABLES_BYTES_MAX, self._threads)
        self.in_use: Counter[str] = Counter()
        self.reads = self.retries = self.failures = 0
        self._tasks: set[asyncio.Task[Reply]] = set()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._threads.shutdown(cancel_futures=True)

    # -- Queries --------------------------------------------------------------------------------------------------

    def read(self, query: Query, need: NotFetched) -> asyncio.Task[Reply]:
        """Answer a query that needs more than memory holds."""
        extents = self._take(need)
        task = asyncio.get_running_loop().create_task(self._read(query, need, extents))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _read(self, query: Query, need: NotFetched, extents: list[LocatedExtent]) -> Reply:
        fetched = Fetched()
        for _ in range(ROUNDS_MAX):
            try:
                await self._fetch(fetched, need, extents)
            except (StoreFailed, KeyMissing, SegmentDamaged) as error:
                return self._failed(need.stream.name, error)
            try:
                return self._answer(query, fetched)
            except NotFetched as more:
                need, extents = more, self._take(more)
        return Refusal(
            Code.OVERLOADED, f"The history of {need.stream.name!r} is being compacted; try again in a second."
        )

    async def _fetch(self, fetched: Fetched, need: NotFetched, extents: list[LocatedExtent]) -> None:
        """Fetch what is needed; nothing if its segments have been replaced, so that the state says where else it is."""
        try:
            fetched.add(need.stream, await self._runs(extents, need))
        except SegmentMissing as missing:
            await self._check_replaced(missing)
        finally:
            self.release(extent.segment for extent in extents)

    async def _check_replaced(self, missing: SegmentMissing) -> None:
        """Raise unless a segment has been replaced.

        Another node deletes what it has replaced, and does not know what is read here. This node may not have applied
        the swap yet.
        """
        if not await reach(self._barrier):
            raise StoreFailed(f"{missing} The log cannot tell whether it was replaced.") from missing
        if missing.segment.id in self._state.cold.ids:
            raise missing

    def _failed(self, name: str, error: Exception) -> Refusal:
        """The refusal for one request whose bytes the store failed to return."""
        self.failures += 1
        log.error("the history of %r cannot be read: %s", name, error)
        if not isinstance(error, StoreFailed):
            return Refusal(
                Code.INTERNAL, f"The history of {name!r} is damaged in the lake; the server's log says where."
            )
        return Refusal(Code.OVERLOADED, f"The history of {name!r} cannot be reached; try again in a second.")

    # -- Runs -----------------------------------------------------------------------------------------------------

    def _take(self, need: NotFetched) -> list[LocatedExtent]:
        """The extents that a query needs, as of now; their segments are in use until they have been read."""
        all_extents = need.stream.extents
        if need.record is not None:
            needed = all_extents[bisect_right(all_extents, need.record, key=attrgetter("record")) - 1 :][:1]
        else:
            needed = tuple(extent for extent in all_extents if extent.end > need.start and extent.start < need.end)
        extents = self._located(needed)
        self.hold(extent.segment for extent in extents)
        return extents

    def hold(self, segments: Iterable[Segment]) -> None:
        """Keep the objects of these segments while they are read, even if they are replaced."""
        self.in_use.update(segment.id for segment in segments)

    def release(self, segments: Iterable[Segment]) -> None:
        """End one hold on each of these segments."""
        for segment in segments:
            self.in_use[segment.id] -= 1
            if not self.in_use[segment.id]:
                del self.in_use[segment.id]

    def _located(self, extents: tuple[Extent, ...]) -> list[LocatedExtent]:
        return [LocatedExtent(self._state.cold.segments[extent.segment].segment, extent) for extent in extents]

    async def _runs(self, extents: list[LocatedExtent], need: NotFetched) -> list[Run]:
        """The runs that hold what is needed, in order."""
        runs: list[Run] = []
        for segment, extent in extents:
            footer = await self.footer(segment)
            if need.record is None:
                pieces = footer.locate(extent, need.start, need.end)
            else:
                pieces = [footer.locate_record(extent, need.record)]
            for piece in pieces:
                runs.append(await self._run(segment, footer, piece))
        return runs

    def stretch(self, stream: Stream, start: int, end: int) -> Stretch:
        """Where the bytes of a range are, as of now."""
        extents = tuple(extent for extent in stream.extents if extent.end > start and extent.start < end)
        return Stretch(stream, self._located(extents), start, end)

    async def slices(self, stretch: Stretch) -> AsyncGenerator[Slice, None]:
        """The runs of a stretch one by one, each fetched on demand; its segments are held until the end."""
        try:
            while True:
                try:
                    async with aclosing(self._slices(stretch)) as slices:
                        async for slice_ in slices:
                            yield slice_
                            stretch = stretch._replace(start=slice_.end)
                    return
                except SegmentMissing as missing:
                    await self._check_replaced(missing)
                    stretch = self._again(stretch, missing)
        except (StoreFailed, KeyMissing, SegmentDamaged) as error:
            raise self.unreadable(error) from error

    def _again(self, stretch: Stretch, missing: SegmentMissing) -> Stretch:
        """Where the rest of a stretch is after segments were replaced, unless it has been trimmed or deleted."""
        try:
            again = self.stretch(stretch.stream, stretch.start, stretch.end)
        except KeyError:
            raise missing from None
        if not again.extents or again.extents[0].extent.start > stretch.start:
            raise missing
        return again

    async def _slices(self, stretch: Stretch) -> AsyncGenerator[Slice, None]:
        self.hold(extent.segment for extent in stretch.extents)
        try:
            for segment, extent in stretch.extents:
                footer = await self.footer(segment)
                for piece in footer.locate(extent, stretch.start, stretch.end):
                    run = await self._run(segment, footer, piece)
                    yield Slice([run], 0, 1, max(run.offset, stretch.start), min(run.end, stretch.end))
        finally:
            self.release(extent.segment for extent in stretch.extents)

    def unreadable(self, error: Exception) -> LakeUnreadable:
        """Count a failed read; a response that has begun is cut short by it."""
        self.failures += 1
        return LakeUnreadable(str(error))

    # -- Parts of segments ----------------------------------------------------------------------------------------

    async def table(self, footer: Footer, group: int, columns: tuple[str, ...]) -> pa.Table:
        """Some columns of a row group, each in one chunk; the caller holds the segment."""
        segment = footer.segment
        load = partial(self._using, segment, _columns_of, footer, group, columns)
        return (await self._tables.get((segment.id, group, columns), load)).rows

    async def footer(self, segment: Segment) -> Footer:
        return await self._footers.get(segment.id, partial(self._using, segment, read_footer, segment))

    async def _run(self, segment: Segment, footer: Footer, piece: GroupRows) -> Run:
        load = partial(self._using, segment, _decode, footer, piece.group)
        group = await self._groups.get((segment.id, piece.group), load)
        return group.run(piece.row, piece.rows)

    def _using(self, segment: Segment, work: Callable[..., T], *arguments: object) -> T:
        """Work in a thread with the bytes of a segment; a failure is retried."""
        try:
            return self._retrying(segment, work, *arguments)
        except KeyMissing as error:
            raise SegmentMissing(segment, error) from error

    def _retrying(self, segment: Segment, work: Callable[..., T], *arguments: object) -> T:
        key = segment_key(self._shard, segment.first_position, segment.last_position, segment.id)
        for pause_seconds in self._retry_seconds:
            self.reads += 1
            try:
                return work(partial(self._store.read, key), *arguments)
            except (StoreFailed, SegmentDamaged) as error:
                # The bytes may have been damaged in transit only.
                log.warning("reading %s failed and is retried: %s", key, error)
                self.retries += 1
                time.sleep(pause_seconds)
        return work(partial(self._store.read, key), *arguments)


def _decode(read: Read, footer: Footer, group: int) -> Group:
    return Group(footer.segment.id, read_group(read, footer, group, SERVED))


def _columns_of(read: Read, footer: Footer, group: int, columns: tuple[str, ...]) -> Table:
    rows = read_group(read, footer, group, columns).combine_chunks()
    return Table(rows, rows.get_total_buffer_size())
