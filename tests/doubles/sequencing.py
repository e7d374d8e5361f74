"""A sequencer in a thread of the test, on a real disk, and proposers in the test's own process."""

import socket
import tempfile
import threading
from pathlib import Path

from headwater.log.journal.writer import JournalWriter
from headwater.log.workers.decided import DecidedPosition
from headwater.log.workers.sequencer import UNREAD_BYTES_MAX, Sequencer
from headwater.log.workers.shared_journal import SharedJournal
from headwater.storage.disk import Disk

JOURNAL_FILE_BYTES = 4096


class SequencedJournal:
    """A shared journal in a directory; `close` ends its sequencer, `open` begins another one."""

    def __init__(
        self,
        directory: Path,
        *,
        disk: Disk | None = None,
        file_bytes: int = JOURNAL_FILE_BYTES,
        unread_bytes_max: int = UNREAD_BYTES_MAX,
    ) -> None:
        self._directory, self._disk, self._file_bytes = directory, disk, file_bytes
        self._unread_bytes_max = unread_bytes_max
        self._runtime = tempfile.TemporaryDirectory(prefix="headwater-")
        self._socket = Path(self._runtime.name) / "log"
        self.decided = DecidedPosition()
        self.failures: list[BaseException] = []
        self.dropped: list[int] = []
        self._proposers: list[SharedJournal] = []
        self.open()

    def open(self) -> None:
        """Start a sequencer."""
        journal = JournalWriter(
            self._directory, self._disk, self._file_bytes, self.failures.append, spare_retry_seconds=0.01
        )
        journal.find_end(0)
        self._socket.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(self._socket))
        listener.listen()
        self.sequencer = Sequencer(
            journal,
            listener,
            self.decided,
            unread_bytes_max=self._unread_bytes_max,
            on_dropped=self.dropped.append,
            on_failure=self.failures.append,
        )
        self.sequencer.start()
        self._thread = threading.Thread(target=self.sequencer.run)
        self._thread.start()

    def proposer(self) -> SharedJournal:
        """One more process, as it were."""
        proposer = SharedJournal(self._directory, self._socket, self.decided, self._disk, self.failures.append)
        self._proposers.append(proposer)
        return proposer

    def close(self) -> None:
        """End the sequencer, even if proposers are still connected. Idempotent."""
        if self._thread.is_alive():
            self.sequencer.stop(0)
            self._thread.join()

    def end(self) -> None:
        """End everything."""
        self.close()
        for proposer in self._proposers:
            proposer.abandon()
        self._runtime.cleanup()
