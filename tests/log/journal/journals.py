"""Journals on a faulty disk for tests: filled without threads, inspected, tampered with."""

from itertools import pairwise
from pathlib import Path
from random import Random

from headwater.log.journal import files, identity
from headwater.log.journal.journal import Journal
from headwater.streams.batches import Batch
from headwater.streams.commands.streams import Append

from ...doubles.faulty_disk import FaultyDisk

DIRECTORY = Path("/data/journal")
JOURNAL_FILE_BYTES = 4096


class Workbench:
    """A journal's directory on a disk, and every batch that was committed to it."""

    def __init__(self, file_bytes: int = JOURNAL_FILE_BYTES, seed: int = 0) -> None:
        self.disk = FaultyDisk(Random(seed))
        self.file_bytes = file_bytes
        self.committed: list[Batch] = []

    def open(self) -> Journal:
        """The journal, not yet replayed."""
        return Journal(DIRECTORY, self.disk, self.file_bytes)

    def replay(self, after: int = 0) -> list[Batch]:
        return list(self.open().replay(after))

    def reopen(self, after: int = 0) -> Journal:
        """The journal, replayed and ready to commit."""
        journal = self.open()
        list(journal.replay(after))
        journal.writer.make_ready()
        journal.writer.make_spare()
        return journal

    def commit(self, journal: Journal, *payloads: bytes) -> Batch:
        """Commit one batch with an append for each payload; a spare is made whenever one was used up."""
        batch = journal.commit(len(self.committed), [Append("orders", payload) for payload in payloads])
        self.committed.append(batch)
        journal.writer.make_spare()
        return batch

    def fill(self, count: int, size: int = 500) -> Journal:
        """Commit this many batches with one append each."""
        journal = self.reopen()
        for number in range(count):
            self.commit(journal, b"%d" % number * size)
        return journal

    # -- Inspecting and tampering ---------------------------------------------------------------------------------

    def files(self) -> list[Path]:
        return [path for path in self.disk.paths() if files.is_journal_file(path.name)]

    def frames(self, path: Path) -> list[tuple[int, int]]:
        """Where each whole batch of a file begins and ends."""
        ours = identity.load(DIRECTORY, self.disk)
        assert ours is not None
        reader = files.JournalFileReader(self.disk, path, ours.log_id, ours.seed)
        begins = [files.FIRST_FRAME]
        begins += [reader.end.at for _ in reader.batches()]
        return list(pairwise(begins))

    def damage(self, path: Path, at: int) -> None:
        self.disk.flip_bit(path, at * 8)

    def write(self, path: Path, at: int, data: bytes) -> None:
        file = self.disk.open(path)
        file.write([data], at)
        file.sync()

    def torn(self) -> list[bytes]:
        """The torn ends that were kept."""
        return [self.disk.read(path) for path in self.disk.paths() if path.parent.name == "torn"]
