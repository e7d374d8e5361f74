"""A `Disk` in memory for tests that loses power, fills up, fails and rots.

It does what `RealDisk` does, step by step: `create` links a name, writes zeros, syncs the file, syncs the directory.
After a power loss, everything that was not synced is kept, lost, or kept in part, sector by sector, at random. The
source of randomness is a parameter, so that a failure can be reproduced.

    >>> disk = FaultyDisk(Random(7))
    >>> disk.names(Path("/data"))
    []
    >>> file = disk.create(Path("/data/file"))
    >>> file.write([b"hello"], 0)
    >>> disk.lose_power()
    >>> disk.open(Path("/data/file")).read(0, 5)
    b''
"""

import errno
import os
from collections.abc import Callable, Sequence
from copy import deepcopy
from enum import Enum
from pathlib import Path
from random import Random
from threading import RLock
from typing import NamedTuple

from headwater.storage.disk import ZEROS

from .platters import Content, Names


class Step(Enum):
    """One step of a disk, at which it can fail or halt."""

    LINK = "link"
    ALLOCATE = "allocate"
    RENAME = "rename"
    UNLINK = "unlink"
    MAKE_DIRECTORY = "make directory"
    SYNC_DIRECTORY = "sync directory"
    READ = "read"
    WRITE = "write"
    SYNC = "sync"


class Halted(OSError):
    """The machine or the process has halted; nothing reaches the disk."""


class _Fault(NamedTuple):
    step: Step
    error: int
    in_name: str


def _nothing() -> None:
    pass


class FaultyFile:
    """An open file on a `FaultyDisk`; unusable once the process that opened it has ended."""

    def __init__(self, disk: "FaultyDisk", path: Path, content: Content) -> None:
        self._disk, self._opened_as, self._content = disk, path, content
        self._life = disk.life
        self._closed = False

    def write(self, parts: Sequence[bytes], at: int) -> None:
        data = b"".join(parts)
        self._step(Step.WRITE, lambda: self._write(data, at), lambda: self._write_some(data, at))

    def sync(self) -> None:
        # After a failed sync the kernel drops what it could not write, and a later sync succeeds without it.
        self._step(Step.SYNC, self._content.sync, self._content.forget_pending)

    def write_synced(self, parts: Sequence[bytes], at: int) -> None:
        self.write(parts, at)
        self.sync()

    def read(self, at: int, size: int) -> bytes:
        self._step(Step.READ, _nothing, _nothing)
        return bytes(self._content.data[at : at + size])

    def close(self) -> None:
        self._closed = True

    def _step(self, step: Step, act: Callable[[], None], on_failure: Callable[[], None]) -> None:
        if self._closed:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), str(self._opened_as))
        path = self._disk.path_of(self._content) or self._opened_as
        self._disk.step(step, path, act, on_failure, self._life)

    def _write(self, data: bytes, at: int) -> None:
        room = self._disk.room_bytes(self._content, at)
        self._content.write(at, data[:room])
        if room < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._opened_as))

    def _write_some(self, data: bytes, at: int) -> None:
        self._write(data[: self._disk.random.randrange(len(data) + 1)], at)


