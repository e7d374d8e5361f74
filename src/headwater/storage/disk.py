"""The disk under the journal and the images: a seam small enough that tests can replace it with a faulty disk.

A server that has used up its file descriptors cannot open files, but must be able to rename, remove and sync those that
it has: directories stay open for that.
"""

import errno
import os
import weakref
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Protocol

ZEROS = bytes(1 << 20)
READ_BYTES_MAX = 16 * 1024 * 1024
"""The most that one system call reads: Python allocates a buffer of the requested size before it reads a byte."""


DIRECTORIES_MAX = 64
"""How many directories one user of a disk keeps open; more than a server has, fewer than a table has partitions."""
NO_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})
"""Errors that mean that the process, or the machine, has too many files open; space is not the problem."""
NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
NO_ALLOCATION = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})
"""Errors of a file system that cannot reserve space before it is written."""
NO_SYNCED_WRITES = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})
"""Errors of a system that cannot write and sync at once; it has written nothing then."""
_WRITE_SYNCED: int = getattr(os, "RWF_DSYNC", 0)
"""How `pwritev` is asked to do both; 0 where Python does not know it."""


class File(Protocol):
    """An open file, written and read at positions."""

    def write(self, parts: Sequence[bytes], at: int) -> None:
        """Write all parts in order, or raise."""

    def sync(self) -> None:
        """Return once everything written so far survives a loss of power."""

    def write_synced(self, parts: Sequence[bytes], at: int) -> None:
        """Write all parts in order, and return once they survive a loss of power; or raise."""

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
        self._can_write_synced = _WRITE_SYNCED != 0

    def write(self, parts: Sequence[bytes], at: int) -> None:
        total = sum(map(len, parts))
        written = os.pwritev(self._fd, parts, at)
        while written < total:
            rest = b"".join(parts)[written:]
            written += os.pwrite(self._fd, rest, at + written)

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def write_synced(self, parts: Sequence[bytes], at: int) -> None:
        # One system call instead of two, where the system has it; a short write is written again as a whole.
        if not (self._can_write_synced and self._has_written_synced(parts, at)):
            self.write(parts, at)
            self.sync()

    def _has_written_synced(self, parts: Sequence[bytes], at: int) -> bool:
        try:
            return os.pwritev(self._fd, parts, at, _WRITE_SYNCED) == sum(map(len, parts))
        except OSError as error:
            if error.errno not in NO_SYNCED_WRITES:
                raise
            self._can_write_synced = False
            return False

    def read(self, at: int, size: int) -> bytes:
        return read_at(self._fd, at, size)

    def close(self) -> None:
        # Once only: the descriptor's number may belong to another file by the second call.
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class Directories:
    """Directories that stay open, so that syncing their names needs no new descriptor."""

    def __init__(self) -> None:
        self._fds: dict[Path, int] = {}
        self._lock = Lock()
        weakref.finalize(self, _close_all, self._fds)

    def sync(self, directory: Path) -> None:
        """Make the names in a directory durable."""
        fd = self._fd(directory)
        if fd is None:
            sync_directory(directory)
        else:
            os.fsync(fd)

    def make(self, directory: Path) -> None:
        """Create a directory and its missing parents. All are durable on return, those that already existed too."""
        if not directory.is_dir():
            self.make(directory.parent)
            directory.mkdir(exist_ok=True)
        # We did not create anything inside a directory that we may not open.
        with suppress(PermissionError):
            self.sync(directory.parent)

    def _fd(self, directory: Path) -> int | None:
        with self._lock:
            fd = self._fds.get(directory)
            # The directory may have been replaced by another of the same name.
            if fd is not None and not os.path.samestat(os.fstat(fd), os.stat(directory)):
                os.close(self._fds.pop(directory))
                fd = None
            if fd is None and len(self._fds) < DIRECTORIES_MAX:
                fd = self._fds[directory] = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            return fd


def _close_all(fds: dict[Path, int]) -> None:
    for fd in fds.values():
        os.close(fd)


class RealDisk:
    """The operating system's file system. Directories are synced whenever their names change."""

    def __init__(self) -> None:
        self._directories = Directories()

    def create(self, path: Path, size: int = 0) -> File:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        file = RealFile(fd)
        try:
            if size:
                allocate(fd, size)
            # Zeros, not holes: syncing blocks that exist changes no metadata, which makes it several times faster.
            for at in range(0, size, len(ZEROS)):
                file.write([ZEROS[: size - at]], at)
            os.fsync(fd)
            self._directories.sync(path.parent)
        except OSError:
            file.close()
            path.unlink(missing_ok=True)
            raise
        return file

    def open(self, path: Path) -> File:
        return RealFile(os.open(path, os.O_RDWR | os.O_CLOEXEC))

    def rename(self, old: Path, new: Path) -> None:
        old.rename(new)
        self._directories.sync(new.parent)

    def remove(self, path: Path) -> None:
        path.unlink()
        self._directories.sync(path.parent)

    def names(self, directory: Path) -> list[str]:
        self._directories.make(directory)
        # A process that was killed may have changed names without syncing them.
        self._directories.sync(directory)
        return sorted(os.listdir(directory))


def shortage_of(error: OSError) -> str:
    """Why a file could not be made or written, and what to do, as one sentence for a client."""
    if error.errno in NO_DESCRIPTORS:
        return "The server has too many files and connections open; close some or raise its limit, then try again."
    if error.errno in NO_SPACE:
        return "The disk is full; free space or delete streams, then try again."
    if error.errno == errno.EREMOTEIO:
        return "The object store cannot be reached; try again in a second."
    return f"The disk cannot be written ({error.strerror or error}); check it, then try again."


def allocate(fd: int, size: int) -> None:
    """Reserve space for a file. If there is not enough, fail at once: filling the disk first would harm others."""
    disk = os.fstatvfs(fd)
    if disk.f_blocks and disk.f_bavail * disk.f_frsize < size:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    try:
        os.posix_fallocate(fd, 0, size)
    except OSError as error:
        if error.errno not in NO_ALLOCATION:
            raise


def make_directory(directory: Path) -> None:
    """Create a directory and its missing parents. All are durable on return, those that already existed too."""
    Directories().make(directory)


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
