"""Snapshot blobs: large values that do not pass through the log.

A blob is written and synced first; then a command in the log refers to it. Its id begins with a deadline, after which
that command is refused: whatever no state refers to when the log's time is past the deadline can be deleted, whichever
process wrote it.
"""

import hashlib
import re
import secrets
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Protocol

from headwater.storage.disk import Disk, File

TEMPORARY = ".tmp"

_UPLOAD = re.compile(r"([0-9a-f]{14})-[0-9a-f]{32}")
_WITHOUT_DEADLINE = re.compile(r"[0-9a-f]{32}")
"""The ids of earlier versions, none of which can be in progress."""


class Blob(NamedTuple):
    """A durable blob."""

    id: str
    size: int
    digest: str
    deadline: int
    """When it can no longer be published, in microseconds since 1970."""


class BlobWriter(Protocol):
    """A blob that is being written, from one thread at a time."""

    def write(self, data: bytes) -> None: ...

    def finish(self) -> Blob:
        """Make the blob durable under its id."""

    def abandon(self) -> None:
        """Discard what was written."""


class BlobReader(Protocol):
    """A blob that is open for reading. If it is deleted meanwhile, it stays readable or its next read fails."""

    def read(self, at: int, size: int) -> bytes: ...

    def close(self) -> None: ...


class BlobStore(Protocol):
    """A store for blobs. Every call may block, and raises OSError if it fails."""

    def create(self, deadline: int) -> BlobWriter:
        """Begin a blob that must be published by a deadline, in microseconds since 1970."""

    def open(self, blob: str) -> BlobReader:
        """Open a blob for reading. FileNotFoundError if it does not exist."""

    def delete(self, blob: str) -> None:
        """Delete a blob. Idempotent."""

    def names(self) -> list[str]:
        """The names of all that is stored, finished or not; `upload_of` tells to which blob each belongs."""

    def remove(self, name: str) -> None:
        """Delete what has one of these names. Idempotent."""


def new_upload(deadline: int) -> str:
    """The beginning of a blob's id: unique, and with the deadline of its publication."""
    return f"{deadline:014x}-{secrets.token_hex(16)}"


def upload_of(name: str) -> str:
    """What the id of a blob and the names of all its parts begin with.

    >>> upload_of("0643b2d9c4a000-000102030405060708090a0b0c0d0e0f.tmp")
    '0643b2d9c4a000-000102030405060708090a0b0c0d0e0f'
    >>> upload_of("000102030405060708090a0b0c0d0e0f.tmp")
    '000102030405060708090a0b0c0d0e0f'
    """
    found = _UPLOAD.match(name)
    return found[0] if found else name.removesuffix(TEMPORARY)


def deadline_of(name: str) -> int | None:
    """The deadline of the blob that a name belongs to; None for a name that no blob has.

    >>> deadline_of("0643b2d9c4a000-000102030405060708090a0b0c0d0e0f.tmp")
    1763285297045504
    >>> deadline_of("000102030405060708090a0b0c0d0e0f"), deadline_of("notes.txt")
    (0, None)
    """
    found = _UPLOAD.match(name)
    if found is not None:
        return int(found[1], 16)
    return 0 if _WITHOUT_DEADLINE.fullmatch(upload_of(name)) else None


class MemoryBlobs:
    """Blobs in memory, which end with the process."""

    def __init__(self) -> None:
        self._blobs: dict[str, bytes] = {}

    def create(self, deadline: int) -> BlobWriter:
        return _MemoryWriter(self._blobs, deadline)

    def open(self, blob: str) -> BlobReader:
        if blob not in self._blobs:
            raise FileNotFoundError(blob)
        return _MemoryReader(self._blobs[blob])

    def delete(self, blob: str) -> None:
        self._blobs.pop(blob, None)

    remove = delete

    def names(self) -> list[str]:
        return sorted(self._blobs)


class _MemoryReader:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self, at: int, size: int) -> bytes:
        return self._data[at : at + size]

    def close(self) -> None:
        self._data = b""


class _MemoryWriter:
    def __init__(self, blobs: dict[str, bytes], deadline: int) -> None:
        self._blobs, self._deadline = blobs, deadline
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> None:
        self._parts.append(data)

    def finish(self) -> Blob:
        data = b"".join(self._parts)
        blob = Blob(new_upload(self._deadline), len(data), hashlib.sha256(data).hexdigest(), self._deadline)
        self._blobs[blob.id] = data
        return blob

    def abandon(self) -> None:
        self._parts.clear()


class FolderBlobs:
    """Blobs as files, named by their ids, in a folder that several processes may share."""

    def __init__(self, directory: Path, disk: Disk) -> None:
        self._directory, self._disk = directory, disk
        disk.names(directory)  # Creates it.

    def create(self, deadline: int) -> BlobWriter:
        return _FolderWriter(self._directory, self._disk, deadline)

    def open(self, blob: str) -> BlobReader:
        return self._disk.open(self._directory / blob)

    def delete(self, blob: str) -> None:
        with suppress(FileNotFoundError):
            self._disk.remove(self._directory / blob)

    remove = delete

    def names(self) -> list[str]:
        return self._disk.names(self._directory)


class _FolderWriter:
    def __init__(self, directory: Path, disk: Disk, deadline: int) -> None:
        self._id, self._deadline = new_upload(deadline), deadline
        self._disk, self._path = disk, directory / self._id
        self._temporary = self._path.with_suffix(TEMPORARY)
        self._file: File = disk.create(self._temporary)
        self._size = 0
        self._digest = hashlib.sha256()

    def write(self, data: bytes) -> None:
        self._file.write([data], self._size)
        self._size += len(data)
        self._digest.update(data)

    def finish(self) -> Blob:
        self._file.sync()
        self._file.close()
        self._disk.rename(self._temporary, self._path)
        return Blob(self._id, self._size, self._digest.hexdigest(), self._deadline)

    def abandon(self) -> None:
        self._file.close()
        self._disk.remove(self._temporary)
