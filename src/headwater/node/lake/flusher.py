"""The flusher: writes hot appends to segments of the lake, and frees their memory once the log says they are there.

    collect    every hot append up to one position, in the order of names, a slice per turn of the loop
    build      Parquet objects of limited size and number of streams, in a thread
    upload     under its own key, then read back and compare
    publish    by a command; only then are the hot bytes freed

A flush that is interrupted leaves at most an object that no state names.
"""

import asyncio
import heapq
import logging
import secrets
import time
from bisect import bisect_right
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from operator import attrgetter

import msgspec

from headwater.lake.format import new_segment_id, segment_key
from headwater.lake.segments.writer import SegmentWriter
from headwater.node.committer import ask
from headwater.node.lake.parts import LakeParts
from headwater.protocol.limits import MINUTE_US, STREAMS_PER_SEGMENT_MAX
from headwater.storage.store import KeyExists, KeyMissing, Store, StoreFailed
from headwater.streams.commands.lake import Publication, PublishSegment
from headwater.streams.hot import Hot
from headwater.streams.replies import Placed

PUBLISH_DEADLINE_US = 10 * MINUTE_US
"""How long a segment may take from its collection to its publication."""
NAMES_PER_TURN = 500
NAMES_PER_BLOCK = 5_000
APPENDS_PER_TURN = 16_000
"""How many names or appends are collected, and how many names are sorted, before the loop gets a turn."""
SEGMENT_STREAMS = STREAMS_PER_SEGMENT_MAX // 2
"""How many streams a flush puts into one segment: its publication is applied in one step, 3 microseconds for each."""

log = logging.getLogger(__name__)

_POSITION = attrgetter("position")


class FlushFailed(Exception):
    """Not everything reached the lake; the rest stays in memory and in the journal."""


class HotRun(msgspec.Struct, frozen=True, gc=False):
    """Neighbouring hot appends of one life."""

    name: str
    incarnation: int
    content_type: str
    appends: list[Hot]


