"""The journal: the log of one process, in files on its disk, synced before anything is acknowledged.

Group commit without a timer: the shard appends the batch that has gathered; one thread writes it as one frame and
syncs; meanwhile the next batch gathers. Where there is no room, a batch that needs space is given back.

While syncs are short, a batch is synced on the loop. To hand it over to the thread and back takes about as long as a
short sync, and meanwhile both threads would wait for the interpreter in turn.
"""

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from time import monotonic

from headwater.log.journal.writer import (
    FILE_BYTES,
    SPARE,
    SPARE_RETRY_SECONDS,
    JournalWriter,
    NoRoom,
    end_process,
)
from headwater.log.seam import Deliver, GiveBack, Reached, Ticket
from headwater.protocol.limits import KIB
from headwater.storage.disk import Disk
from headwater.streams import batches
from headwater.streams.batches import Batch
from headwater.streams.commands import Command

__all__ = ["FILE_BYTES", "SPARE", "Journal", "NoRoom", "end_process"]


SHORT_SYNC_SECONDS = 0.0005
"""While syncs take no longer on average, a batch may be synced on the loop."""
SYNCS_AVERAGED = 16
"""How many syncs the average is over, roughly: one that takes 10 ms keeps the next dozen off the loop."""
SHORT_BATCH_BYTES_MAX = 256 * KIB
"""A larger batch takes longer to write than to hand over."""


class Journal:
    """A `CommandLog` in a directory, with one proposer: the process that holds the directory."""

    batches_in_flight_max = 1
    """The disk syncs one batch after another, so a larger next batch is worth more than an earlier one."""
    shared = False
    outage = None
    writer_type = JournalWriter

    def __init__(
        self,
        directory: Path,
        disk: Disk | None = None,
        file_bytes: int = FILE_BYTES,
        on_failure: Callable[[BaseException], None] = end_process,
        *,
        spare_retry_seconds: float = SPARE_RETRY_SECONDS,
    ) -> None:
        self.writer = self.writer_type(directory, disk, file_bytes, on_failure, spare_retry_seconds=spare_retry_seconds)
        self.log_id = self.writer.log_id
        self._queue: SimpleQueue[tuple[bytes, int, list[Command], Ticket] | None] = SimpleQueue()
        """What the thread has to commit."""
        self._thread: Thread | None = None
        self._sync_seconds = 2 * SHORT_SYNC_SECONDS
        """How long a sync takes on average; at first it is not known to be short."""

    @property
    def has_room(self) -> bool:
        return self.writer.has_room

    @property
    def shortage(self) -> str:
        return self.writer.shortage

    @property
    def size_bytes(self) -> int:
        return self.writer.size_bytes

    def replay(self, after: int) -> Iterator[Batch]:
        """Every batch above `after`; cuts off a torn end; refuses a gap or a bad frame before it."""
        return self.writer.replay(after)

    def barrier(self, reached: Reached) -> None:
        reached(True)

    def mark(self) -> bytes:
        return b""

    def forget(self, upto: int) -> None:
        self.writer.forget(upto)

    def cut(self) -> int:
        return self.writer.cut()

    async def has_forgotten(self, upto: int) -> bool:
        return self.writer.has_forgotten(upto)

    def start(self, deliver: Deliver, give_back: GiveBack) -> None:
        """Open for appends, with a spare ready, and begin to deliver."""
        self._loop, self._deliver, self._give_back = asyncio.get_running_loop(), deliver, give_back
        self.writer.make_ready()
        self._thread = self.writer.start_thread(self._commit_forever)
        self.writer.start_thread(self.writer.make_spares_forever)

    def append(self, at: int, commands: list[Command], ticket: Ticket) -> None:
        """Commit a batch and deliver it: at once, or from the thread."""
        decided = self.writer.guarded(partial(self._commit_at_once, at, commands, ticket))
        if decided is not None:
            self._deliver(decided, ticket)

    def _commit_at_once(self, at: int, commands: list[Command], ticket: Ticket) -> Batch | None:
        """Commit a batch on the loop, unless that may take long or needs another file: only the thread may wait."""
        record = batches.encode(at, commands)
        is_short = self._sync_seconds <= SHORT_SYNC_SECONDS and len(record) <= SHORT_BATCH_BYTES_MAX
        if is_short and self.writer.has_space_for(len(record)):
            return self._commit(record, at, commands, frees=False)
        self._queue.put((record, at, commands, ticket))
        return None

    def close(self) -> None:
        if self._thread is not None:
            self.writer.begin_close()
            self._queue.put(None)
            # The last append may need a spare, so the thread that makes them ends after it.
            self._thread.join()
        self.writer.close()

    def _commit_forever(self) -> None:
        while (item := self._queue.get()) is not None:
            record, at, commands, ticket = item
            try:
                decided = self._commit(record, at, commands, frees=all(map(batches.frees_space, commands)))
            except NoRoom:
                self._loop.call_soon_threadsafe(self._give_back, ticket)
            else:
                self._loop.call_soon_threadsafe(self._deliver, decided, ticket)

    def commit(self, at: int, commands: list[Command]) -> Batch:
        """Write one batch as one frame and sync it; raise NoRoom if that takes space, and there is none."""
        frees = all(map(batches.frees_space, commands))
        return self._commit(batches.encode(at, commands), at, commands, frees=frees)

    def _commit(self, record: bytes, at: int, commands: list[Command], *, frees: bool) -> Batch:
        position = self.writer.stage(record, len(commands), frees=frees, waits=True)
        began = monotonic()
        self.writer.sync()
        self._sync_seconds += (monotonic() - began - self._sync_seconds) / SYNCS_AVERAGED
        return Batch(position, at, commands)
