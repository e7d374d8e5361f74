"""A data directory on a faulty disk, driven without threads."""

from pathlib import Path

from headwater.log.directory import Recovered, recover
from headwater.log.journal import files
from headwater.streams.apply import apply
from headwater.streams.commands import Command
from headwater.streams.commands.streams import Append, Create
from headwater.streams.images import image_of
from headwater.streams.replies import Reply

from ..doubles.faulty_disk import FaultyDisk

DATA = Path("/data")
JOURNAL_FILE_BYTES = 4096


class DataDirectory:
    """What a server does with its directory: open it, commit to it, take images."""

    def __init__(self) -> None:
        self.disk = FaultyDisk()
        self.batches = 0
        self.open()
        self.commit(Create("orders", "text/plain"))

    def open(self) -> Recovered:
        """Recover, as a server does when it starts."""
        self.state, self.journal, self.images, self.blobs = recovered = recover(DATA, JOURNAL_FILE_BYTES, self.disk)
        self.journal.writer.make_ready()
        return recovered

    def commit(self, *commands: Command) -> list[Reply]:
        self.batches += 1
        replies = apply(self.state, self.journal.commit(self.batches, list(commands)))
        self.journal.writer.make_spare()
        return replies

    def append(self, count: int, size: int = 300) -> None:
        for number in range(count):
            self.commit(Append("orders", b"%d" % (number % 10) * size, content_type="text/plain"))

    def take_image(self) -> Path:
        """Take an image, forget the log before the older one, and return the image's path."""
        writer = self.images.begin(self.state.position, b"")
        writer.write(image_of(self.state))
        writer.finish()
        self.journal.forget(self.images.drop_old())
        return DATA / "images" / f"{self.state.position:020d}.image"

    def age(self) -> list[Path]:
        """Make two images with log before, between and after them; their paths, the older one first."""
        paths = []
        for _ in range(3):
            self.append(30)
            paths.append(self.take_image())
        self.append(10)
        return paths[1:]

    def damage(self, path: Path) -> None:
        self.disk.flip_bit(path, len(self.disk.read(path)) * 4)

    @property
    def contents(self) -> list[bytes]:
        """The whole state, to compare."""
        return image_of(self.state)

    @property
    def journal_files(self) -> list[Path]:
        return [path for path in self.disk.paths() if files.is_journal_file(path.name)]
