"""A server on a faulty disk, without threads: a seed decides the order of everything.

It does what a node does in the same order (commit, apply, acknowledge), makes spares and takes images in between, and
commits in the middle of both, as the threads of a node would.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

from headwater.log import directory
from headwater.log.images.files import ImageFiles, ImageWriter
from headwater.log.journal.journal import Journal
from headwater.log.journal.writer import JournalWriter
from headwater.storage.disk import File
from headwater.streams.apply import apply
from headwater.streams.batches import Batch
from headwater.streams.images import Walk
from headwater.streams.state import State

from ..doubles.faulty_disk import FaultyDisk, Halted, Step
from .history import History
from .load import Load

DATA = Path("/data")
JOURNAL_FILE_BYTES = 8192
WORK_MAX = 100
"""How much is done in one life if it never halts."""


class Aim(NamedTuple):
    """Where a life halts: at most this many steps ahead, of this kind or any, on names that contain this."""

    step: Step | None
    in_name: str
    steps_max: int

    def hits(self, step: Step, path: Path) -> bool:
        return self.in_name in path.name and self.step in (None, step)


AIMS = [
    Aim(None, "", 30),
    Aim(None, "", 300),
    Aim(None, ".journal", 100),
    Aim(None, "spare", 40),
    Aim(Step.RENAME, "spare", 5),
    Aim(Step.SYNC_DIRECTORY, "journal", 12),
    Aim(Step.UNLINK, ".journal", 2),
    Aim(None, ".tmp", 40),
    Aim(Step.RENAME, ".tmp", 2),
    Aim(Step.SYNC_DIRECTORY, "images", 12),
    Aim(Step.UNLINK, ".image", 1),
    Aim(None, ".torn", 3),
    Aim(Step.WRITE, ".torn", 1),
]


class WouldWait(Exception):
    """A commit needs a spare that is still being made."""


class SteppedWriter(JournalWriter):
    """A writer whose spares are made when the machine says so."""

    is_making_spare = False

    @property
    def end(self) -> tuple[Path, int]:
        """The last journal file, and where the next batch goes in it."""
        return self._directory / self._names[-1], self._file_at

    def make_spare(self) -> OSError | None:
        self.is_making_spare = True
        try:
            return super().make_spare()
        finally:
            self.is_making_spare = False

    def _take_spare(self, *, waits: bool) -> File:
        if self.is_making_spare and self._spare is None:
            raise WouldWait
        if (error := self.make_spare()) is not None:
            raise error
        return super()._take_spare(waits=waits)


class SteppedJournal(Journal):
    """A journal with such a writer."""

    writer_type = SteppedWriter
    writer: SteppedWriter


class ImageInTheMaking:
    """An image that is written piece by piece."""

    def __init__(self, state: State, images: ImageFiles) -> None:
        self.walk = Walk(state)
        self._images = images
        self._pieces: Iterator[bytes] = self.walk.pieces()
        self._writer: ImageWriter | None = None

    def step(self) -> bool:
        """Do one step; whether the image is finished."""
        if self._writer is None:
            self._writer = self._images.begin(self.walk.position, b"")
            return False
        piece = next(self._pieces, None)
        if piece is not None:
            self._writer.write([piece])
            return False
        self.walk.end()
        self._writer.finish()
        return True


class Machine:
    """One data directory through many lives of its server."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.disk = FaultyDisk(self.random)
        self.disk.on_step = self._in_between
        self.history = History()
        self.halts: Counter[str] = Counter()
        self.images_taken = 0
        self._load = Load(self.random)
        self._image: ImageInTheMaking | None = None
        self._in_background = False

    def live(self) -> None:
        """Start, work until the machine halts, then lose power or only the process."""
        aim = self.random.choice(AIMS)
        self.disk.halt_in(self.random.randrange(1, aim.steps_max + 1), aim.hits)
        try:
            self.start()
            for _ in range(WORK_MAX):
                self.work()
            self.halts["at rest"] += 1
        except Halted as halt:
            self.halts[_scene(halt)] += 1
        if self.random.random() < 0.7:
            self.disk.lose_power()
        else:
            self.disk.kill_process()

    def start(self) -> None:
        """Recover, and compare the state with what it must be."""
        self._image, self._in_background = None, False
        self.disk.names(DATA)
        self.state, journal, self.images, _ = directory.recover(
            DATA, JOURNAL_FILE_BYTES, self.disk, _fail, open_journal=SteppedJournal
        )
        assert isinstance(journal, SteppedJournal), "the machine needs a journal without threads"
        self.journal = journal
        self.history.check(self.state)
        self.journal.writer.make_ready()
        self._check_running()

    def work(self) -> None:
        """Do one thing or another."""
        kind = self.random.random()
        if kind < 0.60:
            self.commit()
        elif kind < 0.70:
            self._background(self.journal.writer.make_spare)
        else:
            self._background(self._work_on_image)
        self._check_running()

    def commit(self) -> None:
        """Commit a batch, apply it, acknowledge it: the committer's order."""
        at, commands = self._load.batch(self.state)
        self.history.send(at, commands)
        try:
            batch: Batch = self.journal.commit(at, commands)
        except WouldWait:
            self.history.withdraw()
            return
        apply(self.state, batch)
        self.history.acknowledge()

    def finish_image(self) -> None:
        """Continue the image, or begin one, until it is finished."""
        taken = self.images_taken
        while self.images_taken == taken:
            self._work_on_image()

    def _work_on_image(self) -> None:
        if self._image is None:
            self._image = ImageInTheMaking(self.state, self.images)
        if self._image.step():
            self._image = None
            self.images_taken += 1
            self.journal.forget(self.images.drop_old())

    def _background(self, act: Callable[[], object]) -> None:
        self._in_background = True
        act()
        self._in_background = False

    def _in_between(self, step: Step, path: Path) -> None:
        # The committer keeps working in the middle of a background step.
        if self._in_background and self.random.random() < 0.3:
            self._in_background = False
            self.commit()
            self._in_background = True

    def _check_running(self) -> None:
        if self.disk.halted:
            raise Halted("the machine halts while a spare is made")


def _scene(halt: Halted) -> str:
    """Where it halted, without the numbers."""
    # The names of unfinished images are positions and something random.
    return re.sub(r"[0-9]{20}-[0-9a-f]{16}(?=\.tmp)|[0-9]+", "N", str(halt).rpartition("halts ")[2])


def _fail(error: BaseException) -> None:
    raise AssertionError("a journal without threads raises its errors") from error
