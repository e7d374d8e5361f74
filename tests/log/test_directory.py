import errno
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from headwater.log.directory import DirectoryInUse, lock
from headwater.log.journal import identity
from headwater.log.journal.files import JournalDamaged, first_position_of
from headwater.streams import images as stream_images
from headwater.streams.commands.streams import Create, Delete
from headwater.testing import ServerNotStarted, running_server

from ..doubles.faulty_disk import Step
from ..node.data_directories import DATA, DataDirectory

# -- One server at a time -----------------------------------------------------------------------------------------


def test_a_directory_has_one_holder_who_is_named(tmp_path: Path) -> None:
    held = lock(tmp_path / "data")
    with pytest.raises(
        DirectoryInUse, match=rf"data is held by process {os.getpid()}; stop it or use another directory\."
    ):
        lock(tmp_path / "data")
    os.close(held)
    os.close(lock(tmp_path / "data"))


def test_a_directory_that_is_missing_is_made(tmp_path: Path) -> None:
    os.close(lock(tmp_path / "deep" / "deeper" / "data"))


def test_a_second_server_on_one_directory_refuses_to_start_and_says_who_holds_it(tmp_path: Path) -> None:
    with running_server(data=tmp_path / "data") as first:
        with (
            pytest.raises(ServerNotStarted, match=rf"(?s)exit code 1 .* is held by process {first.pid}"),
            running_server(data=tmp_path / "data"),
        ):
            pass
        first.kill()
    with running_server(data=tmp_path / "data") as third:
        assert third.stop() == 0


def test_a_server_that_cannot_read_its_journal_ends_with_exit_code_1_and_one_sentence(tmp_path: Path) -> None:
    with running_server(data=tmp_path / "data"):
        pass
    (tmp_path / "data" / "journal" / identity.NAME).unlink()
    with pytest.raises(ServerNotStarted) as refused, running_server(data=tmp_path / "data"):
        pass
    assert "exit code 1" in str(refused.value)
    assert "identity.json is missing, but there are journal files; restore it from a copy." in str(refused.value)
    assert "Traceback" not in str(refused.value)


# -- Recovery -----------------------------------------------------------------------------------------------------


def test_an_empty_directory_is_an_empty_state() -> None:
    state = DataDirectory().open().state
    assert list(state.streams) == ["orders"]


def test_the_state_comes_back_from_image_and_log() -> None:
    directory = DataDirectory()
    directory.age()
    before = directory.contents
    directory.open()
    assert directory.contents == before


def test_what_lies_before_the_older_image_is_dropped() -> None:
    directory = DataDirectory()
    older, newer = directory.age()
    assert directory.images.positions() == [int(newer.stem), int(older.stem)]
    first, second = (first_position_of(path.name) for path in directory.journal_files[:2])
    assert first <= int(older.stem) < second - 1


def test_disk_use_stays_bounded_in_a_long_run() -> None:
    directory = DataDirectory()
    uses = []
    for _ in range(30):
        directory.commit(Delete("orders"), Create("orders", "text/plain"))
        directory.append(40)
        directory.take_image()
        uses.append(directory.disk.used_bytes)
    assert max(uses[5:]) < 1.2 * uses[5]
    assert len(directory.journal_files) < 15


def test_a_damaged_newest_image_falls_back_to_the_older_one_loudly(caplog: pytest.LogCaptureFixture) -> None:
    directory = DataDirectory()
    _, newer = directory.age()
    before = directory.contents
    directory.damage(newer)
    with caplog.at_level(logging.ERROR):
        directory.open()
    assert directory.contents == before
    assert f"the image at position {int(newer.stem)} cannot be used, falling back to the one before" in caplog.text


def test_an_image_that_cannot_be_read_is_a_damaged_one() -> None:
    directory = DataDirectory()
    _, newer = directory.age()
    before = directory.contents
    directory.disk.fail_next(Step.READ, errno.EIO, newer.name)
    directory.open()
    assert directory.contents == before


def test_an_image_of_a_later_version_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    directory = DataDirectory()
    directory.age()
    with monkeypatch.context() as later:
        later.setattr(stream_images, "VERSION", 2)
        directory.append(5)
        directory.take_image()
    before = directory.contents
    directory.open()
    assert directory.contents == before


@pytest.mark.parametrize("order", ["appends first", "a second header", "no header", "nothing"])
def test_an_image_whose_pieces_are_out_of_order_is_a_damaged_one(
    order: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    directory = DataDirectory()
    directory.age()
    appends = msgspec.msgpack.encode(stream_images.Appends([]))

    def tamper(walk: stream_images.Walk) -> Iterator[bytes]:
        header, *others = whole(walk)
        orders = {"appends first": [header, appends, *others], "a second header": [header, *others, header]}
        return iter(orders.get(order, others if order == "no header" else []))

    whole = stream_images.Walk.pieces
    with monkeypatch.context() as damaged:
        damaged.setattr(stream_images.Walk, "pieces", tamper)
        directory.append(5)
        directory.take_image()
    before = directory.contents
    with caplog.at_level(logging.ERROR):
        directory.open()
    assert directory.contents == before
    assert "cannot be used, falling back to the one before" in caplog.text


def test_an_image_is_judged_without_assertions_too() -> None:
    program = (
        "import msgspec\n"
        "from headwater.streams.images import Appends, image_of, restore\n"
        "from headwater.streams.state import State\n"
        "pieces = [*image_of(State('9f2c')), msgspec.msgpack.encode(Appends([]))]\n"
        "try:\n    restore(pieces)\nexcept ValueError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-O", "-c", program], check=True, capture_output=True, text=True, timeout=60)
    assert "without the stream that they belong to" in done.stdout


def test_two_good_images_are_kept_beside_a_damaged_one() -> None:
    directory = DataDirectory()
    older, newer = directory.age()
    directory.damage(newer)
    directory.open()
    directory.append(5)
    newest = directory.take_image()
    before = directory.contents
    assert directory.images.positions() == [int(newest.stem), int(older.stem)]
    directory.damage(newest)
    directory.open()
    assert directory.contents == before


def test_two_damaged_images_and_no_log_before_them_are_refused() -> None:
    directory = DataDirectory()
    for path in directory.age():
        directory.damage(path)
    for _ in range(2):
        with pytest.raises(JournalDamaged, match=r"Positions 1 to \d+ are missing before"):
            directory.open()


def test_damaged_images_lose_nothing_if_the_whole_log_exists() -> None:
    directory = DataDirectory()
    directory.append(30)
    path = directory.take_image()
    directory.append(30)
    before = directory.contents
    directory.damage(path)
    directory.open()
    assert directory.contents == before


def test_images_without_their_journal_are_refused() -> None:
    directory = DataDirectory()
    directory.age()
    for path in directory.disk.paths():
        if path.parent == DATA / "journal":
            directory.disk.remove(path)
    for _ in range(2):
        with pytest.raises(JournalDamaged, match=r"ends at position 0, but an image covers position \d+"):
            directory.open()


def test_a_journal_that_ends_before_a_damaged_image_is_refused() -> None:
    directory = DataDirectory()
    directory.append(3)
    path = directory.take_image()
    last = directory.journal_files[-1]
    directory.damage(path)
    data = directory.disk.read(last)
    directory.disk.flip_bit(last, len(data.rstrip(b"\0")) * 8 - 8)
    with pytest.raises(JournalDamaged, match="ends at position 3, but an image covers position 4"):
        directory.open()