class Flusher:
    """Runs one flush at a time; a request during one is served by the next."""

    def __init__(self, parts: LakeParts, epoch: int | None = None) -> None:
        self._shard, self._state, self._store, self._submit, self._now = parts[:5]
        self._log, self._limits, self._intervals = parts.command_log, parts.limits.flush, parts.limits.intervals
        self._epoch = epoch
        self._threads = ThreadPoolExecutor(self._limits.concurrency, "lake-write")
        self._uploads = asyncio.Semaphore(self._limits.concurrency)
        self._running: asyncio.Task[int] | None = None
        self.publishing = False
        """Whether a flush has rows to collect, or has collected some that are not published yet."""
        self._next: asyncio.Task[int] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._journal_mark = 0
        self._warm_since: float | None = None
        self._not_before_seconds = 0.0
        self.segments = self.failures = self.bytes = 0

    def start(self) -> None:
        self.check()

    async def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        running = [task for task in (self._running, self._next) if task is not None]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        self._threads.shutdown()

    @property
    def unflushed_seconds(self) -> int:
        """For how long something has been waiting to be flushed, to the second; 0 if nothing is."""
        return 0 if self._warm_since is None else int(time.monotonic() - self._warm_since)

    # -- Due ------------------------------------------------------------------------------------------------------

    def after_batch(self) -> None:
        """Called after every batch; usually two comparisons."""
        if self._state.hot_bytes >= self._limits.bytes_max and self._running is None:
            self._begin_if_allowed()

    def check(self) -> None:
        """Begin a flush if one is due, and check again later."""
        self._timer = asyncio.get_running_loop().call_later(self._intervals.flush_check_seconds, self.check)
        if not self._state.warm:
            self._warm_since = None
            return
        if self._warm_since is None:
            self._warm_since = time.monotonic()
        aged = time.monotonic() - self._warm_since >= self._limits.interval_seconds
        logged = self._log.size_bytes - self._journal_mark >= self._limits.journal_bytes
        large = self._state.hot_bytes >= self._limits.bytes_max
        if large or logged or (aged and self._state.hot_bytes >= self._limits.bytes_min):
            self._begin_if_allowed()

    def _begin_if_allowed(self) -> None:
        if self._running is None and time.monotonic() >= self._not_before_seconds:
            self._begin().add_done_callback(_retrieve)

    def flush(self) -> "asyncio.Task[int]":
        """Put everything applied so far into the lake; the position up to which everything is there."""
        if self._running is None:
            return self._begin()
        if self._next is None:
            self._next = asyncio.get_running_loop().create_task(self._after_this())
            self._next.add_done_callback(_retrieve)
        return self._next

    async def settle(self) -> None:
        """Wait until a flush that is running has ended, so that what it took from memory is published or not at all."""
        if self._running is not None:
            await asyncio.wait([self._running])

    async def _after_this(self) -> int:
        # Another flush may have begun by itself meanwhile, perhaps before this request.
        while self._running is not None:
            await asyncio.wait([self._running])
        self._next = None
        return await self._begin()

    def _begin(self) -> "asyncio.Task[int]":
        self._running = asyncio.get_running_loop().create_task(self._flush())
        self._running.add_done_callback(self._ended)
        return self._running

    def _ended(self, task: "asyncio.Task[int]") -> None:
        self._running = None
        if not task.cancelled() and task.exception() is not None:
            self.failures += 1
            self._not_before_seconds = time.monotonic() + self._intervals.flush_retry_seconds
            log.error("a flush failed, so its bytes stay in memory: %s", task.exception())

    # -- Flushing--------------------------------------------------------------------------------------------------

    async def _flush(self) -> int:
        position, journal_mark = self._state.position, self._log.size_bytes
        first = self._state.cold.flushed + 1
        self.publishing = bool(self._state.warm)
        uploads: list[asyncio.Task[Publication]] = []
        collected: list[list[HotRun]] = []
        deadline = self._now() + PUBLISH_DEADLINE_US
        try:
            async for parts in self._collect(position):
                await self._uploads.acquire()
                collected.append(parts)
                uploads.append(asyncio.get_running_loop().create_task(self._upload(parts, first, position, deadline)))
            for index, upload in enumerate(uploads):
                flushed = position if index == len(uploads) - 1 else 0
                await self._publish(PublishSegment(await upload, deadline, flushed, self._epoch))
                await _release(collected[index])
        finally:
            for upload in uploads:
                upload.cancel()
            await asyncio.gather(*uploads, return_exceptions=True)
            self.publishing = False
        self._journal_mark = journal_mark
        self._warm_since = None
        return position

    async def _collect(self, position: int) -> AsyncIterator[list[HotRun]]:
        """The contents of each segment; commands may be applied between any two slices."""
        parts: list[HotRun] = []
        size, streams, appends = 0, 0, 0
        names = await _in_order(list(self._state.warm))
        while turn := list(islice(names, NAMES_PER_TURN)):
            for name in turn:
                stream = self._state.streams.get(name)
                hot = None if stream is None else stream.hot
                if stream is None or hot is None:
                    continue
                start, stop = 0, bisect_right(hot, position, key=_POSITION)
                while start < stop:
                    end, size = self._fill(hot, start, stop, size)
                    parts.append(HotRun(name, stream.incarnation, stream.content_type, hot[start:end]))
                    streams, appends, start = streams + 1, appends + end - start, end
                    if size >= self._limits.segment_bytes or streams >= SEGMENT_STREAMS:
                        yield parts
                        parts, size, streams = [], 0, 0
                if appends >= APPENDS_PER_TURN:
                    appends = 0
                    await asyncio.sleep(0)
            await asyncio.sleep(0)
        if parts:
            yield parts

    def _fill(self, hot: list[Hot], start: int, stop: int, size: int) -> tuple[int, int]:
        """The end of the appends that still fit into a segment of `size` bytes, at least one; and its new size."""
        room_until = hot[start].offset + max(self._limits.segment_bytes - size, 1)
        end = min(max(bisect_right(hot, room_until, key=attrgetter("end")), start + 1), stop)
        return end, size + hot[end - 1].end - hot[start].offset

    async def _upload(self, parts: list[HotRun], first: int, last: int, deadline: int) -> Publication:
        try:
            return await asyncio.get_running_loop().run_in_executor(
                self._threads, self._store_segment, parts, first, last, deadline
            )
        finally:
            self._uploads.release()

    def _store_segment(self, parts: list[HotRun], first: int, last: int, deadline: int) -> Publication:
        segment_id = new_segment_id(deadline, secrets.token_hex(6))
        writer = SegmentWriter(segment_id, first, last)
        for part in parts:
            writer.add(part.name, part.incarnation, part.content_type, part.appends)
        written = writer.finish()
        store_checked(self._store, segment_key(self._shard, first, last, segment_id), written.data)
        self.segments += 1
        self.bytes += len(written.data)
        return Publication(written.segment, tuple(written.rows))

    async def _publish(self, command: PublishSegment) -> None:
        reply = await ask(self._submit, command)
        if not isinstance(reply, Placed):
            raise FlushFailed(f"the segment {command.publication.segment.id} was refused: {reply}")


def store_checked(store: Store, key: str, data: bytes) -> None:
    """Create an object and read it back: the only other copy is about to be deleted."""
    try:
        store.create(key, data)
        if store.read(key) != data:
            raise FlushFailed(f"the store does not return what was stored under {key}")
    except (StoreFailed, KeyExists, KeyMissing) as error:
        raise FlushFailed(str(error)) from error


async def _release(parts: list[HotRun]) -> None:
    """Free appends that have left the state, some per turn of the loop: freeing takes longer than publishing."""
    while parts:
        appends = parts[-1].appends
        del appends[-APPENDS_PER_TURN // 4 :]
        if not appends:
            parts.pop()
        if len(appends) or len(parts) % NAMES_PER_TURN == 0:
            await asyncio.sleep(0)


async def _in_order(names: list[str]) -> Iterator[str]:
    """Names in order; sorted a block per turn of the loop, merged as they are taken."""
    blocks = []
    for at in range(0, len(names), NAMES_PER_BLOCK):
        blocks.append(sorted(names[at : at + NAMES_PER_BLOCK]))
        await asyncio.sleep(0)
    return heapq.merge(*blocks)


def _retrieve(task: "asyncio.Task[int]") -> None:
    """Retrieve the exception of a flush that no caller waits for; it has been logged."""
    if not task.cancelled():
        task.exception()
