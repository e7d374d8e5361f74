"""The journal: the log of one process, in files on its disk, synced before anything is acknowledged.

Group commit without a timer: the shard appends the batch that has gathered; one thread writes it as one frame and
syncs; meanwhile the next batch gathers. Another thread keeps a zero-filled spare file ready, so that a commit never
waits for the file system to allocate space and never runs out of it. When no spare can be made, appends are refused:
the end of the current file is for commands that free space, and a batch with others that does not fit before it is
given back. A failed write or sync is never retried: the state of the disk is unknown then, so the process ends.
"""

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from queue import SimpleQueue

from headwater.log import frames
from headwater.log.journal import files, identity
from headwater.log.journal.files import JournalDamaged, JournalFileReader, first_position_of
from headwater.log.seam import Deliver, GiveBack, Reached, Ticket
from headwater.storage.disk import Disk, File, RealDisk, shortage_of
from headwater.streams import batches
from headwater.streams.batches import Batch
from headwater.streams.commands import Command

FILE_BYTES = 64 * 1024 * 1024
SPARE = "spare"
RESERVE_PART = 16
"""While there is no spare, this part of the current file, its last sixteenth, is for commands that free space."""
SPARE_RETRY_SECONDS = 1.0
SPARE_PAUSES_MAX = 32
"""How long to wait before another spare is tried; doubled each time, up to so many times as long. A journal file that
is removed ends the wait."""

log = logging.getLogger(__name__)


def end_process(error: BaseException) -> None:
    """End the process after a failed write or sync: nothing after it could be trusted."""
    log.critical("the journal cannot be written, so the server stops: %s", error)
    os._exit(1)


class NoRoom(Exception):
    """A batch that needs space meets a journal without any; nothing of it was written."""


class Journal:
    """A `CommandLog` in a directory, with one proposer: the process that holds the directory."""

    batches_in_flight_max = 1
    """The disk syncs one batch after another, so a larger next batch is worth more than an earlier one."""
    shared = False
    outage = None

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
        self.shortage = ""
        self.spare_failures = 0
        self._next_position = 1
        self._file: File | None = None
        self._file_at = 0
        self._room_end = file_bytes
        """Up to where the current file has space on disk, whatever else fills that."""
        self._spare: File | None = None
        self._spares = threading.Condition()
        """Guards the spare and whether there is room; notified when either changes."""
        self._spare_wanted: SimpleQueue[bool] = SimpleQueue()
        self._freed = threading.Event()
        self._queue: SimpleQueue[tuple[int, list[Command], Ticket] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._closing = False

    def _identity(self) -> identity.Identity:
        ours = identity.load(self._directory, self._disk)
        if ours is None and self._names:
            path = self._directory / identity.NAME
            raise JournalDamaged(f"{path} is missing, but there are journal files; restore it from a copy.")
        if ours is None:
            ours = identity.new()
            identity.save(ours, self._directory, self._disk)
        return ours

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
        room_end = min(len(last.data), self._file_bytes)
        if last.end.at == files.FIRST_FRAME and room_end < self._file_bytes:
            # An empty file without room, as a restore leaves it: the first spare takes its place.
            last.file.close()
            self._names.pop()
            return
        self._file, self._file_at, self._room_end = last.file, last.end.at, room_end

    # -- Appending ------------------------------------------------------------------------------------------------

    def start(self, deliver: Deliver, give_back: GiveBack) -> None:
        """Open for appends, with a spare ready, and begin to deliver."""
        self._loop, self._deliver, self._give_back = asyncio.get_running_loop(), deliver, give_back
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
            self._rotate(self._take_spare(waits=False))
        elif error is not None:
            self._spare_wanted.put(True)

    def append(self, at: int, commands: list[Command], ticket: Ticket) -> None:
        self._queue.put((at, commands, ticket))

    def barrier(self, reached: Reached) -> None:
        reached(True)

    def mark(self) -> bytes:
        return b""

    def close(self) -> None:
        self._closing = True
        self._queue.put(None)
        self._freed.set()
        with self._spares:
            self._spares.notify_all()
        for thread in self._threads:
            thread.join()
        for file in (self._file, self._spare):
            if file is not None:
                file.close()

    def forget(self, upto: int) -> None:
        """Remove the files all of whose positions are at or below `upto`."""
        while len(self._names) > 1 and first_position_of(self._names[1]) <= upto + 1:
            self._disk.remove(self._directory / self._names.pop(0))
            self._freed.set()

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            self._on_failure(error)

    def _commit_forever(self) -> None:
        try:
            while (item := self._queue.get()) is not None:
                at, batch, ticket = item
                try:
                    decided = self.commit(at, batch)
                except NoRoom:
                    self._loop.call_soon_threadsafe(self._give_back, ticket)
                else:
                    self._loop.call_soon_threadsafe(self._deliver, decided, ticket)
        finally:
            # Not before: the last append may need a spare.
            self._spare_wanted.put(False)

    def commit(self, at: int, batch: list[Command]) -> Batch:
        """Write one batch as one frame and sync it; raise NoRoom if that takes space, and there is none."""
        record = batches.encode(at, batch)
        # A batch that is larger than a file makes an empty one longer: two files cannot begin at one position.
        end = self._file_at + frames.size(len(record))
        if end > self._room_end - self._room_end // RESERVE_PART and self._file_at > files.FIRST_FRAME:
            frees = all(map(batches.frees_space, batch))
            if end > self._room_end or not (frees or self._spare is not None):
                self._rotate(self._take_spare(waits=frees))
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

    def _take_spare(self, *, waits: bool) -> File:
        """The spare, which is being made if there is none yet; while none can be made, wait for one or raise NoRoom."""
        with self._spares:
            while self._spare is None:
                if not self.has_room and (self._closing or not waits):
                    raise NoRoom
                self._spares.wait()
            spare, self._spare = self._spare, None
            return spare

    def _rotate(self, spare: File) -> None:
        """Continue in the spare, and request another one."""
        if self._file is not None:
            self._file.close()
        self._file = spare
        files.write_header(self._file, self.log_id, self._seed, self._next_position)
        name = files.name_of(self._next_position)
        self._disk.rename(self._directory / SPARE, self._directory / name)
        self._names.append(name)
        self._file_at, self._room_end = files.FIRST_FRAME, self._file_bytes
        self._spare_wanted.put(True)

    def make_spare(self) -> OSError | None:
        """Have a spare ready; while none can be made there is no room, and the error says why."""
        if self._spare is not None:
            return None
        try:
            spare = self._disk.create(self._directory / SPARE, self._file_bytes)
        except OSError as error:
            self.spare_failures += 1
            shortage = shortage_of(error)
            if self.has_room or shortage != self.shortage:
                log.error("no room for another journal file, so appends are refused: %s", error)
            with self._spares:
                self.has_room, self.shortage = False, shortage
                self._spares.notify_all()
            return error
        if not self.has_room:
            log.warning("there is room for journal files again")
        with self._spares:
            self._spare, self.has_room = spare, True
            self._spares.notify_all()
        return None

    def _make_spares_forever(self) -> None:
        while self._spare_wanted.get():
            pauses = 1
            while self.make_spare() is not None and not self._closing:
                if self._freed.wait(pauses * self._spare_retry_seconds):
                    self._freed.clear()
                    pauses = 1
                else:
                    pauses = min(2 * pauses, SPARE_PAUSES_MAX)
