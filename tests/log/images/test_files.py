import errno
from pathlib import Path
from random import Random

import pytest

from headwater.log import frames
from headwater.log.images.files import DAMAGED, ImageDamaged, ImageFiles

from ...doubles.faulty_disk import FaultyDisk, Step

DIRECTORY = Path("/data/images")
PIECES = [b"header", b"", b"x" * 5000, b"last"]


def files(disk: FaultyDisk, log_id: str = "9f2c") -> ImageFiles:
    return ImageFiles(DIRECTORY, disk, log_id)


def take(disk: FaultyDisk, position: int, pieces: list[bytes] = PIECES) -> Path:
    """Write a whole image."""
    writer = files(disk).begin(position, b"")
    for piece in pieces:
        writer.write([piece])
    writer.finish()
    return DIRECTORY / f"{position:020d}.image"


def test_pieces_may_be_written_together() -> None:
    disk = FaultyDisk()
    writer = files(disk).begin(7, b"")
    writer.write(PIECES)
    writer.finish()
    assert list(files(disk).read(7)) == PIECES
    assert writer.size_bytes < len(disk.read(DIRECTORY / f"{7:020d}.image"))


def test_the_newest_image_comes_first() -> None:
    disk = FaultyDisk()
    for position in (9, 100, 20):
        take(disk, position)
    disk.create(DIRECTORY / "notes.image")
    assert files(disk).positions() == [100, 20, 9]


def test_an_unfinished_image_is_none_and_is_removed() -> None:
    disk = FaultyDisk()
    files(disk).begin(7, b"").write([b"half"])
    assert files(disk).positions() == []
    assert disk.names(DIRECTORY) == []


def test_an_abandoned_image_leaves_nothing_behind() -> None:
    disk = FaultyDisk()
    writer = files(disk).begin(7, b"")
    writer.write([b"half"])
    writer.abandon()
    assert disk.names(DIRECTORY) == []


@pytest.mark.parametrize("step", [Step.WRITE, Step.SYNC, Step.RENAME])
def test_an_image_that_cannot_be_finished_can_be_abandoned(step: Step) -> None:
    disk = FaultyDisk()
    writer = files(disk).begin(7, b"")
    disk.fail_next(step, errno.EIO, in_name=".tmp")
    with pytest.raises(OSError, match="Input/output error"):
        writer.finish()
    writer.abandon()
    assert disk.names(DIRECTORY) == []


def test_an_image_can_be_begun_again_after_a_failure() -> None:
    disk = FaultyDisk()
    images = files(disk)
    images.begin(7, b"").write([b"left behind"])
    writer = images.begin(7, b"")
    writer.write([b"whole"])
    writer.finish()
    assert list(images.read(7)) == [b"whole"]


def test_every_flipped_bit_that_matters_is_found() -> None:
    disk = FaultyDisk()
    path = take(disk, 7, [b"header", b"streams"])
    unnoticed = 0
    for bit in range(len(disk.read(path)) * 8):
        disk.flip_bit(path, bit)
        try:
            assert list(files(disk).read(7)) == [b"header", b"streams"], "damage was mistaken for an image"
            unnoticed += 1
        except ImageDamaged:
            pass
        disk.flip_bit(path, bit)
    padding = len(disk.read(path)) - 3 * frames.HEADER.size - len(b"header" + b"streams" + b"end")
    assert unnoticed == padding * 8, "only the zeros between pieces may rot"


def test_pieces_in_the_wrong_order_are_damage() -> None:
    disk = FaultyDisk()
    path = take(disk, 7, [b"first ", b"second"])
    data = disk.read(path)
    disk.open(path).write([data[64:128], data[:64]], 0)
    with pytest.raises(ImageDamaged, match="is damaged at byte 0"):
        list(files(disk).read(7))


def test_a_truncated_image_is_damaged_wherever_it_ends() -> None:
    disk = FaultyDisk()
    whole = disk.read(take(disk, 7))
    for length in (0, 10, 64, len(whole) - 64, len(whole) - 62):
        other = FaultyDisk()
        other.names(DIRECTORY)
        other.create(DIRECTORY / f"{7:020d}.image").write([whole[:length]], 0)
        with pytest.raises(ImageDamaged, match=r"/data/images/0*7\.image is damaged at byte \d+"):
            list(files(other).read(7))


