"""Objects as files in a folder, named by their keys."""

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from headwater.storage.disk import Directories, read_at
from headwater.storage.store import Item, KeyMissing, KeyRule, StoreFailed, check_key, check_same, walk, whole

UPLOADS = ".uploads"
"""Where files are written before they are linked under their keys. No key begins with a dot."""


class FolderStore:
    """A `Store` and a `TableStore` in a folder that any number of processes may share.

    The folder is created with the first object. Its file system must support hard links and `flock`.
    """

    def __init__(self, folder: Path, check: KeyRule = check_key) -> None:
        self.folder = folder.absolute()
        self._check = check
        self._uploads = self.folder / UPLOADS
        self._directories = Directories()
        with suppress(StoreFailed):  # A process without that permission can still read.
            self.remove_leftovers()

    @property
    def url(self) -> str:
        return self.folder.as_uri()

    @property
    def location(self) -> str:
        return str(self.folder)

    def create(self, key: str, data: bytes) -> None:
        path = self._path(key)
        with self._failing("create", key), self._upload(data) as upload:
            self._directories.make(path.parent)
            created = _link(upload, path)
            # Even if it existed: the process that created it may have died before this sync.
            self._directories.sync(path.parent)
        if not created:
            check_same(self, key, data)

    def replace(self, key: str, data: bytes) -> None:
        path = self._path(key)
        with self._failing("replace", key), self._upload(data) as upload:
            self._directories.make(path.parent)
            upload.replace(path)
            self._directories.sync(path.parent)

    def read(self, key: str, start: int = 0, size: int | None = None) -> bytes:
        path = self._path(key)
        with self._failing("read", key):
            try:
                fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except (FileNotFoundError, NotADirectoryError):
                raise KeyMissing(f"There is no object {key} in {self.url}.") from None
            try:
                expected = max(os.fstat(fd).st_size - start, 0) if size is None else size
                return whole(key, read_at(fd, start, expected), expected)
            finally:
                os.close(fd)

    def delete(self, key: str) -> None:
        path = self._path(key)
        with self._failing("delete", key), suppress(FileNotFoundError, NotADirectoryError):
            path.unlink()
            self._directories.sync(path.parent)

    def move(self, key: str, to: str) -> None:
        source, target = self._path(key), self._path(to)
        with self._failing("move", key):
            self._directories.make(target.parent)
            try:
                source.rename(target)
            except FileNotFoundError:
                if not target.exists():
                    raise KeyMissing(f"Neither {key} nor {to} exists in {self.url}.") from None
            self._directories.sync(target.parent)

    def items(self, prefix: str) -> Iterator[Item]:
        return walk(self._list, prefix)

    def keys(self, folder: str) -> Iterator[str]:
        return (item.key for item in self.items(folder))

    def remove_leftovers(self) -> None:
        """Remove the uploads of processes that were killed."""
        with self._failing("remove", UPLOADS):
            for entry in _entries(self._uploads):
                # It may be in progress, or end meanwhile.
                with suppress(BlockingIOError, FileNotFoundError), open(entry.path, "rb") as file:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    os.unlink(entry.path)

    def _list(self, folder: str) -> tuple[list[Item], list[str]]:
        items, folders = [], []
        with self._failing("list", folder):
            for entry in _entries(self.folder / folder):
                if entry.is_dir():
                    folders.append(f"{folder}{entry.name}/")
                    continue
                # It may be deleted while the folder is listed.
                with suppress(FileNotFoundError):
                    items.append(Item(folder + entry.name, entry.stat().st_size))
        return items, folders

    def _path(self, key: str) -> Path:
        self._check(key)
        return self.folder / key

    @contextmanager
    def _failing(self, verb: str, key: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreFailed(f"The folder {self.url} did not {verb} {key or 'its objects'}: {error}.") from error

    @contextmanager
    def _upload(self, data: bytes) -> Iterator[Path]:
        """A durable file with these bytes and a temporary name."""
        if not self._uploads.is_dir():
            self._directories.make(self._uploads)
        path, fd = self._locked_file()
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(fd, rest) :]
            os.fsync(fd)
            yield path
        finally:
            path.unlink(missing_ok=True)
            os.close(fd)

    def _locked_file(self) -> tuple[Path, int]:
        """A new file whose lock shows that its writer is alive: the lock ends with the process."""
        while True:
            path = self._uploads / secrets.token_hex(16)
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
            fcntl.flock(fd, fcntl.LOCK_EX)
            if path.exists():
                return path, fd
            # Another process opened the folder before we had the lock and mistook the file for a leftover.
            os.close(fd)


def _link(old: Path, new: Path) -> bool:
    """Give a file a second name unless that name is taken. A rename would replace another process's object."""
    try:
        os.link(old, new)
    except FileExistsError:
        return False
    return True


def _entries(directory: Path) -> list[os.DirEntry[str]]:
    """The entries of a directory except hidden ones; none if the directory does not exist."""
    try:
        with os.scandir(directory) as entries:
            return [entry for entry in entries if not entry.name.startswith(".")]
    except (FileNotFoundError, NotADirectoryError):
        return []
