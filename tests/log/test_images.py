import errno
from pathlib import Path
from random import Random

import pytest

from headwater.log import frames
from headwater.log.images import DAMAGED, ImageDamaged, ImageFiles
from headwater.testing import FaultyDisk, Step

DIRECTORY = Path("/data/images")
PIECES = [b"header", b"", b"x" * 5000, b"last"]


def files(disk: FaultyDisk, log_id: str = "9f2c") -> ImageFiles:
    return ImageFiles(DIRECTORY, disk, log_id)


def take(disk: FaultyDisk, position: int, pieces: list[bytes] = PIECES) -> Path:
    """Write a whole image."""
    writer = files(disk).begin(position)
    for piece in pieces:
        writer.write([piece])
    writer.finish()
    return DIRECTORY / f"{position:020d}.image"


def test_an_image_is_read_back_piece_by_piece() -> None:
    disk = FaultyDisk()
    take(disk, 7)
    assert list(files(disk).read(7)) == PIECES


def test_pieces_may_be_written_together() -> None:
    disk = FaultyDisk()
    writer = files(disk).begin(7)
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


def test_two_images_are_kept_and_the_log_before_the_older_is_free() -> None:
    disk = FaultyDisk()
    assert files(disk).drop_old() == 0
    take(disk, 9)
    assert files(disk).drop_old() == 0
    take(disk, 20)
    assert files(disk).drop_old() == 9
    take(disk, 100)
    assert files(disk).drop_old() == 20
    assert files(disk).positions() == [100, 20]


def test_an_unfinished_image_is_none_and_is_removed() -> None:
    disk = FaultyDisk()
    files(disk).begin(7).write([b"half"])
    assert files(disk).positions() == []
    assert disk.names(DIRECTORY) == []


def test_an_abandoned_image_leaves_nothing_behind() -> None:
    disk = FaultyDisk()
    writer = files(disk).begin(7)
    writer.write([b"half"])
    writer.abandon()
    assert disk.names(DIRECTORY) == []


@pytest.mark.parametrize("step", [Step.WRITE, Step.SYNC, Step.RENAME])
def test_an_image_that_cannot_be_finished_can_be_abandoned(step: Step) -> None:
    disk = FaultyDisk()
    writer = files(disk).begin(7)
    disk.fail_next(step, errno.EIO, in_name=".tmp")
    with pytest.raises(OSError, match="Input/output error"):
        writer.finish()
    writer.abandon()
    assert disk.names(DIRECTORY) == []


def test_an_image_can_be_begun_again_after_a_failure() -> None:
    disk = FaultyDisk()
    images = files(disk)
    images.begin(7).write([b"left behind"])
    writer = images.begin(7)
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


def test_an_image_set_aside_no_longer_counts() -> None:
    disk = FaultyDisk()
    for position in (9, 20, 100):
        take(disk, position)
    files(disk).set_aside(100)
    assert files(disk).positions() == [20, 9]
    assert files(disk).drop_old() == 9
    assert f"{100:020d}{DAMAGED}" in disk.names(DIRECTORY)


def test_an_image_with_its_name_survives_a_power_loss_whole() -> None:
    """Whenever the power goes: under its real name there is the whole image, or nothing."""
    outcomes = set()
    for seed in range(150):
        disk = FaultyDisk(Random(seed))
        images = files(disk)
        disk.halt_in(1 + seed % 12)
        try:
            writer = images.begin(7)
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