class FaultyDisk:
    """A `Disk` whose faults a test decides."""

    def __init__(self, random: Random | None = None, capacity_bytes: int | None = None) -> None:
        self.capacity_bytes = capacity_bytes
        """The size of the disk; None for no limit. It may be changed at any time."""
        self.on_step: Callable[[Step, Path], None] = lambda step, path: None
        """Called before every step, to watch or to run other code in between."""
        self.life = 0
        self.halted = False
        self.random = random or Random(0)
        self._names = Names()
        self._faults: list[_Fault] = []
        self._steps_left: int | None = None
        self._halt_at: Callable[[Step, Path], bool] = lambda step, path: True
        self._lock = RLock()

    # -- The disk ------------------------------------------------------------------------------------------------

    def create(self, path: Path, size: int = 0) -> FaultyFile:
        content = Content()
        self.step(Step.LINK, path, lambda: self._link(path, content))
        file = FaultyFile(self, path, content)
        try:
            if size:
                self.step(Step.ALLOCATE, path, lambda: self._allocate(path, size))
            for at in range(0, size, len(ZEROS)):
                file.write([ZEROS[: size - at]], at)
            file.sync()
            self._sync_directory(path.parent)
        except Halted:
            raise
        except OSError:
            self._unlink(path)
            raise
        return file

    def open(self, path: Path) -> FaultyFile:
        self._check_running()
        return FaultyFile(self, path, self._names.find(path))

    def rename(self, old: Path, new: Path) -> None:
        self.step(Step.RENAME, old, lambda: self._names.rename(old, new))
        self._sync_directory(new.parent)

    def remove(self, path: Path) -> None:
        self._unlink(path)
        self._sync_directory(path.parent)

    def names(self, directory: Path) -> list[str]:
        self._make_directory(directory)
        self._sync_directory(directory)
        with self._lock:
            return self._names.listed(directory)

    def _link(self, path: Path, content: Content) -> None:
        if self.capacity_bytes is not None and self.used_bytes >= self.capacity_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        self._names.link(path, content)

    def _allocate(self, path: Path, size: int) -> None:
        if self.capacity_bytes is not None and self.capacity_bytes - self.used_bytes < size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    def _unlink(self, path: Path) -> None:
        self.step(Step.UNLINK, path, lambda: self._names.unlink(path))

    def _make_directory(self, directory: Path) -> None:
        if not self._names.is_directory(directory):
            self._make_directory(directory.parent)
            self.step(Step.MAKE_DIRECTORY, directory, lambda: self._names.make_directory(directory))
        self._sync_directory(directory.parent)

    def _sync_directory(self, directory: Path) -> None:
        self.step(Step.SYNC_DIRECTORY, directory, lambda: self._names.sync(directory))

    # -- Steps ---------------------------------------------------------------------------------------------------

    def step(
        self,
        step: Step,
        path: Path,
        act: Callable[[], None],
        on_failure: Callable[[], None] = _nothing,
        life: int | None = None,
    ) -> None:
        """Do one step, for a file opened in `life`; `on_failure` does what remains of a step that fails."""
        self.on_step(step, path)
        with self._lock:
            self._check_running(life)
            fault = next((fault for fault in self._faults if fault.step is step and fault.in_name in path.name), None)
            if fault is not None:
                self._faults.remove(fault)
                on_failure()
                raise OSError(fault.error, os.strerror(fault.error), str(path))
            if self._halts_now(step, path):
                self._halt(step, path, act, on_failure)
            act()

    def _check_running(self, life: int | None = None) -> None:
        if self.halted or (life is not None and life != self.life):
            raise Halted(errno.EIO, "the machine has halted")

    def _halts_now(self, step: Step, path: Path) -> bool:
        if self._steps_left is None or step is Step.READ or not self._halt_at(step, path):
            return False
        self._steps_left -= 1
        return self._steps_left <= 0

    def _halt(self, step: Step, path: Path, act: Callable[[], None], on_failure: Callable[[], None]) -> None:
        self.halted = True
        if step is Step.WRITE:
            on_failure()
        elif step not in (Step.SYNC, Step.SYNC_DIRECTORY) and self.random.random() < 0.5:
            act()
        raise Halted(errno.EIO, f"the machine halts at a {step.value} of {path.name}")

    # -- Faults --------------------------------------------------------------------------------------------------

    def halt_in(self, steps: int, at: Callable[[Step, Path], bool] = lambda step, path: True) -> None:
        """Halt in the middle of the step that is `steps` away, counting only those that `at` accepts.

        Nothing reaches the disk after that, until `lose_power` or `kill_process` begins another life.
        """
        self._steps_left, self._halt_at = steps, at

    def lose_power(self) -> None:
        """Keep what was synced and, of every other write, all, nothing or some sectors; then the power returns."""
        with self._lock:
            self._names.survive(self.random)
            self._begin_life()

    def kill_process(self) -> None:
        """End the process that has files open here; the system keeps everything it wrote."""
        with self._lock:
            self._begin_life()

    def _begin_life(self) -> None:
        self.life += 1
        self.halted, self._steps_left = False, None
        self._faults.clear()

    def fail_next(self, step: Step, error: int = errno.EIO, in_name: str = "") -> None:
        """Make the next such step fail on a file whose name contains `in_name`."""
        self._faults.append(_Fault(step, error, in_name))

    def flip_bit(self, path: Path, bit: int) -> None:
        """Flip one bit of a file, counted from its beginning."""
        self._names.find(path).flip(bit)

    # -- Inspecting ----------------------------------------------------------------------------------------------

    @property
    def used_bytes(self) -> int:
        with self._lock:
            return sum(len(content.data) for content in self._names.files.values())

    def path_of(self, content: Content) -> Path | None:
        """The current path of a file; None if it was removed."""
        with self._lock:
            return self._names.path_of(content)

    def room_bytes(self, content: Content, at: int) -> int:
        """How many bytes can be written to a file at a place."""
        if self.capacity_bytes is None:
            return 1 << 62
        return max(len(content.data) - at, 0) + max(self.capacity_bytes - self.used_bytes, 0)

    def paths(self) -> list[Path]:
        """Every file, sorted."""
        with self._lock:
            return sorted(self._names.files)

    def read(self, path: Path) -> bytes:
        """The contents of a file."""
        return bytes(self._names.find(path).data)

    def copy(self, random: Random) -> "FaultyDisk":
        """Another disk with the same contents and its own faults."""
        twin = FaultyDisk(random, self.capacity_bytes)
        twin._names = deepcopy(self._names)
        return twin
