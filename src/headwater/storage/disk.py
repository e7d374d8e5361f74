"""The disk under the journal and the images: a seam so small that a faulty one can stand in for it."""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

ZEROS = bytes(1 << 20)
READ_BYTES_MAX = 16 * 1024 * 1024
"""What one system call is asked for: room for all of it is allocated before a byte is read."""


class File(Protocol):
    """An open file, written and read at positions."""

    def write(self, parts: Sequence[bytes], at: int) -> None:
        """Write all parts, one behind the other, or raise."""

    def sync(self) -> None:
        """Return when everything written so far survives a loss of power."""

    def read(self, at: int, size: int) -> bytes:
        """At most `size` bytes; fewer only at the end of the file."""

    def close(self) -> None:
        """Let go of the file; closing it twice is no harm."""


class Disk(Protocol):
    """A directory tree; names are durable when a call returns."""

    def create(self, path: Path, size: int = 0) -> File:
        """A new file with `size` zero bytes, synced."""

    def open(self, path: Path) -> File: ...

    def rename(self, old: Path, new: Path) -> None: ...

    def remove(self, path: Path) -> None: ...

    def names(self, directory: Path) -> list[str]:
        """The names in a directory, sorted; a directory that is missing is made."""


class RealFile:
    """A file of the operating system."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def write(self, parts: Sequence[bytes], at: int) -> None:
        total = sum(map(len, parts))
        written = os.pwritev(self._fd, parts, at)
        while written < total:
            rest = b"".join(parts)[written:]
            written += os.pwrite(self._fd, rest, at + written)

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def read(self, at: int, size: int) -> bytes:
        parts = []
        while size > 0 and (part := os.pread(self._fd, min(size, READ_BYTES_MAX), at)):
            parts.append(part)
            at += len(part)
            size -= len(part)
        return b"".join(parts)

    def close(self) -> None:
        # Once only: by the second time the number may belong to somebody else's file.
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class RealDisk:
    """The operating system's file system; directories are synced whenever their names change."""

    def create(self, path: Path, size: int = 0) -> File:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        file = RealFile(fd)
        try:
            # Zeros, not holes: a sync of blocks that exist changes no metadata, which makes it several times faster.
            for at in range(0, size, len(ZEROS)):
                file.write([ZEROS[: size - at]], at)
            os.fsync(fd)
            _sync_directory(path.parent)
        except OSError:
            file.close()
            path.unlink(missing_ok=True)
            raise
        return file

    def open(self, path: Path) -> File:
        return RealFile(os.open(path, os.O_RDWR | os.O_CLOEXEC))

    def rename(self, old: Path, new: Path) -> None:
        old.rename(new)
        _sync_directory(new.parent)

    def remove(self, path: Path) -> None:
        path.unlink()
        _sync_directory(path.parent)

    def names(self, directory: Path) -> list[str]:
        make_directory(directory)
        # A process that was killed may have changed names and not lived to sync them.
        _sync_directory(directory)
        return sorted(os.listdir(directory))


def make_directory(directory: Path) -> None:
    """Make a directory, and those above it, where they are missing; durable when it returns, whoever made it."""
    if not directory.is_dir():
        make_directory(directory.parent)
        directory.mkdir(exist_ok=True)
    # What lies in a directory that we may not open was not made by us.
    with suppress(PermissionError):
        _sync_directory(directory.parent)


def _sync_directory(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
