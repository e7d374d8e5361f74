"""The journal: the log of one process, in files on its disk, synced before anything is acknowledged.

Group commit without a timer: the shard appends the batch that has gathered; one thread writes it as one frame and
syncs; meanwhile the next batch gathers. Where there is no room, a batch that needs space is given back.

While syncs are short, a batch is synced on the loop. To hand it over to the thread and back takes about as long as a
short sync, and meanwhile both threads would wait for the interpreter in turn.
"""

import asyncio
from functools import partial
from queue import SimpleQueue
from time import monotonic

from headwater.log.journal.writer import FILE_BYTES, SPARE, JournalWriter, NoRoom, end_process
from headwater.log.seam import Deliver, GiveBack, Reached, Ticket
from headwater.protocol.limits import KIB
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


class Journal(JournalWriter):
    """A `CommandLog` in a directory, with one proposer: the process that holds the directory."""

    batches_in_flight_max = 1
    """The disk syncs one batch after another, so a larger next batch is worth more than an earlier one."""
    shared = False
    outage = None
    _sync_seconds = 2 * SHORT_SYNC_SECONDS
    """How long a sync takes on average; at first it is not known to be short."""

    _queue: "SimpleQueue[tuple[bytes, int, list[Command], Ticket] | None]"

    def start(self, deliver: Deliver, give_back: GiveBack) -> None:
        """Open for appends, with a spare ready, and begin to deliver."""
        self._loop, self._deliver, self._give_back = asyncio.get_running_loop(), deliver, give_back
        self._queue = SimpleQueue()
        self.make_ready()
        self.start_thread(self._commit_forever)
        self.start_thread(self.make_spares_forever)

    def append(self, at: int, commands: list[Command], ticket: Ticket) -> None:
        self._guarded(partial(self._append, at, commands, ticket))

    def _append(self, at: int, commands: list[Command], ticket: Ticket) -> None:
        """Commit a batch on the loop, unless that may take long or needs another file: only the thread may wait."""
        record = batches.encode(at, commands)
        is_short = self._sync_seconds <= SHORT_SYNC_SECONDS and len(record) <= SHORT_BATCH_BYTES_MAX
        if is_short and self.has_space_for(len(record)):
            decided = self._commit(record, at, commands, frees=False)
            # In the next turn, as from the thread: the committer is not ready for it while it sends.
            self._loop.call_soon(self._deliver, decided, ticket)
        else:
            self._queue.put((record, at, commands, ticket))

    def barrier(self, reached: Reached) -> None:
        reached(True)

    def mark(self) -> bytes:
        return b""

    def close(self) -> None:
        if self._threads:
            self.begin_close()
            self._queue.put(None)
            # The last append may need a spare, so the thread that makes them ends after it.
            self._threads[0].join()
        super().close()

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
        position = self.stage(record, len(commands), frees=frees, waits=True)
        began = monotonic()
        self.sync()
        self._sync_seconds += (monotonic() - began - self._sync_seconds) / SYNCS_AVERAGED
        return Batch(position, at, commands)
