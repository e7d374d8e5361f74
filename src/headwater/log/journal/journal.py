"""The journal: the log of one process, in files on its disk, synced before anything is acknowledged.

Group commit without a timer: the shard appends the batch that has gathered; one thread writes it as one frame and
syncs; meanwhile the next batch gathers. Another thread keeps a zero-filled spare file ready, so that a commit never
waits for the file system to allocate space and never runs out of it. When no spare can be made, appends are refused and
the rest of the current file is kept for commands that free space. A failed write or sync is never retried: the state of
the disk is unknown then, so the process ends.
"""

import asyncio
import errno
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from queue import SimpleQueue

from headwater.log import frames
from headwater.log.journal import files, identity
from headwater.log.journal.files import JournalDamaged, JournalFileReader, first_position_of
from headwater.log.seam import Deliver, Ticket
from headwater.storage.disk import Disk, File, RealDisk
from headwater.streams import batches
from headwater.streams.batches import Batch
from headwater.streams.commands import Command

FILE_BYTES = 64 * 1024 * 1024
SPARE = "spare"
SPARE_RETRY_SECONDS = 1.0
"""How long to wait on a full disk before another spare is tried."""

log = logging.getLogger(__name__)


def end_process(error: BaseException) -> None:
    """End the process after a failed write or sync: nothing after it could be trusted."""
    log.critical("the journal cannot be written, so the server stops: %s", error)
    os._exit(1)


