"""Objects as files in a folder, under names that are their keys."""

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from headwater.storage.store import Item, KeyMissing, StoreFailed, check_key, check_same, walk, whole

UPLOADS = ".uploads"
"""Where files are written before they get the name of an object; no key begins with a dot."""
READ_BYTES_MAX = 16 * 1024 * 1024
"""What one system call is asked for: room for all of it is allocated before a byte is read."""


class FolderStore:
    """A store in a folder, which any number of processes may share; it is made when the first object is."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()
        self._uploads = self._folder / UPLOADS
        self._remove_leftovers()

    @property
    def url(self) -> str:
        return self._folder.as_uri()

    def create(self, key: str, data: bytes) -> None:
        path = self._path(key)
        with self._failing("create", key), self._upload(data) as upload:
            _make_directory(path.parent)
            created = _link(upload, path)
            # Also if it was there: who made it may not have lived to do this.
            _sync_directory(path.parent)
        if not created:
            check_same(self, key, data)

    def read(self, key: str, start: int = 0, size: int | None = None) -> bytes:
        path = self._path(key)
        with self._failing("read", key):
            try:
                fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except (FileNotFoundError, NotADirectoryError):
                raise KeyMissing(f"There is no object {key} in {self.url}.") from None
            try:
                wanted = max(os.fstat(fd).st_size - start, 0) if size is None else size
                return whole(key, _read(fd, start, wanted), wanted)
            finally:
                os.close(fd)

    def delete(self, key: str) -> None:
        path = self._path(key)
        with self._failing("delete", key), suppress(FileNotFoundError, NotADirectoryError):
            path.unlink()
            _sync_directory(path.parent)

    def items(self, prefix: str) -> Iterator[Item]:
        return walk(self._list, prefix)

    def _list(self, folder: str) -> tuple[list[Item], list[str]]:
        items, folders = [], []
        with self._failing("list", folder):
            for entry in _entries(self._folder / folder):
                if entry.is_dir():
                    folders.append(f"{folder}{entry.name}/")
                    continue
                # It may be deleted while we look.
                with suppress(FileNotFoundError):
                    items.append(Item(folder + entry.name, entry.stat().st_size))
        return items, folders

    def _path(self, key: str) -> Path:
        check_key(key)
        return self._folder / key

    @contextmanager
    def _failing(self, verb: str, key: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreFailed(f"The folder {self.url} did not {verb} {key or 'its objects'}: {error}.") from error

    @contextmanager
    def _upload(self, data: bytes) -> Iterator[Path]:
        """A durable file with these bytes and a name for now."""
        if not self._uploads.is_dir():
            _make_directory(self._uploads)
        path = self._uploads / secrets.token_hex(16)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            # Says that somebody is at work on it; a lock goes with its process.
            fcntl.flock(fd, fcntl.LOCK_EX)
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(fd, rest) :]
            os.fsync(fd)
            yield path
        finally:
            path.unlink(missing_ok=True)
            os.close(fd)

    def _remove_leftovers(self) -> None:
        """Remove what processes that were killed have left; somebody who may not is welcome to read."""
        with suppress(OSError):
            for path in self._uploads.iterdir():
                with suppress(OSError), path.open("rb") as file:
                    # If its writer lives and has not locked it yet, that one create fails, to be tried again.
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    path.unlink()


def _link(old: Path, new: Path) -> bool:
    """Give a file a second name, unless that is taken: a rename would replace what another process put there."""
    try:
        os.link(old, new)
    except FileExistsError:
        return False
    return True


def _entries(directory: Path) -> list[os.DirEntry[str]]:
    """What is in a directory, save what is hidden; nothing if there is no such directory."""
    try:
        with os.scandir(directory) as entries:
            return [entry for entry in entries if not entry.name.startswith(".")]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _read(fd: int, start: int, size: int) -> bytes:
    parts = []
    while size > 0 and (part := os.pread(fd, min(size, READ_BYTES_MAX), start)):
        parts.append(part)
        start += len(part)
        size -= len(part)
    return b"".join(parts)


def _make_directory(directory: Path) -> None:
    """Make a directory, and those above it, where they are missing; durable when it returns, whoever made it."""
    if not directory.is_dir():
        _make_directory(directory.parent)
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
