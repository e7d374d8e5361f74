"""The contract of `Images`: what holds for files and for objects alike."""

from collections.abc import Callable

import pytest

from headwater.log.images import objects as object_images
from headwater.log.images.files import ImageDamaged, Images
from headwater.log.images.restoring import newest_good_image
from headwater.streams.images import image_of
from headwater.streams.state import State

PIECES = [b"header", b"", b"x" * 5000, b"last"]

Open = Callable[[], Images]


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_images, "PART_BYTES", 1000)


def take(images: Images, position: int, pieces: list[bytes] = PIECES, mark: bytes = b"") -> None:
    writer = images.begin(position, mark)
    assert writer.position == position
    for piece in pieces:
        writer.write([piece])
    writer.finish()
    assert writer.size_bytes >= sum(map(len, pieces))


def test_an_image_is_read_back_piece_by_piece(open_images: Open) -> None:
    take(open_images(), 7)
    assert list(open_images().read(7)) == PIECES


def test_pieces_may_be_written_together(open_images: Open) -> None:
    writer = open_images().begin(7, b"")
    writer.write(PIECES)
    writer.write([])
    writer.finish()
    assert list(open_images().read(7)) == PIECES


@pytest.mark.parametrize("mark", [b"", b"\x00mark\xff" * 1000])
@pytest.mark.parametrize("pieces", [PIECES, []])
def test_an_image_has_the_mark_that_it_was_begun_with(open_images: Open, mark: bytes, pieces: list[bytes]) -> None:
    take(open_images(), 7, pieces, mark)
    assert open_images().mark(7) == mark
    assert list(open_images().read(7)) == pieces


def test_the_newest_image_comes_first(open_images: Open) -> None:
    assert open_images().positions() == []
    for position in (9, 100, 20):
        take(open_images(), position)
    assert open_images().positions() == [100, 20, 9]


def test_two_images_are_kept_and_the_log_before_the_older_is_free(open_images: Open) -> None:
    assert open_images().drop_old() == 0
    take(open_images(), 9)
    assert open_images().drop_old() == 0
    take(open_images(), 20)
    assert open_images().drop_old() == 9
    take(open_images(), 100)
    assert open_images().drop_old() == 20
    assert open_images().positions() == [100, 20]
    with pytest.raises((ImageDamaged, OSError)):
        list(open_images().read(9))


def test_an_unfinished_image_does_not_count(open_images: Open) -> None:
    take(open_images(), 5)
    open_images().begin(7, b"").write(PIECES)
    assert open_images().positions() == [5]
    assert open_images().drop_old() == 0


def test_an_image_can_be_begun_again_after_one_that_was_left_or_abandoned(open_images: Open) -> None:
    images = open_images()
    images.begin(7, b"").write([b"left behind"])
    abandoned = images.begin(7, b"")
    abandoned.write([b"x" * 3000])
    abandoned.abandon()
    take(images, 7, [b"whole"])
    assert list(images.read(7)) == [b"whole"]


def test_an_image_set_aside_no_longer_counts(open_images: Open) -> None:
    for position in (9, 20, 100):
        take(open_images(), position)
    open_images().set_aside(100)
    assert open_images().positions() == [20, 9]
    assert open_images().drop_old() == 9
    take(open_images(), 200)
    assert open_images().drop_old() == 20
    assert open_images().positions() == [200, 20]


def test_the_newest_image_is_restored_with_its_mark(open_images: Open) -> None:
    assert newest_good_image(open_images()) is None
    for position in (3, 5):
        state = State("9f2c")
        state.position = position
        take(open_images(), position, image_of(state), b"mark %d" % position)
    found = newest_good_image(open_images())
    assert found is not None
    assert (found.state.position, found.mark) == (5, b"mark 5")