@pytest.mark.parametrize(("log_id", "position"), [("0000", 7), ("9f2c", 8)])
def test_an_image_of_another_journal_or_position_is_damaged(log_id: str, position: int) -> None:
    disk = FaultyDisk()
    path = take(disk, 7)
    disk.rename(path, DIRECTORY / f"{position:020d}.image")
    with pytest.raises(ImageDamaged):
        list(files(disk, log_id).read(position))


def test_an_image_set_aside_is_dropped_with_older_ones_only_if_damaged_ones_are_to_go() -> None:
    disk = FaultyDisk()
    images = files(disk)
    for position in (5, 8, 9):
        take(disk, position)
    images.set_aside(5)
    assert images.drop_old() == 8
    assert len(disk.names(DIRECTORY)) == 3
    assert images.drop_old(damaged=True) == 8
    assert [name.partition(".")[0].lstrip("0") for name in disk.names(DIRECTORY)] == ["8", "9"]


def test_an_image_set_aside_keeps_its_bytes_under_another_name() -> None:
    disk = FaultyDisk()
    take(disk, 100)
    files(disk).set_aside(100)
    assert disk.names(DIRECTORY) == [f"{100:020d}{DAMAGED}"]


def test_a_file_without_a_mark_is_as_it_always_was() -> None:
    disk = FaultyDisk()
    seed, data = frames.seed("image", "9f2c", 7), b""
    for number, piece in enumerate(PIECES):
        data += b"".join(frames.encode(piece, number, 1, seed))
    data += b"".join(frames.encode(b"end", len(PIECES), 0, seed))
    assert disk.read(take(disk, 7)) == data


# -- Several processes in one directory --------------------------------------------------------------------------------


def shared(disk: FaultyDisk) -> ImageFiles:
    return ImageFiles(DIRECTORY, disk, "9f2c", shared=True)


def test_a_process_that_opens_a_shared_directory_leaves_the_image_that_another_one_writes() -> None:
    disk = FaultyDisk()
    writer = shared(disk).begin(7, b"")
    writer.write(PIECES)
    shared(disk).begin(8, b"").abandon()
    writer.finish()
    assert list(shared(disk).read(7)) == PIECES


def test_two_processes_that_write_one_image_do_not_damage_it() -> None:
    disk = FaultyDisk()
    first, second = shared(disk).begin(7, b""), shared(disk).begin(7, b"")
    first.write(PIECES[:2])
    second.write(PIECES)
    first.write(PIECES[2:])
    second.finish()
    assert list(shared(disk).read(7)) == PIECES
    first.finish()
    assert list(shared(disk).read(7)) == PIECES
    assert disk.names(DIRECTORY) == [f"{7:020d}.image"]


def test_unfinished_files_in_a_shared_directory_go_when_two_images_are_newer() -> None:
    disk = FaultyDisk()
    images = shared(disk)
    for position in (7, 9):
        images.begin(position, b"").write([b"half"])
    take_shared(images, 9)
    assert (images.drop_old(), len(disk.names(DIRECTORY))) == (0, 3)
    take_shared(images, 20)
    assert images.drop_old() == 9
    left = [name for name in disk.names(DIRECTORY) if name.endswith(".tmp")]
    assert [int(name[:20]) for name in left] == [9]


def test_an_old_image_that_another_process_has_removed_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = FaultyDisk()
    images = shared(disk)
    for position in (7, 9, 20):
        take_shared(images, position)
    seen = images.positions()
    shared(disk).drop_old()
    monkeypatch.setattr(images, "positions", lambda: seen)
    assert images.drop_old() == 9


def take_shared(images: ImageFiles, position: int) -> None:
    writer = images.begin(position, b"")
    writer.write(PIECES)
    writer.finish()


def test_an_image_with_its_name_survives_a_power_loss_whole() -> None:
    """Whenever the power goes: under its real name there is the whole image, or nothing."""
    outcomes = set()
    for seed in range(150):
        disk = FaultyDisk(Random(seed))
        images = files(disk)
        disk.halt_in(1 + seed % 12)
        try:
            writer = images.begin(7, b"")
            for piece in PIECES:
                writer.write([piece])
            writer.finish()
        except OSError:
            assert disk.halted
        disk.lose_power()
        found = files(disk).positions()
        outcomes.add(bool(found))
        if found:
            assert list(files(disk).read(7)) == PIECES, f"seed {seed}"
        assert disk.names(DIRECTORY) == ([f"{7:020d}.image"] if found else [])
    assert outcomes == {True, False}
