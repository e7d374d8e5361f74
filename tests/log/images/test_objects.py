"""Images in an object store: several writers, damage, failures, and what is swept."""

from collections.abc import Callable
from random import Random

import pytest

from headwater.log.images import objects as object_images
from headwater.log.images.files import ImageDamaged
from headwater.log.images.objects import ObjectImages
from headwater.log.images.restoring import newest_good_image
from headwater.storage.memory import MemoryStore
from headwater.storage.store import StoreFailed
from headwater.streams.images import image_of
from headwater.streams.state import State

from ...doubles.faulty_store import Fault, FaultyStore

LOG_ID = "9f2c"
PREFIX = "images/shard=0/"
PIECES = [b"header", b"x" * 1500, b"", b"y" * 10, b"last" * 300]


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_images, "PART_BYTES", 1000)


@pytest.fixture
def store() -> FaultyStore:
    return FaultyStore()


def images(store: FaultyStore) -> ObjectImages:
    return ObjectImages(store, LOG_ID)


def take(store: FaultyStore, position: int, pieces: list[bytes] = PIECES, mark: bytes = b"mark") -> None:
    writer = images(store).begin(position, mark)
    for piece in pieces:
        writer.write([piece])
    writer.finish()


def keys(store: FaultyStore) -> list[str]:
    """The keys of all objects, relative to those of images."""
    return [item.key.removeprefix(PREFIX) for item in store.store.items("")]


def positions_with_objects(store: FaultyStore) -> list[int]:
    return sorted({int(key[:20]) for key in keys(store)})


def replace(store: FaultyStore, key: str, data: bytes) -> None:
    store.store.delete(PREFIX + key)
    store.store.create(PREFIX + key, data)


# -- Parts -------------------------------------------------------------------------------------------------------------


def test_parts_are_stored_as_the_image_grows_and_are_bounded(store: FaultyStore) -> None:
    writer = images(store).begin(7, b"")
    for number in range(1, 6):
        writer.write([b"x" * 600] * 2)
        assert len(keys(store)) == number
    assert writer.size_bytes == 5 * 2 * 604
    writer.finish()
    sizes = [item.size for item in store.store.items(f"{PREFIX}{7:020d}/")]
    assert sizes == [1208] * 5
    assert f"{7:020d}.json" in keys(store)


def test_objects_of_other_kinds_are_left_alone(store: FaultyStore) -> None:
    for key in ("images/shard=0/notes.txt", "images/shard=1/00000000000000000001.json", "segments/shard=0/x"):
        store.create(key, b"something else")
    for position in (5, 7, 9):
        take(store, position)
    images(store).drop_old()
    assert len([item for item in store.store.items("") if store.store.read(item.key) == b"something else"]) == 3


# -- Several writers ---------------------------------------------------------------------------------------------------


def test_of_two_that_write_an_image_at_one_position_the_first_to_finish_wins(store: FaultyStore) -> None:
    first, second = images(store).begin(7, b"one"), images(store).begin(7, b"two")
    for number, piece in enumerate(PIECES):
        (first if number % 2 else second).write([piece])
        (second if number % 2 else first).write([piece])
    second.finish()
    first.finish()
    assert (list(images(store).read(7)), images(store).mark(7)) == (PIECES, b"two")
    named = {part.key for part in images(store).manifest(7).parts}
    assert {*named, f"{7:020d}.json"} == set(keys(store)), "the parts of the other attempt are left"


def test_one_that_gives_up_does_not_touch_the_image_of_another_at_that_position(store: FaultyStore) -> None:
    first, second = images(store).begin(7, b""), images(store).begin(7, b"")
    first.write(PIECES)
    second.write(PIECES)
    second.finish()
    first.abandon()
    assert list(images(store).read(7)) == PIECES


def test_a_writer_that_was_overtaken_by_two_images_changes_nothing(store: FaultyStore) -> None:
    slow = images(store).begin(7, b"")
    slow.write(PIECES)
    for position in (9, 20):
        take(store, position)
    assert images(store).drop_old() == 9
    assert positions_with_objects(store) == [9, 20], "its parts went, though it still writes"
    slow.finish()
    assert images(store).drop_old() == 9
    assert positions_with_objects(store) == [9, 20]


# -- Failures ----------------------------------------------------------------------------------------------------------


def test_an_abandoned_image_leaves_nothing_behind(store: FaultyStore) -> None:
    writer = images(store).begin(7, b"")
    writer.write(PIECES)
    assert keys(store)
    writer.abandon()
    assert not keys(store)


def test_a_part_whose_fate_is_unknown_is_abandoned_with_the_others(store: FaultyStore) -> None:
    writer = images(store).begin(7, b"")
    writer.write([b"x" * 2000])
    store.fail_next("create", Fault.FAIL_AFTER)
    with pytest.raises(StoreFailed):
        writer.write([b"y" * 2000])
    assert len(keys(store)) == 2
    writer.abandon()
    assert not keys(store)


@pytest.mark.parametrize(("fault", "counts"), [(Fault.FAIL_AFTER, True), (Fault.FAIL_BEFORE, False)])
def test_if_the_fate_of_a_manifest_is_unknown_its_parts_stay(store: FaultyStore, fault: Fault, counts: bool) -> None:
    writer = images(store).begin(7, b"")
    writer.write(PIECES)
    store.fail_next("create", fault, in_key=".json")
    with pytest.raises(StoreFailed):
        writer.finish()
    writer.abandon()
    assert images(store).positions() == [7] * counts
    take(store, 7, mark=b"again")
    assert list(images(store).read(7)) == PIECES
    assert images(store).mark(7) == (b"" if counts else b"again")
    for position in (9, 20):
        take(store, position)
    images(store).drop_old()
    assert positions_with_objects(store) == [9, 20]


