"""The files of a journal, as the one process that appends to them sees them.

A record is staged as one frame; several staged records are one write and one sync. A thread keeps a zero-filled spare
file ready, so that a commit never waits for the file system to allocate space and never runs out of it. When no spare
can be made, there is no room: the end of the current file is for records that free space, and others that do not fit
before it are refused. A failed write or sync is never retried: the state of the disk is unknown then, so the process
ends.
"""

import logging
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import TypeVar

from headwater.log import frames
from headwater.log.journal import files, identity
from headwater.log.journal.files import JournalDamaged, JournalFileReader, first_position_of
from headwater.log.journal.replaying import Replay
from headwater.storage.disk import Disk, File, RealDisk, shortage_of
from headwater.streams.batches import Batch

FILE_BYTES = 64 * 1024 * 1024
SPARE = "spare"
RESERVE_PART = 16
"""While there is no spare, this part of the current file, its last sixteenth, is for commands that free space."""
STAGED_PARTS_MAX = 900
"""How many parts are staged before they are written; one system call takes 1,024."""
SPARE_RETRY_SECONDS = 1.0
SPARE_PAUSES_MAX = 32
"""How long to wait before another spare is tried; doubled each time, up to so many times as long. A journal file that
is removed ends the wait."""

T = TypeVar("T")

log = logging.getLogger(__name__)


def end_process(error: BaseException) -> None:
    """End the process after a failed write or sync: nothing after it could be trusted."""
    log.critical("the journal cannot be written, so the server stops: %s", error)
    os._exit(1)


class NoRoom(Exception):
    """A record that needs space meets a journal without any; nothing of it was written."""


