"""Image files: the pieces of a state as frames, then an end mark. The newest two are kept.

An image is written under a temporary name, synced and renamed, so a file under its final name is whole unless the disk
damaged it. A damaged one is skipped, with an error in the log, in favour of the older one.
"""

import logging
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from headwater.log import frames
from headwater.storage.disk import Disk, File

SUFFIX = ".image"
TEMPORARY = ".tmp"
DAMAGED = ".damaged"
KEPT = 2
END = b"end"

_NAME = re.compile(r"[0-9]{20}\.image")

log = logging.getLogger(__name__)


class ImageDamaged(Exception):
    """An image file does not hold what was written."""


class ImageWriter:
    """Writes one image, piece by piece."""

    def __init__(self, directory: Path, disk: Disk, log_id: str, position: int) -> None:
        self.position = position
        self.size_bytes = 0
        self._disk = disk
        self._path = directory / f"{position:020d}{SUFFIX}"
        self._temporary = self._path.with_suffix(TEMPORARY)
        self._seed = frames.seed("image", log_id, position)
        self._pieces = 0
        if self._temporary.name in disk.names(directory):
            disk.remove(self._temporary)
        self._file: File = disk.create(self._temporary)

    def write(self, pieces: Iterable[bytes]) -> None:
        """Append pieces."""
        parts = []
        size = 0
        for piece in pieces:
            parts += frames.encode(piece, self._pieces, 1, self._seed)
            size += frames.size(len(piece))
            self._pieces += 1
        self._file.write([b"".join(parts)], self.size_bytes)
        self.size_bytes += size

    def finish(self) -> None:
        """Write the end mark, sync, and give the image its final name."""
        self._file.write(frames.encode(END, self._pieces, 0, self._seed), self.size_bytes)
        self._file.sync()
        self._file.close()
        self._disk.rename(self._temporary, self._path)

    def abandon(self) -> None:
        """Remove the unfinished file."""
        self._file.close()
        self._disk.remove(self._temporary)


class ImageFiles:
    """The images in a directory, newest first."""

    def __init__(self, directory: Path, disk: Disk, log_id: str, *, clears: bool = True) -> None:
        """Unless another process may be writing an image, `clears` removes those that were left unfinished."""
        self._directory, self._disk, self._log_id = directory, disk, log_id
        for name in disk.names(directory):
            if clears and name.endswith(TEMPORARY):
                disk.remove(directory / name)

    def positions(self) -> list[int]:
        """The positions of all images, newest first."""
        names = self._disk.names(self._directory)
        return sorted((int(name.removesuffix(SUFFIX)) for name in names if _NAME.fullmatch(name)), reverse=True)

    def begin(self, position: int) -> ImageWriter:
        return ImageWriter(self._directory, self._disk, self._log_id, position)

    def read(self, position: int) -> Iterator[bytes]:
        """The pieces of an image, each checked; raises ImageDamaged at the first that is not what was written."""
        path = self._path(position)
        seed = frames.seed("image", self._log_id, position)
        file = self._disk.open(path)
        try:
            at, expected = 0, 0
            while True:
                frame = _read_frame(file, at, seed)
                if frame is None or frame.number != expected:
                    raise ImageDamaged(f"{path} is damaged at byte {at}.")
                if frame.entries == 0:
                    return
                yield frame.payload
                at, expected = frame.end, expected + 1
        finally:
            file.close()

    def drop_old(self) -> int:
        """Delete all but the newest two, and return the position up to which the log is no longer needed."""
        positions = self.positions()
        for position in positions[KEPT:]:
            self._disk.remove(self._path(position))
        return positions[KEPT - 1] if len(positions) >= KEPT else 0

    def set_aside(self, position: int) -> None:
        """Rename a damaged image, so that it does not count as one of the two that are kept."""
        path = self._path(position)
        self._disk.rename(path, path.with_suffix(DAMAGED))

    def _path(self, position: int) -> Path:
        return self._directory / f"{position:020d}{SUFFIX}"


def _read_frame(file: File, at: int, seed: int) -> frames.Frame | None:
    header = file.read(at, frames.HEADER.size)
    length = frames.payload_bytes(header, 0, seed)
    if length is None:
        return None
    frame = frames.decode(header + file.read(at + len(header), length), 0, seed)
    return None if frame is None else frame._replace(end=at + frame.end)
