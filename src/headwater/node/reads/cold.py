"""Cold reads: looks that need bytes of the lake. The bytes are fetched in threads, then the look is made again."""

import asyncio
import logging
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from operator import attrgetter
from typing import NamedTuple, TypeVar

import pyarrow as pa

from headwater.lake.cache import Cache
from headwater.lake.format import segment_key
from headwater.lake.reader import SERVED, Footer, Group, GroupRows, Read, SegmentDamaged, read_footer, read_group
from headwater.protocol.refusals import Code, Refusal
from headwater.storage.store import KeyMissing, Store, StoreFailed
from headwater.streams.queries import Query
from headwater.streams.reading import Fetched, NotFetched, Run, Slice
from headwater.streams.replies import Reply
from headwater.streams.segments import Extent, Segment
from headwater.streams.state import State, Stream

GROUPS_BYTES_MAX = 64 * 1024 * 1024
TABLES_BYTES_MAX = 64 * 1024 * 1024
FOOTERS_BYTES_MAX = 32 * 1024 * 1024
"""What decoded row groups, for pages and for scans, and footers may take in memory."""
READ_THREADS = 8
"""How many reads of the store go on at a time."""
RETRY_SECONDS = (0.05, 0.5)
"""After which pauses a read that failed is tried again."""
ROUNDS_MAX = 64
"""How often one look may need more of the lake; it needs a few, unless somebody moves the segments under it."""

T = TypeVar("T")

log = logging.getLogger(__name__)


class LocatedExtent(NamedTuple):
    """An extent with the segment that its number meant when it was looked up."""

    segment: Segment
    extent: Extent


class Stretch(NamedTuple):
    """A range of a stream's bytes, all of it in the lake."""

    places: list[LocatedExtent]
    start: int
    end: int


class Table(NamedTuple):
    """Some columns of a row group."""

    rows: pa.Table
    cost_bytes: int


class LakeUnreadable(OSError):
    """The store did not give, or not truly, what was put there."""