def test_dropping_old_images_can_be_interrupted_anywhere(store: FaultyStore) -> None:
    for position in (3, 5, 9, 20):
        take(store, position)
    interrupted = 0
    while len(positions_with_objects(store)) > 2:
        store.plan["delete"] = Fault.FAIL_AFTER
        with pytest.raises(StoreFailed):
            images(store).drop_old()
        interrupted += 1
        for position in images(store).positions():
            assert list(images(store).read(position)) == PIECES, "an image counts that has lost a part"
    store.heal()
    assert (images(store).drop_old(), interrupted) == (9, 6)


def test_whatever_fails_an_image_that_counts_is_whole() -> None:
    outcomes: set[str | int] = set()
    for seed in range(200):
        store = FaultyStore(random=Random(seed), odds=0.15)
        for position in (3, 5, 7, 9):
            writer = images(store).begin(position, b"mark")
            try:
                writer.write(PIECES)
                writer.finish()
            except StoreFailed:
                try:
                    writer.abandon()
                except StoreFailed:
                    outcomes.add("not abandoned")
            try:
                outcomes.add(images(store).drop_old())
            except StoreFailed:
                outcomes.add("not dropped")
        store.heal()
        for position in images(store).positions():
            assert list(images(store).read(position)) == PIECES, f"seed {seed}, position {position}"
        needed = images(store).drop_old()
        assert all(position >= needed for position in positions_with_objects(store))
    assert outcomes >= {"not abandoned", "not dropped", 0, 3, 5, 7}


# -- Damage ------------------------------------------------------------------------------------------------------------


def test_every_flipped_bit_is_found(store: FaultyStore) -> None:
    take(store, 7, [b"header", b"streams"], b"mark")
    for key in keys(store):
        whole = store.store.read(PREFIX + key)
        for bit in range(len(whole) * 8):
            replace(store, key, whole[: bit // 8] + bytes([whole[bit // 8] ^ 1 << bit % 8]) + whole[bit // 8 + 1 :])
            try:
                assert (list(images(store).read(7)), images(store).mark(7)) == ([b"header", b"streams"], b"mark")
                assert key.endswith(".json"), "damage was mistaken for an image"
            except ImageDamaged:
                pass
        replace(store, key, whole)


@pytest.mark.parametrize("fault", [Fault.FLIP, Fault.TRUNCATE])
def test_a_transfer_that_was_bad_once_is_repeated(store: FaultyStore, fault: Fault) -> None:
    take(store, 7)
    for what in (".json", "-000000"):
        store.fail_next("read", fault, in_key=what)
        assert list(images(store).read(7)) == PIECES


@pytest.mark.parametrize(
    ("log_id", "position"), [("0000", 7), (LOG_ID, 8)], ids=["of another log", "of another position"]
)
def test_an_image_that_is_not_the_one_it_should_be_is_damaged(store: FaultyStore, log_id: str, position: int) -> None:
    take(store, 7)
    if position != 7:
        store.store.create(f"{PREFIX}{position:020d}.json", store.store.read(f"{PREFIX}{7:020d}.json"))
    with pytest.raises(ImageDamaged, match="its version, log and position are"):
        ObjectImages(store, log_id).mark(position)


@pytest.mark.parametrize("fault", [Fault.LOSE, Fault.TRUNCATE, Fault.FLIP])
def test_a_damaged_image_falls_back_to_the_one_before(
    store: FaultyStore, fault: Fault, caplog: pytest.LogCaptureFixture
) -> None:
    for position in (3, 5):
        state = State(LOG_ID)
        state.position = position
        if position == 5:
            store.fail_next("create", fault, in_key="-000000")
        take(store, position, image_of(state), b"mark %d" % position)
    found = newest_good_image(images(store))
    assert found is not None
    assert (found.state.position, found.mark) == (3, b"mark 3")
    assert "the image at position 5 cannot be used, falling back" in caplog.text


@pytest.mark.parametrize("fault", [Fault.LOSE, Fault.TRUNCATE])
@pytest.mark.parametrize("what", ["-000001", ".json"])
def test_the_log_is_not_dropped_for_an_image_that_the_store_did_not_keep(
    store: FaultyStore, fault: Fault, what: str
) -> None:
    take(store, 3)
    take(store, 5)
    store.fail_next("create", fault, in_key=what)
    take(store, 9)
    assert images(store).drop_old() == 3
    take(store, 20)
    assert images(store).drop_old() == 5


def test_images_that_are_dropped_while_a_node_reads_them_lead_to_newer_ones(
    store: FaultyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def taken(position: int) -> None:
        state = State(LOG_ID)
        state.position = position
        take(store, position, image_of(state))

    taken(3)
    read: Callable[..., bytes] = store.store.read

    def overtaken(key: str, *arguments: int) -> bytes:
        if "/shard=0/" in key and "-000000" in key and not done:
            done.append(key)
            taken(5)
            taken(9)
            images(store).drop_old()
        return read(key, *arguments)

    done: list[str] = []
    assert isinstance(store.store, MemoryStore)
    monkeypatch.setattr(store.store, "read", overtaken)
    found = newest_good_image(images(store))
    assert found is not None
    assert (found.state.position, len(done)) == (9, 1)


def test_a_store_that_cannot_be_reached_is_not_taken_for_damage(store: FaultyStore) -> None:
    take(store, 3)
    store.plan["read"] = Fault.FAIL_BEFORE
    with pytest.raises(StoreFailed):
        newest_good_image(images(store))
