"""Snapshot blobs: large values that do not pass through the log.

A blob is written and synced first; then a command in the log refers to it.
"""

import hashlib
import secrets
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Protocol

from headwater.storage.disk import Disk, File

TEMPORARY = ".tmp"


class Blob(NamedTuple):
    """A durable blob."""

    id: str
    size: int
    digest: str


class BlobWriter(Protocol):
    """A blob that is being written, from one thread at a time."""

    def write(self, data: bytes) -> None: ...

    def finish(self) -> Blob:
        """Make the blob durable under its id."""

    def abandon(self) -> None:
        """Discard what was written."""


class BlobReader(Protocol):
    """A blob that is open for reading. It stays readable until it is closed, even if it is deleted meanwhile."""

    def read(self, at: int, size: int) -> bytes: ...

    def close(self) -> None: ...


class BlobStore(Protocol):
    """A store for blobs. Every call may block."""

    def create(self) -> BlobWriter: ...

    def open(self, blob: str) -> BlobReader:
        """Open a blob for reading. FileNotFoundError if it does not exist."""

    def delete(self, blob: str) -> None:
        """Delete a blob. Idempotent."""

    def names(self) -> list[str]: ...


class MemoryBlobs:
    """Blobs in memory, which end with the process."""

    def __init__(self) -> None:
        self._blobs: dict[str, bytes] = {}

    def create(self) -> BlobWriter:
        return _MemoryWriter(self._blobs)

    def open(self, blob: str) -> BlobReader:
        if blob not in self._blobs:
            raise FileNotFoundError(blob)
        return _MemoryReader(self._blobs[blob])

    def delete(self, blob: str) -> None:
        self._blobs.pop(blob, None)

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
    def __init__(self, blobs: dict[str, bytes]) -> None:
        self._blobs = blobs
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> None:
        self._parts.append(data)

    def finish(self) -> Blob:
        data = b"".join(self._parts)
        blob = Blob(secrets.token_hex(16), len(data), hashlib.sha256(data).hexdigest())
        self._blobs[blob.id] = data
        return blob

    def abandon(self) -> None:
        self._parts.clear()


class FolderBlobs:
    """Blobs as files, named by their ids."""

    def __init__(self, directory: Path, disk: Disk, *, clears: bool = True) -> None:
        """Unless another process may be writing a blob, `clears` removes those that were left unfinished."""
        self._directory, self._disk = directory, disk
        for name in disk.names(directory):
            if clears and name.endswith(TEMPORARY):
                disk.remove(directory / name)

    def create(self) -> BlobWriter:
        return _FolderWriter(self._directory, self._disk)

    def open(self, blob: str) -> BlobReader:
        return self._disk.open(self._directory / blob)

    def delete(self, blob: str) -> None:
        with suppress(FileNotFoundError):
            self._disk.remove(self._directory / blob)

    def names(self) -> list[str]:
        return [name for name in self._disk.names(self._directory) if not name.endswith(TEMPORARY)]


class _FolderWriter:
    def __init__(self, directory: Path, disk: Disk) -> None:
        self._id = secrets.token_hex(16)
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
        return Blob(self._id, self._size, self._digest.hexdigest())

    def abandon(self) -> None:
        self._file.close()
        self._disk.remove(self._temporary)
