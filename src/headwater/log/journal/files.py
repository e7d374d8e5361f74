"""Journal files: a header that names the log and the first position, then frames, then zeros.

Only the last file may end in a torn frame: the one that was being written when the power failed. A frame is torn if no
whole frame follows it; it is moved to another file. A bad frame anywhere else means that acknowledged history is
damaged, and the journal refuses to open.
"""

import logging
import re
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import NamedTuple

import msgspec

from headwater.log import frames
from headwater.storage.disk import Disk, File
from headwater.streams import batches
from headwater.streams.batches import Batch

VERSION = 3
SUFFIX = ".journal"
FIRST_FRAME = 256
"""Where the first batch of a file begins; the frame of its header lies before."""
WHOLE = 1 << 40
"""More bytes than any file has: read all of it."""

_NAME = re.compile(r"[0-9]{20}\.journal")

log = logging.getLogger(__name__)


class JournalDamaged(Exception):
    """Acknowledged history cannot be read back; the message says where."""


class Header(msgspec.Struct, frozen=True, array_like=True):
    version: int
    log_id: str
    first_position: int


class End(NamedTuple):
    """Where the whole frames of a file end: the next position, and the byte at which its frame belongs."""

    next_position: int
    at: int


def name_of(first_position: int) -> str:
    return f"{first_position:020d}{SUFFIX}"


def first_position_of(name: str) -> int:
    return int(name.removesuffix(SUFFIX))


def is_journal_file(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def write_header(file: File, log_id: str, seed: int, first_position: int) -> None:
    """Turn a zero-filled file into a journal file."""
    header = msgspec.json.encode(Header(VERSION, log_id, first_position))
    file.write(frames.encode(header, first_position, 0, seed), 0)
    file.sync()


class JournalFileReader:
    """Reads one journal file batch by batch, and knows afterwards where it ends."""

    def __init__(self, disk: Disk, path: Path, log_id: str, seed: int) -> None:
        self.path = path
        self.file = disk.open(path)
        self._seed = seed
        self.data = self.file.read(0, WHOLE)
        self.end = End(self._first_position(log_id), FIRST_FRAME)

    def _first_position(self, log_id: str) -> int:
        frame = frames.decode(self.data, 0, self._seed)
        header = None if frame is None else msgspec.json.decode(frame.payload, type=Header)
        if header is None or header.log_id != log_id or header.first_position != first_position_of(self.path.name):
            raise JournalDamaged(f"{self.path} does not begin with a header of log {log_id}; restore it from a copy.")
        if header.version != VERSION:
            raise JournalDamaged(f"{self.path} has format {header.version}; this server reads format {VERSION}.")
        return header.first_position

    def whole_frames(self) -> Iterator[frames.Frame]:
        """Every whole frame, in order; `end` advances with each."""
        while (frame := frames.decode(self.data, self.end.at, self._seed)) is not None:
            if frame.number != self.end.next_position:
                raise JournalDamaged(
                    f"{self.path} has position {frame.number} where {self.end.next_position} is expected;"
                    " restore it from a copy."
                )
            self.end = End(frame.number + frame.entries, frame.end)
            yield frame

    def batches(self) -> Iterator[Batch]:
        """Every whole batch, in order; `end` advances with each."""
        return map(self.decode, self.whole_frames())

    def decode(self, frame: frames.Frame) -> Batch:
        """The batch in a frame."""
        try:
            return batches.decode(frame.payload, frame.number)
        except ValueError as error:
            raise JournalDamaged(
                f"{self.path} has a command at position {frame.number} that this version does not know ({error});"
                " start the version that wrote it."
            ) from error

    def cut(self, folder: Path, disk: Disk) -> bool:
        """After the last batch of the last file: move a torn frame to a file in `folder`; return whether there was one.

        The cut is not synced yet.
        """
        rest = self.data[self.end.at :]
        if rest == bytes(len(rest)):
            return False
        if (frame := frames.find(self.data, self.end.at, self._seed)) is not None:
            raise JournalDamaged(
                f"{self.path} is damaged at byte {self.end.at}, before position {frame.number}; restore it from a copy."
            )
        torn = rest.rstrip(b"\0")
        kept = self._unused_name(folder, disk)
        copy = disk.create(kept)
        copy.write([torn], 0)
        copy.sync()
        copy.close()
        self.file.write([bytes(len(torn))], self.end.at)
        log.warning("cut %d torn bytes before position %d; kept in %s", len(torn), self.end.next_position, kept)
        return True

    def _unused_name(self, folder: Path, disk: Disk) -> Path:
        # The same position may be torn again, and a crash may have left half a copy behind.
        taken = disk.names(folder)
        names = (f"{self.end.next_position:020d}-{number}.torn" for number in count())
        return folder / next(name for name in names if name not in taken)
