"""The contract of every `Disk`, and the system calls that each makes."""

import errno
import gc
import os
import resource
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from headwater.storage import disk as disk_module
from headwater.storage.disk import NO_SYNCED_WRITES, Disk, RealDisk

from ..doubles.faulty_disk import FaultyDisk, Step

Place = tuple[Disk, Path]


@pytest.fixture(params=["real", "faulty"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A disk, and a directory on it that exists."""
    disk: Disk = RealDisk() if request.param == "real" else FaultyDisk()
    directory = tmp_path / "place" if request.param == "real" else Path("/place")
    disk.names(directory)
    return disk, directory


def test_a_new_file_is_full_of_zeros(place: Place) -> None:
    disk, directory = place
    assert disk.create(directory / "file", 1000).read(0, 2000) == bytes(1000)


def test_a_new_file_may_be_larger_than_one_write_of_zeros(place: Place) -> None:
    disk, directory = place
    size = len(disk_module.ZEROS) + 17
    assert disk.create(directory / "file", size).read(0, size + 1) == bytes(size)


def test_what_was_written_is_read_back_in_order(place: Place) -> None:
    disk, directory = place
    file = disk.create(directory / "file", 10)
    file.write([b"ab", b"", b"cde"], 3)
    assert file.read(0, 100) == b"\0\0\0abcde\0\0"
    assert file.read(4, 2) == b"bc"
    assert file.read(10, 5) == b""


def test_a_write_past_the_end_makes_the_file_longer(place: Place) -> None:
    disk, directory = place
    file = disk.create(directory / "file", 2)
    file.write([b"end"], 5)
    assert file.read(0, 100) == b"\0\0\0\0\0end"


def test_a_read_of_more_than_the_file_holds_ends_with_the_file(place: Place) -> None:
    disk, directory = place
    assert disk.create(directory / "file", 3).read(0, 1 << 40) == bytes(3)


def test_an_opened_file_holds_what_was_written_before(place: Place) -> None:
    disk, directory = place
    file = disk.create(directory / "file")
    file.write([b"kept"], 0)
    file.sync()
    file.close()
    again = disk.open(directory / "file")
    assert again.read(0, 9) == b"kept"
    again.write([b"also"], 4)
    assert again.read(0, 9) == b"keptalso"


def test_a_file_may_be_closed_twice_and_not_used_after(place: Place) -> None:
    disk, directory = place
    file = disk.create(directory / "file")
    other = disk.create(directory / "other")
    file.close()
    file.close()
    other.write([b"unharmed"], 0)
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.read(0, 1)


def test_names_are_sorted_and_a_missing_directory_is_created(place: Place) -> None:
    disk, directory = place
    assert disk.names(directory / "deep" / "deeper") == []
    disk.create(directory / "b")
    disk.create(directory / "a")
    assert disk.names(directory) == ["a", "b", "deep"]


def test_a_name_cannot_be_created_twice(place: Place) -> None:
    disk, directory = place
    disk.create(directory / "file")
    with pytest.raises(FileExistsError):
        disk.create(directory / "file")


def test_a_renamed_file_has_its_new_name_only(place: Place) -> None:
    disk, directory = place
    file = disk.create(directory / "old")
    disk.rename(directory / "old", directory / "new")
    file.write([b"still open"], 0)
    assert disk.names(directory) == ["new"]
    assert disk.open(directory / "new").read(0, 99) == b"still open"


def test_a_file_renamed_over_another_takes_its_place(place: Place) -> None:
    disk, directory = place
    disk.create(directory / "old", 1)
    disk.create(directory / "new", 2)
    disk.rename(directory / "old", directory / "new")
    assert disk.names(directory) == ["new"]
    assert disk.open(directory / "new").read(0, 9) == bytes(1)


def test_a_removed_file_is_gone(place: Place) -> None:
    disk, directory = place
    disk.create(directory / "file")
    disk.remove(directory / "file")
    assert disk.names(directory) == []
    for use in (disk.open, disk.remove):
        with pytest.raises(FileNotFoundError):
            use(directory / "file")


# -- System calls -------------------------------------------------------------------------------------------------


class Recorder:
    """Records the steps requested from the operating system."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps: list[Step] = []
        for name in ("open", "posix_fallocate", "pwrite", "pwritev", "fsync", "fdatasync"):
            monkeypatch.setattr(os, name, self._recording(name, getattr(os, name)))
        for name in ("rename", "unlink", "mkdir"):
            monkeypatch.setattr(Path, name, self._recording(name, getattr(Path, name)))

    def _recording(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def recorded(*arguments: Any, **options: Any) -> Any:
            self.steps += self._steps_of(name, arguments)
            return call(*arguments, **options)

        return recorded

    def _steps_of(self, name: str, arguments: tuple[Any, ...]) -> list[Step]:
        if name == "open":
            return [Step.LINK] if arguments[1] & os.O_CREAT else []
        if name == "posix_fallocate":
            return [Step.ALLOCATE]
        if name in ("fsync", "fdatasync"):
            is_directory = stat.S_ISDIR(os.fstat(arguments[0]).st_mode)
            return [Step.SYNC_DIRECTORY if is_directory else Step.SYNC]
        steps = {"rename": Step.RENAME, "unlink": Step.UNLINK, "mkdir": Step.MAKE_DIRECTORY}
        return [steps.get(name, Step.WRITE)]


def use_all(disk: Disk, directory: Path) -> None:
    """Use every method of a disk."""
    disk.names(directory / "deep")
    disk.names(directory / "deep")
    file = disk.create(directory / "file", len(disk_module.ZEROS) + 1)
    file.write([b"a", b"b"], 0)
    file.sync()
    file.close()
    disk.rename(directory / "file", directory / "renamed")
    disk.remove(directory / "renamed")


def test_the_faulty_disk_takes_the_steps_of_the_real_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    faulty, faulty_steps = FaultyDisk(), list[Step]()
    faulty.names(Path("/place"))
    faulty.on_step = lambda step, _: faulty_steps.append(step)
    use_all(faulty, Path("/place"))
    with monkeypatch.context() as patched:
        recorder = Recorder(patched)
        use_all(RealDisk(), tmp_path)
    assert recorder.steps == faulty_steps
    assert recorder.steps.count(Step.SYNC_DIRECTORY) == 8, "every change of names is synced"


def test_a_short_write_is_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real_pwritev, real_pwrite = os.pwritev, os.pwrite
    monkeypatch.setattr(os, "pwritev", lambda fd, parts, at: real_pwritev(fd, [b"".join(parts)[:2]], at))
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: real_pwrite(fd, data[:3], at))
    file = RealDisk().create(tmp_path / "file", 11)
    assert file.read(0, 99) == bytes(11), "a journal file that is too short would run out of space later"
    file.write([b"abcd", b"efghi"], 1)
    assert file.read(0, 99) == b"\0abcdefghi\0"


def test_a_file_that_cannot_be_created_leaves_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, parts: list[bytes], at: int) -> int:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "pwritev", full)
    with pytest.raises(OSError, match="full"):
        RealDisk().create(tmp_path / "file", 1)
    assert RealDisk().names(tmp_path) == []


