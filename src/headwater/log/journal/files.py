"""Segment files of the journal: a header that names journal and first position, then frames, then zeros.

Only the last segment may end in a torn frame: what was being written when the power went. Torn means that no whole
frame follows; it is cut, and what was cut is kept aside. A bad frame anywhere else means that acknowledged history is
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
from headwater.streams import commands
from headwater.streams.commands import Batch

VERSION = 1
SUFFIX = ".journal"
FIRST_FRAME = 256
"""Where the first batch of a segment begins; its header frame lies before."""
WHOLE = 1 << 40
"""More than any segment holds: read all of it."""

_NAME = re.compile(r"[0-9]{20}\.journal")

log = logging.getLogger(__name__)


class JournalDamaged(Exception):
    """Acknowledged history cannot be read back; the message says where."""


class SegmentHeader(msgspec.Struct, frozen=True, array_like=True):
    version: int
    log_id: str
    first_position: int


class SegmentEnd(NamedTuple):
    """Where a segment's whole frames end: the next position, and the byte at which its frame belongs."""

    next_position: int
    at: int


def name_of(first_position: int) -> str:
    return f"{first_position:020d}{SUFFIX}"


def first_position_of(name: str) -> int:
    return int(name.removesuffix(SUFFIX))


def is_segment(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def write_header(file: File, log_id: str, seed: int, first_position: int) -> None:
    """Make a zero-filled file a segment."""
    header = msgspec.json.encode(SegmentHeader(VERSION, log_id, first_position))
    file.write(frames.encode(header, first_position, 0, seed), 0)
    file.sync()


class SegmentReader:
    """Reads one segment, batch by batch, and knows afterwards where it ended."""

    def __init__(self, disk: Disk, path: Path, log_id: str, seed: int) -> None:
        self.path = path
        self.file = disk.open(path)
        self._seed = seed
        self.data = self.file.read(0, WHOLE)
        self.end = SegmentEnd(self._first_position(log_id), FIRST_FRAME)

    def _first_position(self, log_id: str) -> int:
        frame = frames.decode(self.data, 0, self._seed)
        header = None if frame is None else msgspec.json.decode(frame.payload, type=SegmentHeader)
        if header is None or header.log_id != log_id or header.first_position != first_position_of(self.path.name):
            raise JournalDamaged(
                f"{self.path} does not begin with a header of journal {log_id}; restore it from a copy."
            )
        if header.version != VERSION:
            raise JournalDamaged(f"{self.path} has format {header.version}; this server reads format {VERSION}.")
        return header.first_position

    def batches(self) -> Iterator[tuple[Batch, int]]:
        """Every whole batch with the size of its record, in order; `end` moves along."""
        while (frame := frames.decode(self.data, self.end.at, self._seed)) is not None:
            if frame.number != self.end.next_position:
                raise JournalDamaged(
                    f"{self.path} holds position {frame.number} where {self.end.next_position} belongs; restore a copy."
                )
            self.end = SegmentEnd(frame.number + frame.entries, frame.end)
            yield self._decode(frame), len(frame.payload)

    def _decode(self, frame: frames.Frame) -> Batch:
        try:
            return commands.decode(frame.payload, frame.number)
        except ValueError as error:
            raise JournalDamaged(
                f"{self.path} holds a command at position {frame.number} that this server does not know ({error}); "
                "start the version that wrote it."
            ) from error

    def cut(self, aside: Path, disk: Disk) -> bool:
        """After the last batch of the last segment: cut what is torn, keep it in `aside`; say whether anything was.

        The cut is not synced yet.
        """
        rest = self.data[self.end.at :]
        if rest == bytes(len(rest)):
            return False
        if (frame := frames.find(self.data, self.end.at, self._seed)) is not None:
            raise JournalDamaged(
                f"{self.path} is damaged at byte {self.end.at}, before position {frame.number}; restore a copy."
            )
        torn = rest.rstrip(b"\0")
        kept = self._unused_name(aside, disk)
        copy = disk.create(kept)
        copy.write([torn], 0)
        copy.sync()
        copy.close()
        self.file.write([bytes(len(torn))], self.end.at)
        log.warning("cut %d torn bytes before position %d; kept in %s", len(torn), self.end.next_position, kept)
        return True

    def _unused_name(self, aside: Path, disk: Disk) -> Path:
        # The same position may be torn again, and a crash may have left half a copy behind.
        taken = disk.names(aside)
        names = (f"{self.end.next_position:020d}-{number}.torn" for number in count())
        return aside / next(name for name in names if name not in taken)
