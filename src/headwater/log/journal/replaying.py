"""Reading the journal files above a position, batch by batch or frame by frame, without a gap."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from headwater.log.frames import Frame
from headwater.log.journal.files import WHOLE, JournalDamaged, JournalFileReader, first_position_of
from headwater.storage.disk import Disk
from headwater.streams.batches import Batch


class Replay:
    """One reading of these files, above `after`."""

    def __init__(
        self, disk: Disk, directory: Path, names: Sequence[str], log_id: str, seed: int, *, after: int
    ) -> None:
        self._disk, self._directory, self._names = disk, directory, names
        self._log_id, self._seed, self._after = log_id, seed, after
        self._needed = [name for name, following in pairwise(names) if first_position_of(following) > after + 1]
        self._needed += names[-1:]
        first = first_position_of(self._needed[0]) if self._needed else 1
        self.next_position = min(after + 1, first) if self._needed else 1
        """The position after the last frame that was read."""
        self.size_bytes = 0
        """The size of all records that were read."""
        self.last: JournalFileReader | None = None
        """The last of the files, open, once it has been read up to its end."""

    def batches(self, upto: int = WHOLE) -> Iterator[Batch]:
        """Every batch above the position, up to another one."""
        for reader, frame in self._frames(upto):
            if self.next_position > self._after + 1:
                yield reader.decode(frame)

    def frames(self) -> Iterator[Frame]:
        """Every frame above the position, undecoded."""
        return (frame for _, frame in self._frames(WHOLE))

    def _frames(self, upto: int) -> Iterator[tuple[JournalFileReader, Frame]]:
        for name in self._needed:
            if self.next_position > upto:
                return
            reader = JournalFileReader(self._disk, self._directory / name, self._log_id, self._seed)
            begin = reader.end.next_position
            if begin != self.next_position:
                reader.file.close()
                raise JournalDamaged(f"Positions {self.next_position} to {begin - 1} are missing before {reader.path}.")
            for frame in reader.whole_frames():
                self.size_bytes += len(frame.payload)
                self.next_position = frame.number + frame.entries
                yield reader, frame
                if self.next_position > upto:
                    break
            if name == self._names[-1] and upto == WHOLE and self.next_position > self._after:
                self.last = reader
            else:
                reader.file.close()

    def check_complete(self) -> None:
        """Refuse files that end before the position above which they were read."""
        if self.next_position <= self._after:
            last = self._directory / self._names[-1] if self._names else self._directory
            raise JournalDamaged(
                f"{last} is damaged after position {self.next_position - 1}, but an image covers positions up to"
                f" {self._after}; restore the journal from a copy."
            )