def test_a_read_never_allocates_much_more_than_the_file_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    real_pread = os.pread

    def pread(fd: int, size: int, at: int) -> bytes:
        sizes.append(size)
        return real_pread(fd, size, at)

    file = RealDisk().create(tmp_path / "file", 100)
    monkeypatch.setattr(os, "pread", pread)
    file.read(0, 1 << 40)
    assert max(sizes) == disk_module.READ_BYTES_MAX


# -- Space ----------------------------------------------------------------------------------------------------------


def test_a_file_that_does_not_fit_is_refused_before_a_byte_is_written(place: Place) -> None:
    disk, directory = place
    if isinstance(disk, FaultyDisk):
        disk.capacity_bytes = 1 << 20
    size = 1 << 60
    with pytest.raises(OSError, match="No space left"):
        disk.create(directory / "file", size)
    assert disk.names(directory) == []


def test_the_space_of_a_file_is_reserved_before_its_zeros_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(fd: int, start: int, size: int) -> None:
        assert os.fstat(fd).st_size == 0
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="full"):
        RealDisk().create(tmp_path / "file", 1 << 20)


def test_a_file_system_that_cannot_reserve_space_gets_zeros(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(fd: int, start: int, size: int) -> None:
        raise OSError(errno.EOPNOTSUPP, "not supported")

    monkeypatch.setattr(os, "posix_fallocate", unsupported)
    assert RealDisk().create(tmp_path / "file", 5000).read(0, 9000) == bytes(5000)


# -- Descriptors ----------------------------------------------------------------------------------------------------


@contextmanager
def no_descriptors() -> Iterator[None]:
    """Allow this process no more files than it has open."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_names_change_durably_without_a_descriptor_left(tmp_path: Path) -> None:
    disk = RealDisk()
    disk.names(tmp_path)
    file = disk.create(tmp_path / "spare", 100)
    disk.create(tmp_path / "old").close()
    with no_descriptors():
        with pytest.raises(OSError, match="Too many open files"):
            disk.create(tmp_path / "more")
        disk.rename(tmp_path / "spare", tmp_path / "next")
        disk.remove(tmp_path / "old")
        file.write([b"kept"], 0)
        file.sync()
    assert disk.names(tmp_path) == ["next"]


def test_a_directory_that_was_replaced_is_synced_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk, directory = RealDisk(), tmp_path / "place"
    disk.names(directory)
    directory.rename(tmp_path / "elsewhere")
    directory.mkdir()
    synced: list[int] = []
    real_fsync = os.fsync

    def fsync(fd: int) -> None:
        synced.append(os.fstat(fd).st_ino)
        real_fsync(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    disk.create(directory / "file")
    assert directory.stat().st_ino in synced


def test_directories_are_closed_with_their_disk(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for number in range(20):
        RealDisk().names(tmp_path / str(number))
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before


def test_only_so_many_directories_stay_open_and_all_are_synced(tmp_path: Path) -> None:
    disk = RealDisk()
    before = len(os.listdir("/proc/self/fd"))
    for number in range(disk_module.DIRECTORIES_MAX + 20):
        assert disk.names(tmp_path / str(number)) == []
    assert len(os.listdir("/proc/self/fd")) <= before + disk_module.DIRECTORIES_MAX


@pytest.mark.parametrize("error", sorted(NO_SYNCED_WRITES))
def test_a_system_that_cannot_write_and_sync_at_once_does_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    file, calls = RealDisk().create(tmp_path / "file", 64), list[str]()
    write, sync = os.pwritev, os.fdatasync

    def pwritev(fd: int, parts: Sequence[bytes], at: int, flags: int = 0) -> int:
        calls.append("synced write" if flags else "write")
        if flags:
            raise OSError(error, os.strerror(error))
        return write(fd, parts, at)

    def fdatasync(fd: int) -> None:
        calls.append("sync")
        sync(fd)

    monkeypatch.setattr(os, "pwritev", pwritev)
    monkeypatch.setattr(os, "fdatasync", fdatasync)
    for text in (b"one", b"two"):
        file.write_synced([text, b"!"], 8)
    assert calls == ["synced write", "write", "sync", "write", "sync"], "it is not tried again"
    assert file.read(8, 4) == b"two!"
    file.close()


def test_a_synced_write_that_was_cut_short_is_written_again_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, calls = RealDisk().create(tmp_path / "file", 64), list[str]()
    write, sync = os.pwritev, os.fdatasync

    def pwritev(fd: int, parts: Sequence[bytes], at: int, flags: int = 0) -> int:
        calls.append("synced write" if flags else "write")
        return write(fd, [parts[0][:2]] if flags else parts, at, flags)

    def fdatasync(fd: int) -> None:
        calls.append("sync")
        sync(fd)

    monkeypatch.setattr(os, "pwritev", pwritev)
    monkeypatch.setattr(os, "fdatasync", fdatasync)
    file.write_synced([b"whole", b"!"], 0)
    assert calls == ["synced write", "write", "sync"]
    assert file.read(0, 6) == b"whole!"
    file.close()


def test_a_failed_synced_write_is_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, calls = RealDisk().create(tmp_path / "file", 64), list[int]()

    def pwritev(fd: int, parts: Sequence[bytes], at: int, flags: int = 0) -> int:
        calls.append(flags)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "pwritev", pwritev)
    with pytest.raises(OSError, match="Input/output error"):
        file.write_synced([b"x"], 0)
    assert len(calls) == 1
    file.close()