class Journal:
    """A `CommandLog` in a directory, with one proposer: the process that holds the directory."""

    batches_in_flight_max = 1
    """The disk syncs one batch after another, so a larger next batch is worth more than an earlier one."""

    def __init__(
        self,
        directory: Path,
        disk: Disk | None = None,
        file_bytes: int = FILE_BYTES,
        on_failure: Callable[[BaseException], None] = end_process,
        *,
        spare_retry_seconds: float = SPARE_RETRY_SECONDS,
    ) -> None:
        self._directory, self._disk = directory, disk or RealDisk()
        self._file_bytes, self._on_failure = file_bytes, on_failure
        self._spare_retry_seconds = spare_retry_seconds
        self._names = [name for name in self._disk.names(directory) if files.is_journal_file(name)]
        ours = self._identity()
        self.log_id, self._seed = ours.log_id, ours.seed
        self.size_bytes = 0
        self.has_room = True
        self._next_position = 1
        self._file: File | None = None
        self._file_at = 0
        self._spare: File | None = None
        self._spare_ready = threading.Event()
        self._spare_wanted: SimpleQueue[bool] = SimpleQueue()
        self._queue: SimpleQueue[tuple[int, list[Command], Ticket] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._closing = False

    def _identity(self) -> identity.Identity:
        ours = identity.load(self._directory, self._disk)
        if ours is None and self._names:
            path = self._directory / identity.NAME
            raise JournalDamaged(f"{path} is missing, but there are journal files; restore it from a copy.")
        return ours or identity.make(self._directory, self._disk)

    # -- Reading back ---------------------------------------------------------------------------------------------

    def replay(self, after: int) -> Iterator[Batch]:
        """Every batch above `after`; cuts off a torn end; refuses a gap or a bad frame before it."""
        # The spare goes first: on a full disk the torn end needs its space.
        if SPARE in self._disk.names(self._directory):
            self._disk.remove(self._directory / SPARE)
        needed = [name for name, following in pairwise(self._names) if first_position_of(following) > after + 1]
        needed += self._names[-1:]
        expected = min(after + 1, first_position_of(needed[0])) if needed else 1
        for name in needed:
            reader = JournalFileReader(self._disk, self._directory / name, self.log_id, self._seed)
            begin = reader.end.next_position
            if begin != expected:
                raise JournalDamaged(f"Positions {expected} to {begin - 1} are missing before {reader.path}.")
            for batch, size in reader.batches():
                self.size_bytes += size
                expected = batch.last_position + 1
                if batch.last_position > after:
                    yield batch
            if name == self._names[-1] and expected > after:
                self._continue_in(reader)
            else:
                reader.file.close()
        if expected <= after:
            last = self._directory / self._names[-1] if self._names else self._directory
            raise JournalDamaged(
                f"{last} is damaged after position {expected - 1}, but an image covers positions up to {after};"
                " restore the journal from a copy."
            )
        self._next_position = expected

    def _continue_in(self, last: JournalFileReader) -> None:
        """Append to the last file from where its whole frames end."""
        last.cut(self._directory / "torn", self._disk)
        # A killed process may have written a frame without syncing it. It is about to be served, so it must last.
        last.file.sync()
        self._file, self._file_at = last.file, last.end.at

    # -- Appending ------------------------------------------------------------------------------------------------

    def start(self, deliver: Deliver) -> None:
        """Open for appends, with a spare ready, and begin to deliver."""
        self._loop, self._deliver = asyncio.get_running_loop(), deliver
        self.make_ready()
        for work in (self._commit_forever, self._make_spares_forever):
            thread = threading.Thread(target=self._guarded, args=(work,), name=work.__name__, daemon=True)
            self._threads.append(thread)
            thread.start()

    def make_ready(self) -> None:
        """Have a file to commit to and a spare after it; only the very first file is indispensable."""
        error = self.make_spare()
        if self._file is None:
            if error is not None:
                raise error
            self._rotate()
        elif error is not None:
            self._spare_wanted.put(True)

    def append(self, at: int, commands: list[Command], ticket: Ticket) -> None:
        self._queue.put((at, commands, ticket))

    def close(self) -> None:
        self._closing = True
        self._queue.put(None)
        for thread in self._threads:
            thread.join()
        for file in (self._file, self._spare):
            if file is not None:
                file.close()

    def forget(self, upto: int) -> None:
        """Remove the files all of whose positions are at or below `upto`."""
        while len(self._names) > 1 and first_position_of(self._names[1]) <= upto + 1:
            self._disk.remove(self._directory / self._names.pop(0))

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            self._on_failure(error)

    def _commit_forever(self) -> None:
        try:
            while (item := self._queue.get()) is not None:
                at, batch, ticket = item
                self._loop.call_soon_threadsafe(self._deliver, self.commit(at, batch), ticket)
        finally:
            # Not before: the last append may need a spare.
            self._spare_wanted.put(False)

    def commit(self, at: int, batch: list[Command]) -> Batch:
        """Write one batch as one frame and sync it."""
        record = batches.encode(at, batch)
        # A batch that is larger than a file makes an empty one longer: two files cannot begin at one position.
        if self._file_at + frames.size(len(record)) > self._file_bytes and self._file_at > files.FIRST_FRAME:
            self._rotate()
        assert self._file is not None
        parts = frames.encode(record, self._next_position, len(batch), self._seed)
        self._file.write(parts, self._file_at)
        self._file.sync()
        decided = Batch(self._next_position, at, batch)
        self._file_at += frames.size(len(record))
        self._next_position += len(batch)
        self.size_bytes += len(record)
        return decided

    # -- Files ----------------------------------------------------------------------------------------------------

    def _rotate(self) -> None:
        """Continue in the spare, and request another one."""
        while not self._spare_ready.wait(self._spare_retry_seconds):
            if self._closing and not self.has_room:
                raise OSError(errno.ENOSPC, "The journal was closed before there was space for another file")
        self._spare_ready.clear()
        assert self._spare is not None
        if self._file is not None:
            self._file.close()
        self._file, self._spare = self._spare, None
        files.write_header(self._file, self.log_id, self._seed, self._next_position)
        name = files.name_of(self._next_position)
        self._disk.rename(self._directory / SPARE, self._directory / name)
        self._names.append(name)
        self._file_at = files.FIRST_FRAME
        self._spare_wanted.put(True)

    def make_spare(self) -> OSError | None:
        """Have a spare ready; while none can be made there is no room, and the error says why."""
        if self._spare_ready.is_set():
            return None
        try:
            self._spare = self._disk.create(self._directory / SPARE, self._file_bytes)
        except OSError as error:
            if self.has_room:
                log.error("no space for another journal file, so appends are refused: %s", error)
            self.has_room = False
            return error
        if not self.has_room:
            log.warning("there is space for journal files again")
        self.has_room = True
        self._spare_ready.set()
        return None

    def _make_spares_forever(self) -> None:
        while self._spare_wanted.get():
            while self.make_spare() is not None and self._spare_wanted.empty():
                time.sleep(self._spare_retry_seconds)
