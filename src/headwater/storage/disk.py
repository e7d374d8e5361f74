"""The disk under the journal and the images: a seam small enough that tests can replace it with a faulty disk."""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

ZEROS = bytes(1 << 20)
READ_BYTES_MAX = 16 * 1024 * 1024
"""The most that one system call reads: Python allocates a buffer of the requested size before it reads a byte."""


class File(Protocol):
    """An open file, written and read at positions."""

    def write(self, parts: Sequence[bytes], at: int) -> None:
        """Write all parts in order, or raise."""

    def sync(self) -> None:
        """Return once everything written so far survives a loss of power."""

    def read(self, at: int, size: int) -> bytes:
        """At most `size` bytes; fewer only at the end of the file."""

    def close(self) -> None:
        """Close the file. Idempotent."""


class Disk(Protocol):
    """A directory tree. When a call returns, its changes to names are durable."""

    def create(self, path: Path, size: int = 0) -> File:
        """Create a file of `size` zero bytes, synced."""

    def open(self, path: Path) -> File: ...

    def rename(self, old: Path, new: Path) -> None: ...

    def remove(self, path: Path) -> None: ...

    def names(self, directory: Path) -> list[str]:
        """The names in a directory, sorted. Creates the directory if it is missing."""


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
        return read_at(self._fd, at, size)

    def close(self) -> None:
        # Once only: the descriptor's number may belong to another file by the second call.
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class RealDisk:
    """The operating system's file system. Directories are synced whenever their names change."""

    def create(self, path: Path, size: int = 0) -> File:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        file = RealFile(fd)
        try:
            # Zeros, not holes: syncing blocks that exist changes no metadata, which makes it several times faster.
            for at in range(0, size, len(ZEROS)):
                file.write([ZEROS[: size - at]], at)
            os.fsync(fd)
            sync_directory(path.parent)
        except OSError:
            file.close()
            path.unlink(missing_ok=True)
            raise
        return file

    def open(self, path: Path) -> File:
        return RealFile(os.open(path, os.O_RDWR | os.O_CLOEXEC))

    def rename(self, old: Path, new: Path) -> None:
        old.rename(new)
        sync_directory(new.parent)

    def remove(self, path: Path) -> None:
        path.unlink()
        sync_directory(path.parent)

    def names(self, directory: Path) -> list[str]:
        make_directory(directory)
        # A process that was killed may have changed names without syncing them.
        sync_directory(directory)
        return sorted(os.listdir(directory))


def make_directory(directory: Path) -> None:
    """Create a directory and its missing parents. All are durable on return, including those that already existed."""
    if not directory.is_dir():
        make_directory(directory.parent)
        directory.mkdir(exist_ok=True)
    # We did not create anything inside a directory that we may not open.
    with suppress(PermissionError):
        sync_directory(directory.parent)


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def read_at(fd: int, at: int, size: int) -> bytes:
    """Read at most `size` bytes from a position; fewer only at the end of the file."""
    parts = []
    while size > 0 and (part := os.pread(fd, min(size, READ_BYTES_MAX), at)):
        parts.append(part)
        at += len(part)
        size -= len(part)
    return b"".join(parts)
