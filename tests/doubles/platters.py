"""The contents of a `FaultyDisk`: bytes and names, as the running system sees them and as a power loss leaves them."""

from itertools import pairwise
from pathlib import Path
from random import Random
from typing import NamedTuple

SECTOR_BYTES = 512
"""The unit that a disk writes completely or not at all."""


class _Write(NamedTuple):
    at: int
    data: bytes


class Content:
    """The bytes of one file."""

    def __init__(self) -> None:
        self.data = bytearray()
        """As the running system sees them."""
        self._safe = bytearray()
        self._pending: list[_Write] = []
        self._doubtful: list[_Write] = []
        """Writes whose sync failed: no later sync makes them durable."""

    def write(self, at: int, data: bytes) -> None:
        if data:
            _put(self.data, at, data)
            self._pending.append(_Write(at, data))

    def sync(self) -> None:
        for at, data in self._pending:
            _put(self._safe, at, data)
        self._pending.clear()

    def forget_pending(self) -> None:
        """Discard the writes whose sync failed."""
        self._doubtful += self._pending
        self._pending.clear()

    def survive(self, random: Random) -> None:
        """Lose power: synced writes stay; every other one stays, is lost, or stays in some of its sectors."""
        for at, data in (*self._doubtful, *self._pending):
            odds = random.choice((0.0, 0.5, 1.0))
            for begin, end in _sectors(at, at + len(data)):
                if random.random() < odds:
                    _put(self._safe, begin, data[begin - at : end - at])
        self._pending.clear()
        self._doubtful.clear()
        self.data = bytearray(self._safe)

    def flip(self, bit: int) -> None:
        for data in (self.data, self._safe):
            data[bit // 8] ^= 1 << bit % 8


def _put(data: bytearray, at: int, new: bytes) -> None:
    data.extend(bytes(max(at - len(data), 0)))
    data[at : at + len(new)] = new


def _sectors(begin: int, end: int) -> list[tuple[int, int]]:
    """The range, cut at the ends of sectors."""
    cuts = [begin, *range(begin - begin % SECTOR_BYTES + SECTOR_BYTES, end, SECTOR_BYTES), end]
    return list(pairwise(cuts))


class _Change(NamedTuple):
    """A change of names whose directory has not been synced yet."""

    removed: Path | None
    added: Path | None
    content: Content | None


class Names:
    """The names of files and directories. A rename survives a power loss completely or not at all."""

    def __init__(self) -> None:
        self._now: dict[Path, Content | None] = {Path("/"): None}
        self._safe = dict(self._now)
        self._pending: dict[Path, list[_Change]] = {}

    @property
    def files(self) -> dict[Path, Content]:
        return {path: content for path, content in self._now.items() if content is not None}

    def find(self, path: Path) -> Content:
        content = self._now.get(path)
        if content is None:
            raise FileNotFoundError(f"there is no file {path}")
        return content

    def path_of(self, content: Content) -> Path | None:
        """The current path of a file; None if it was removed."""
        return next((path for path, other in self._now.items() if other is content), None)

    def is_directory(self, path: Path) -> bool:
        return path in self._now and self._now[path] is None

    def listed(self, directory: Path) -> list[str]:
        return sorted(path.name for path in self._now if path.parent == directory and path != directory)

    def link(self, path: Path, content: Content) -> None:
        if path in self._now:
            raise FileExistsError(f"file {path} already exists")
        if not self.is_directory(path.parent):
            raise FileNotFoundError(f"there is no directory {path.parent}")
        self._change(path.parent, _Change(None, path, content))

    def make_directory(self, path: Path) -> None:
        self._change(path.parent, _Change(None, path, None))

    def rename(self, old: Path, new: Path) -> None:
        self._change(new.parent, _Change(old, new, self.find(old)))

    def unlink(self, path: Path) -> None:
        self.find(path)
        self._change(path.parent, _Change(path, None, None))

    def sync(self, directory: Path) -> None:
        for change in self._pending.pop(directory, []):
            _carry_out(change, self._safe)

    def survive(self, random: Random) -> None:
        """Lose power: names in synced directories stay; every other change stays or is lost."""
        for changes in self._pending.values():
            for change in changes:
                if random.random() < 0.5:
                    _carry_out(change, self._safe)
        self._pending.clear()
        for path in sorted(self._safe):
            if path.parent not in self._safe:
                del self._safe[path]
        self._now = dict(self._safe)
        for content in self.files.values():
            content.survive(random)

    def _change(self, directory: Path, change: _Change) -> None:
        _carry_out(change, self._now)
        self._pending.setdefault(directory, []).append(change)


def _carry_out(change: _Change, names: dict[Path, Content | None]) -> None:
    if change.removed is not None:
        names.pop(change.removed, None)
    if change.added is not None:
        names[change.added] = change.content
