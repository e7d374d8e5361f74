"""Images: the pieces of a state at one position, and the mark of the log there. The newest two are kept.

`Images` is the seam; `ImageFiles` keeps them in a directory, `ObjectImages` in an object store.

An image file holds the pieces as frames, then an end mark. It is written under a temporary name, synced and renamed, so
a file under its final name is whole unless the disk damaged it. A damaged one is skipped, with an error in the log, in
favour of the older one.
"""

import re
import secrets
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from headwater.log import frames
from headwater.storage.disk import Disk, File

SUFFIX = ".image"
TEMPORARY = ".tmp"
DAMAGED = ".damaged"
KEPT = 2
END = b"end"

_ENDS, _IS_PIECE, _IS_MARK = 0, 1, 2
"""The field `entries` of a frame in an image file: what the frame is."""

_NAME = re.compile(r"[0-9]{20}\.image")
_SET_ASIDE = re.compile(r"([0-9]{20})\.damaged")
_UNFINISHED = re.compile(r"([0-9]{20})-[0-9a-f]{16}\.tmp")


class ImageDamaged(Exception):
    """An image does not hold what was written."""


class ImageWriter(Protocol):
    """An image that is being written, from one thread at a time."""

    @property
    def position(self) -> int: ...

    @property
    def size_bytes(self) -> int:
        """How much has been written."""

    def write(self, pieces: Iterable[bytes]) -> None:
        """Append pieces."""

    def finish(self) -> None:
        """Make the image durable, and let it count."""

    def abandon(self) -> None:
        """Remove what was written, as far as that is safe; also after `finish` has failed."""


class Images(Protocol):
    """The images of one log. Every call may block."""

    def positions(self) -> list[int]:
        """The positions of all images, newest first."""

    def begin(self, position: int, mark: bytes) -> ImageWriter:
        """Begin an image of the state at a position, with the log's mark there."""

    def read(self, position: int) -> Iterator[bytes]:
        """The pieces of an image, each checked; raises ImageDamaged at the first that is not what was written."""

    def mark(self, position: int) -> bytes:
        """The mark of an image, checked like its pieces."""

    def drop_old(self, *, damaged: bool = False) -> int:
        """Delete all but the newest two, and return the position up to which the log is no longer needed.

        With `damaged`, those that were set aside and are older go, too.
        """

    def set_aside(self, position: int) -> None:
        """Have a damaged image no longer count as one of the two that are kept."""


class _FileWriter:
    """Writes one image file, piece by piece."""

    def __init__(self, directory: Path, disk: Disk, log_id: str, position: int, mark: bytes) -> None:
        self.position = position
        self.size_bytes = 0
        self._disk = disk
        self._path = directory / f"{position:020d}{SUFFIX}"
        # Another process that took over may be writing the same image.
        self._temporary = directory / f"{position:020d}-{secrets.token_hex(8)}{TEMPORARY}"
        self._seed = frames.seed("image", log_id, position)
        self._frames = 0
        self._file: File = disk.create(self._temporary)
        if mark:
            self._write([mark], _IS_MARK)

    def write(self, pieces: Iterable[bytes]) -> None:
        self._write(pieces, _IS_PIECE)

    def _write(self, payloads: Iterable[bytes], entries: int) -> None:
        parts = []
        size = 0
        for payload in payloads:
            parts += frames.encode(payload, self._frames, entries, self._seed)
            size += frames.size(len(payload))
            self._frames += 1
        self._file.write([b"".join(parts)], self.size_bytes)
        self.size_bytes += size

    def finish(self) -> None:
        """Write the end mark, sync, and give the image its final name."""
        self._file.write(frames.encode(END, self._frames, _ENDS, self._seed), self.size_bytes)
        self._file.sync()
        self._file.close()
        self._disk.rename(self._temporary, self._path)

    def abandon(self) -> None:
        """Remove the unfinished file."""
        self._file.close()
        self._disk.remove(self._temporary)


class ImageFiles:
    """The images in a directory.

    Only if no other process writes images there (it is not `shared`), unfinished files are known to be leftovers; if
    others do, they are when they are older than the images that are kept.
    """

    def __init__(self, directory: Path, disk: Disk, log_id: str, *, shared: bool = False) -> None:
        self._directory, self._disk, self._log_id, self._shared = directory, disk, log_id, shared
        self._remove_leftovers()

    def _remove_leftovers(self) -> None:
        for name in self._disk.names(self._directory):
            if name.endswith(TEMPORARY) and not self._shared:
                self._disk.remove(self._directory / name)

    def positions(self) -> list[int]:
        names = self._disk.names(self._directory)
        return sorted((int(name.removesuffix(SUFFIX)) for name in names if _NAME.fullmatch(name)), reverse=True)

    def begin(self, position: int, mark: bytes) -> ImageWriter:
        self._remove_leftovers()
        return _FileWriter(self._directory, self._disk, self._log_id, position, mark)

    def read(self, position: int) -> Iterator[bytes]:
        return (frame.payload for frame in self._frames(position) if frame.entries == _IS_PIECE)

    def mark(self, position: int) -> bytes:
        # A file without pieces has no frame but the end mark.
        first = next(self._frames(position), None)
        return first.payload if first is not None and first.entries == _IS_MARK else b""

    def _frames(self, position: int) -> Iterator[frames.Frame]:
        """All frames of a file but the end mark."""
        path = self._path(position)
        seed = frames.seed("image", self._log_id, position)
        file = self._disk.open(path)
        try:
            at, expected = 0, 0
            while True:
                frame = _read_frame(file, at, seed)
                if frame is None or frame.number != expected:
                    raise ImageDamaged(f"{path} is damaged at byte {at}.")
                if frame.entries == _ENDS:
                    return
                yield frame
                at, expected = frame.end, expected + 1
        finally:
            file.close()

    def drop_old(self, *, damaged: bool = False) -> int:
        positions = self.positions()
        if len(positions) < KEPT:
            return 0
        older = positions[KEPT - 1]
        for position in positions[KEPT:]:
            self._remove(self._path(position))
        for name in self._disk.names(self._directory):
            leftover = _UNFINISHED.fullmatch(name) or (_SET_ASIDE.fullmatch(name) if damaged else None)
            if leftover is not None and int(leftover[1]) < older:
                self._remove(self._directory / name)
        return older

    def _remove(self, path: Path) -> None:
        # Another process may have removed it.
        with suppress(FileNotFoundError):
            self._disk.remove(path)

    def set_aside(self, position: int) -> None:
        """Rename a damaged image."""
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