class ColdReads:
    """Fetches runs from the store; a segment that is being read is not deleted meanwhile."""

    def __init__(self, shard: int, state: State, store: Store, answer: Callable[[Query, Fetched], Reply]) -> None:
        self._shard, self._state, self._store, self._answer = shard, state, store, answer
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

    # -- Looks ----------------------------------------------------------------------------------------------------

    def read(self, query: Query, need: NotFetched) -> asyncio.Task[Reply]:
        """Answer a query that needs more than memory holds."""
        places = self._take(need)
        task = asyncio.get_running_loop().create_task(self._read(query, need, places))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _read(self, query: Query, need: NotFetched, places: list[LocatedExtent]) -> Reply:
        fetched = Fetched()
        for _ in range(ROUNDS_MAX):
            try:
                fetched.add(need.stream, await self._runs(places, need))
            except (StoreFailed, KeyMissing, SegmentDamaged) as error:
                return self._failed(need.stream.name, error)
            finally:
                self.let_go(place.segment for place in places)
            try:
                return self._answer(query, fetched)
            except NotFetched as more:
                need, places = more, self._take(more)
        return Refusal(Code.OVERLOADED, f"The history of {need.stream.name!r} is being moved; try again in a second.")

    def _failed(self, name: str, error: Exception) -> Refusal:
        """What a reader is told when the store did not do its part; only this reader is."""
        self.failures += 1
        log.error("history of %r cannot be read: %s", name, error)
        if not isinstance(error, StoreFailed):
            return Refusal(
                Code.INTERNAL, f"The history of {name!r} is damaged in the lake; the server's log says where."
            )
        return Refusal(Code.OVERLOADED, f"The history of {name!r} cannot be reached; try again in a second.")

    # -- Runs -----------------------------------------------------------------------------------------------------

    def _take(self, need: NotFetched) -> list[LocatedExtent]:
        """Where the bytes are that a look needs, as of now; these segments are in use until they have been read."""
        extents = need.stream.extents
        if need.record is not None:
            wanted = extents[bisect_right(extents, need.record, key=attrgetter("record")) - 1 :][:1]
        else:
            wanted = tuple(extent for extent in extents if extent.end > need.start and extent.start < need.end)
        places = self._placed(wanted)
        self.hold(place.segment for place in places)
        return places

    def hold(self, segments: Iterable[Segment]) -> None:
        """These are being read: keep their objects, also when they are replaced."""
        self.in_use.update(segment.id for segment in segments)

    def let_go(self, segments: Iterable[Segment]) -> None:
        """These have been read, by one of those who held them."""
        for segment in segments:
            self.in_use[segment.id] -= 1
            if not self.in_use[segment.id]:
                del self.in_use[segment.id]

    def _placed(self, extents: tuple[Extent, ...]) -> list[LocatedExtent]:
        return [LocatedExtent(self._state.cold.segments[extent.segment].segment, extent) for extent in extents]

    async def _runs(self, places: list[LocatedExtent], need: NotFetched) -> list[Run]:
        """The runs that hold what is needed, in order."""
        runs: list[Run] = []
        for place in places:
            footer = await self.footer(place.segment)
            if need.record is None:
                pieces = footer.locate(place.extent, need.start, need.end)
            else:
                pieces = [footer.locate_record(place.extent, need.record)]
            for piece in pieces:
                runs.append(await self._run(place.segment, footer, piece))
        return runs

    def stretch(self, stream: Stream, start: int, end: int) -> Stretch:
        """Where all bytes of a range are, as of now; good for as long as replaced segments are kept."""
        extents = tuple(extent for extent in stream.extents if extent.end > start and extent.start < end)
        return Stretch(self._placed(extents), start, end)

    async def slices(self, stretch: Stretch) -> AsyncGenerator[Slice, None]:
        """The runs of a stretch one by one, as they are taken; none of its segments is deleted meanwhile."""
        self.hold(place.segment for place in stretch.places)
        try:
            for place in stretch.places:
                footer = await self.footer(place.segment)
                for piece in footer.locate(place.extent, stretch.start, stretch.end):
                    run = await self._run(place.segment, footer, piece)
                    yield Slice([run], 0, 1, max(run.offset, stretch.start), min(run.end, stretch.end))
        except (StoreFailed, KeyMissing, SegmentDamaged) as error:
            raise self.unreadable(error) from error
        finally:
            self.let_go(place.segment for place in stretch.places)

    def unreadable(self, error: Exception) -> LakeUnreadable:
        """Count what the store did not do; a response that has begun is cut short by it."""
        self.failures += 1
        return LakeUnreadable(str(error))

    # -- Parts of segments ----------------------------------------------------------------------------------------

    async def table(self, footer: Footer, group: int, columns: tuple[str, ...]) -> pa.Table:
        """Some columns of a row group, each in one chunk; whoever asks holds the segment."""
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
        """Do something in a thread with the bytes of a segment."""
        key = segment_key(self._shard, segment.first_position, segment.last_position, segment.id)
        for pause_seconds in RETRY_SECONDS:
            self.reads += 1
            try:
                return work(partial(self._store.read, key), *arguments)
            except (StoreFailed, SegmentDamaged) as error:
                # Bytes may have been damaged on their way only.
                log.warning("reading %s is tried again: %s", key, error)
                self.retries += 1
                time.sleep(pause_seconds)
        return work(partial(self._store.read, key), *arguments)


def _decode(read: Read, footer: Footer, group: int) -> Group:
    return Group(footer.segment.id, read_group(read, footer, group, SERVED))


def _columns_of(read: Read, footer: Footer, group: int, columns: tuple[str, ...]) -> Table:
    rows = read_group(read, footer, group, columns).combine_chunks()
    return Table(rows, rows.get_total_buffer_size())
