"""The lister: rewrites the table `streams` while streams change.

It walks the state some streams per turn of the loop, and hands them to a thread that writes the files. So each row is
as of a moment between the beginning and the end of the walk: a row is never torn, but two rows may be of different
positions.
"""

import asyncio
import logging
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

from headwater.lake.iceberg.streams import StreamRow, StreamsTable
from headwater.lake.iceberg.tables import table_url
from headwater.log.seam import reach
from headwater.node.lake.parts import STORE_TROUBLE, LakeParts
from headwater.node.periodic import Periodic
from headwater.node.threads import in_thread
from headwater.protocol.names import bucket_of
from headwater.streams.state import State, Stream

STREAMS_PER_TURN = 200
"""How many streams are looked at before the loop gets a turn: less than a millisecond of work."""
TURNS_PER_BATCH = 10
"""How many turns gather rows before the thread takes them, which holds the interpreter for a millisecond then."""

log = logging.getLogger(__name__)


class Lister:
    """Rewrites the table at intervals; `write` returns once it covers everything applied before the call."""

    def __init__(self, parts: LakeParts) -> None:
        self._state, self._now, self._barrier = parts.state, parts.now, parts.command_log.barrier
        self._intervals = parts.limits.intervals
        self._thread = ThreadPoolExecutor(1, "streams")
        self._writing = asyncio.Lock()
        self._periodic = Periodic(
            self._keep_up,
            self._intervals.catalog_check_seconds,
            "the table of the streams cannot be written and will be tried again",
            expected=STORE_TROUBLE,
        )
        self._now_ms = parts.now_ms
        self._table = StreamsTable(
            parts.store,
            table_url(parts.store.url),
            parts.shard,
            parts.state.log_id,
            history_ms=int(parts.limits.list_history_seconds * 1000),
            now_ms=parts.now_ms,
        )
        """Used in the thread only."""
        self._written = -1
        """The position at which the last walk began that was committed."""
        self._last_seconds: float | None = None
        """When that was."""

    def start(self) -> None:
        self._periodic.start()

    async def stop(self) -> None:
        await self._periodic.stop()
        self._thread.shutdown()

    async def _keep_up(self) -> None:
        if self._last_seconds is None:
            async with self._writing:
                self._last_seconds = time.monotonic() - await in_thread(self._thread, self._age_seconds)
        if self._state.position > max(self._written, 0) and self._is_due:
            await self.write()
        await self.tidy()

    @property
    def _is_due(self) -> bool:
        return self._last_seconds is None or (
            time.monotonic() >= self._last_seconds + self._intervals.streams_write_seconds
        )

    def _age_seconds(self) -> float:
        """How long ago the table was written, by this or another process."""
        updated = self._table.updated_ms()
        limit = self._intervals.streams_write_seconds
        return limit if updated is None else min(max(self._now_ms() - updated, 0) / 1000, limit)

    async def write(self) -> None:
        """Rewrite the table, unless nothing was logged since the last time."""
        wanted = self._state.position
        async with self._writing:
            if self._written >= wanted:
                return
            position, began = self._state.position, time.monotonic()
            await in_thread(self._thread, self._table.begin, position)
            await self._walk()
            await in_thread(self._thread, self._table.finish, position)
            self._written, self._last_seconds = position, began

    async def forget_history(self) -> None:
        """Rewrite the table, and drop all its earlier snapshots, even those being read."""
        self._written = -1
        await self.write()
        async with self._writing:
            await in_thread(self._thread, self._table.forget_history)

    async def _walk(self) -> None:
        names = _names(self._state)
        batch: list[StreamRow] = []
        turns = 0
        while turn := list(islice(names, STREAMS_PER_TURN)):
            now = self._now()
            for name in turn:
                stream = self._state.streams.get(name)
                if stream is not None and not stream.deleted and not stream.expired(now):
                    batch.append(_row(stream))
            turns += 1
            if turns % TURNS_PER_BATCH == 0:
                full, batch = batch, []
                await in_thread(self._thread, self._table.add, full)
            else:
                await asyncio.sleep(0)
        await in_thread(self._thread, self._table.add, batch)

    async def tidy(self) -> None:
        """Drop the snapshots whose time has come, and delete what only they needed; not while cut off from the log."""
        if not await reach(self._barrier):
            return
        async with self._writing:
            await in_thread(self._thread, self._table.tidy)


def _names(state: State) -> Iterator[str]:
    """The names of all streams, ordered by bucket and stream, while others are added and removed.

    Listings are in the order of whole names, in which the streams of `team-a` precede those of `team`.
    """
    bucket = ""
    while buckets := list(state.bucket_names.after(bucket, STREAMS_PER_TURN)):
        for bucket in buckets:
            name = f"{bucket}/"
            yield name  # Not the name of a stream, but looking at a bucket is work as well.
            while page := _page(state, bucket, name):
                yield from page
                name = page[-1]


def _page(state: State, bucket: str, after: str) -> list[str]:
    """The next names of a bucket; short for a small bucket, of which there may be many."""
    found = list(state.names.after(after, min(state.lives[bucket], STREAMS_PER_TURN)))
    return [name for name in found if bucket_of(name) == bucket]


def _row(stream: Stream) -> StreamRow:
    return StreamRow(
        stream.name,
        stream.incarnation,
        stream.content_type,
        stream.start,
        stream.tail,
        stream.record_next - stream.record_start,
        stream.closed,
        stream.created_at,
        stream.written_at,
        None if stream.origin is None else stream.origin.name,
        stream.attrs,
    )
