"""What the faulty disk may do to a program, and what it may not."""

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from .faulty_disk import FaultyDisk, Step


def survivors(seeds: int, prepare: Callable[[FaultyDisk], None]) -> set[tuple[tuple[str, bytes], ...]]:
    """What a disk may hold after a power loss: over many seeds, each outcome as names with contents."""
    found = set()
    for seed in range(seeds):
        disk = FaultyDisk(Random(seed))
        disk.names(Path("/d"))
        prepare(disk)
        disk.lose_power()
        found.add(tuple((path.name, disk.read(path)) for path in disk.paths()))
    return found


def test_an_unsynced_write_survives_whole_or_not_or_in_sectors() -> None:
    def prepare(disk: FaultyDisk) -> None:
        file = disk.create(Path("/d/f"), 1536)
        file.write([b"s" * 100], 0)
        file.sync()
        file.write([b"x" * 1000], 50)

    zeros, written = b"s" * 100 + bytes(1436), b"s" * 50 + b"x" * 1000 + bytes(486)
    cuts = [(0, 512), (512, 1024), (1024, 1536)]
    possible = {
        b"".join((written if kept >> index & 1 else zeros)[a:b] for index, (a, b) in enumerate(cuts))
        for kept in range(8)
    }
    assert survivors(200, prepare) == {(("f", data),) for data in possible}


def test_a_synced_write_survives() -> None:
    def prepare(disk: FaultyDisk) -> None:
        file = disk.create(Path("/d/f"))
        file.write([b"kept"], 0)
        file.sync()

    assert survivors(50, prepare) == {(("f", b"kept"),)}


def test_a_power_loss_inside_a_rename_leaves_one_of_both_names() -> None:
    def prepare(disk: FaultyDisk) -> None:
        disk.create(Path("/d/old"))
        disk.halt_in(2)
        with pytest.raises(OSError, match="halts at a sync directory"):
            disk.rename(Path("/d/old"), Path("/d/new"))

    assert survivors(50, prepare) == {(("old", b""),), (("new", b""),)}


def test_a_power_loss_inside_a_create_leaves_a_part_of_the_file_or_none() -> None:
    def prepare(disk: FaultyDisk) -> None:
        disk.halt_in(4)
        with pytest.raises(OSError, match="halts at a sync"):
            disk.create(Path("/d/f"), 512)

    assert survivors(50, prepare) == {(), (("f", b""),), (("f", bytes(512)),)}


def test_a_killed_process_leaves_what_it_wrote_but_not_its_open_files() -> None:
    disk = FaultyDisk()
    disk.names(Path("/d"))
    file = disk.create(Path("/d/f"))
    file.write([b"cached"], 0)
    disk.kill_process()
    assert disk.open(Path("/d/f")).read(0, 9) == b"cached"
    with pytest.raises(OSError, match="halted"):
        file.sync()


def test_a_failed_sync_makes_nothing_safe_and_neither_does_the_next_one() -> None:
    def prepare(disk: FaultyDisk) -> None:
        file = disk.create(Path("/d/f"))
        file.write([b"doubt"], 0)
        disk.fail_next(Step.SYNC, in_name="f")
        with pytest.raises(OSError, match="Input/output error"):
            file.sync()
        file.sync()

    assert survivors(50, prepare) == {(("f", b""),), (("f", b"doubt"),)}


def test_a_failed_write_may_have_written_some_of_it() -> None:
    lengths = set()
    for seed in range(100):
        disk = FaultyDisk(Random(seed))
        disk.names(Path("/d"))
        file = disk.create(Path("/d/f"))
        disk.fail_next(Step.WRITE)
        with pytest.raises(OSError, match="Input/output error"):
            file.write([b"ab", b"cd"], 0)
        lengths.add(len(file.read(0, 9)))
    assert lengths == {0, 1, 2, 3, 4}


def test_a_full_disk_refuses_new_bytes_and_takes_them_when_there_is_room_again() -> None:
    disk = FaultyDisk(capacity_bytes=100)
    disk.names(Path("/d"))
    file = disk.create(Path("/d/f"), 90)
    for refused in (lambda: disk.create(Path("/d/g"), 20), lambda: file.write([b"x" * 30], 80)):
        with pytest.raises(OSError, match="No space left"):
            refused()
    assert disk.names(Path("/d")) == ["f"]
    with pytest.raises(OSError, match="No space left"):
        disk.create(Path("/d/h"))
    file.write([b"y" * 90], 0)
    disk.capacity_bytes = 200
    disk.create(Path("/d/g"), 20)


def test_a_flipped_bit_stays_flipped() -> None:
    disk = FaultyDisk()
    disk.names(Path("/d"))
    disk.create(Path("/d/f"), 2)
    disk.flip_bit(Path("/d/f"), 9)
    assert disk.read(Path("/d/f")) == b"\0\2"
    disk.lose_power()
    assert disk.read(Path("/d/f")) == b"\0\2"


def test_a_directory_whose_parent_was_not_synced_may_go_with_all_it_holds() -> None:
    outcomes = set()
    for seed in range(30):
        disk = FaultyDisk(Random(seed))
        disk.names(Path("/"))
        disk.halt_in(3)
        with pytest.raises(OSError, match="halts at a sync directory"):
            disk.names(Path("/d"))
        disk.lose_power()
        steps = list[Step]()
        disk.on_step = lambda step, _, steps=steps: steps.append(step)  # type: ignore[misc]
        disk.names(Path("/d"))
        outcomes.add(Step.MAKE_DIRECTORY in steps)
    assert outcomes == {True, False}