class JournalWriter:
    """Appends records to the journal in a directory, which this process holds."""

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
        self.on_spare: Callable[[], None] = lambda: None
        """Called in the thread that makes spares whenever it made one, or could not."""
        self._next_position = 1
        self._file: File | None = None
        self._file_at = 0
        self._staged: list[bytes] = []
        """The parts of the frames that are not written yet; they belong directly before `_file_at`."""
        self._staged_bytes = 0
        self._room_end = file_bytes
        """The end of the space that the current file holds on disk, even if others fill the rest."""
        self._spare: File | None = None
        self._spares = threading.Condition()
        """Guards the spare and whether there is room; notified when either changes."""
        self._spare_wanted: SimpleQueue[bool] = SimpleQueue()
        self._freed = threading.Event()
        self._threads: list[threading.Thread] = []
        self._closing = self._cutting = False

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

    @property
    def last_position(self) -> int:
        """The position of the last record that was read or staged."""
        return self._next_position - 1

    def replay(self, after: int) -> Iterator[Batch]:
        """Every batch above `after`; cuts off a torn end; refuses a gap or a bad frame before it."""
        replay = self._begin_replay(after)
        yield from replay.batches()
        self._end_replay(replay)

    def find_end(self, after: int) -> None:
        """As `replay`, for a process that needs no batch: only the last file is read, and nothing is decoded."""
        if self._names:
            after = max(after, first_position_of(self._names[-1]) - 1)
        replay = self._begin_replay(after)
        for _ in replay.frames():
            pass
        self._end_replay(replay)

    def _begin_replay(self, after: int) -> Replay:
        # The spare goes first: on a full disk the torn end needs its space.
        if SPARE in self._disk.names(self._directory):
            self._disk.remove(self._directory / SPARE)
        return Replay(self._disk, self._directory, self._names, self.log_id, self._seed, after=after)

    def _end_replay(self, replay: Replay) -> None:
        replay.check_complete()
        self.size_bytes += replay.size_bytes
        if replay.last is not None:
            self._continue_in(replay.last)
        self._next_position = replay.next_position

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

    def make_ready(self) -> None:
        """Have a file to commit to and a spare after it; only the very first file is indispensable."""
        error = self.make_spare()
        if self._file is None:
            if error is not None:
                raise error
            self._rotate(self._take_spare(waits=False))
        elif error is not None:
            self._spare_wanted.put(True)

    def has_space_for(self, size: int) -> bool:
        """Whether a record of this size fits into the current file, and so waits for nothing; False once it closes."""
        fits = self._file_at + frames.size(size) < self._room_end - self._room_end // RESERVE_PART
        return fits and not (self._cutting or self._closing)

    def stage(self, record: bytes, entries: int, *, frees: bool, waits: bool) -> int:
        """Put a record behind those that were staged, and return the position of its first command.

        NoRoom if it takes space and there is none. A record that `frees` may take the reserve, and if it `waits`, it
        waits for a spare where the reserve is used up.
        """
        size = frames.size(len(record))
        end = self._file_at + size
        # A record that is larger than a file makes an empty one longer: two files cannot begin at one position.
        in_reserve = end > self._room_end - self._room_end // RESERVE_PART and self._file_at > files.FIRST_FRAME
        cuts = self._cutting and self._file_at > files.FIRST_FRAME
        if cuts or (in_reserve and (end > self._room_end or not (frees or self._spare is not None))):
            spare = self._take_spare(waits=waits and frees)
            self.sync()
            self._rotate(spare)
        if self._cutting:
            self._cutting = False
            self._remove_torn()
        position = self._next_position
        self._staged += frames.encode(record, position, entries, self._seed)
        self._staged_bytes += size
        self._file_at += size
        self._next_position += entries
        self.size_bytes += len(record)
        if len(self._staged) > STAGED_PARTS_MAX:
            self.sync()
        return position

    def sync(self) -> None:
        """Write what is staged, and return once it survives a loss of power."""
        if self._staged:
            assert self._file is not None
            self._file.write_synced(self._staged, self._file_at - self._staged_bytes)
            self._staged, self._staged_bytes = [], 0

    def close(self) -> None:
        self.begin_close()
        self._spare_wanted.put(False)
        for thread in self._threads:
            thread.join()
        for file in (self._file, self._spare):
            if file is not None:
                file.close()

    def begin_close(self) -> None:
        """From now on nothing waits for space."""
        self._closing = True
        self._freed.set()
        with self._spares:
            self._spares.notify_all()

    def forget(self, upto: int) -> None:
        """Remove the files all of whose positions are at or below `upto`."""
        while len(self._names) > 1 and first_position_of(self._names[1]) <= upto + 1:
            self._disk.remove(self._directory / self._names.pop(0))
            self._freed.set()

    def cut(self) -> int:
        """Put the next record into a new file, and remove what was kept of torn ends; from any thread."""
        self._cutting = True
        return 0

    def _remove_torn(self) -> None:
        folder = self._directory / "torn"
        for name in self._disk.names(folder):
            self._disk.remove(folder / name)

    def has_forgotten(self, upto: int) -> bool:
        """Whether no file with a position up to this one is left."""
        return not self._names or first_position_of(self._names[0]) > upto

    # -- Files ----------------------------------------------------------------------------------------------------

    def start_thread(self, work: Callable[[], None]) -> threading.Thread:
        """Run something beside the caller until it ends; if it fails, the journal has failed."""
        thread = threading.Thread(target=self.guarded, args=(work,), name=work.__name__, daemon=True)
        self._threads.append(thread)
        thread.start()
        return thread

    def guarded(self, work: Callable[[], T]) -> T | None:
        """Do something after whose failure nothing on the disk could be trusted, so that the process ends."""
        try:
            return work()
        except Exception as error:
            self._on_failure(error)
            return None

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

    def make_spares_forever(self) -> None:
        """Make a spare whenever one was taken; the work of a thread, until the journal is closed."""
        while self._spare_wanted.get():
            pauses = 1
            while self.make_spare() is not None and not self._closing:
                self.on_spare()
                if self._freed.wait(pauses * self._spare_retry_seconds):
                    self._freed.clear()
                    pauses = 1
                else:
                    pauses = min(2 * pauses, SPARE_PAUSES_MAX)
            self.on_spare()
