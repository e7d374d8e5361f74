"""The contract of every `BlobStore`."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from headwater.storage import object_blobs
from headwater.storage.blobs import Blob, BlobStore, FolderBlobs, MemoryBlobs, deadline_of, new_upload, upload_of
from headwater.storage.disk import RealDisk, shortage_of
from headwater.storage.memory import MemoryStore
from headwater.storage.object_blobs import ObjectBlobs
from headwater.storage.opening import open_store

from ..doubles.faulty_store import Fault, FaultyStore

DEADLINE = 1_763_251_200_000_001
PART = 1000

OpenBlobs = Callable[[], BlobStore]


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_blobs, "PART_BYTES", PART)
    monkeypatch.setattr(object_blobs, "READ_BYTES", 300)


@pytest.fixture(params=["memory", "folder", "objects in memory", "objects in a folder", "objects in s3"])
def open_blobs(request: pytest.FixtureRequest, tmp_path: Path) -> OpenBlobs:
    """Opens the same blobs every time, as another process would; those in memory are one object."""
    match request.param:
        case "memory":
            blobs = MemoryBlobs()
            return lambda: blobs
        case "folder":
            return lambda: FolderBlobs(tmp_path / "snapshots", RealDisk())
        case "objects in memory":
            store = MemoryStore()
            return lambda: ObjectBlobs(store)
        case "objects in a folder":
            return lambda: ObjectBlobs(open_store(str(tmp_path / "lake")))
    url = request.getfixturevalue("s3_url")
    return lambda: ObjectBlobs(open_store(url))


def put(blobs: BlobStore, data: bytes, deadline: int = DEADLINE, pieces: int = 700) -> Blob:
    writer = blobs.create(deadline)
    for at in range(0, len(data), pieces):
        writer.write(data[at : at + pieces])
    return writer.finish()


def get(blobs: BlobStore, blob: Blob, at: int = 0, size: int | None = None) -> bytes:
    reader = blobs.open(blob.id)
    try:
        return reader.read(at, blob.size if size is None else size)
    finally:
        reader.close()


@pytest.mark.parametrize("size", [0, 1, PART - 1, PART, PART + 1, 3 * PART, 3 * PART + 7])
def test_a_blob_is_read_as_it_was_written(open_blobs: OpenBlobs, size: int) -> None:
    data = os.urandom(size)
    blob = put(open_blobs(), data)
    assert (blob.size, blob.digest, blob.deadline) == (size, hashlib.sha256(data).hexdigest(), DEADLINE)
    assert get(open_blobs(), blob) == data


def test_a_blob_may_be_written_in_one_piece(open_blobs: OpenBlobs) -> None:
    data = os.urandom(5 * PART)
    assert get(open_blobs(), put(open_blobs(), data, pieces=len(data))) == data


def test_any_range_of_a_blob_can_be_read(open_blobs: OpenBlobs) -> None:
    data = os.urandom(2 * PART + 77)
    reader = open_blobs().open(put(open_blobs(), data).id)
    for at, size in [(0, 10), (0, 256), (256, 256), (990, 20), (0, PART), (PART, PART), (5, 2000), (2070, 7), (9, 0)]:
        assert reader.read(at, size) == data[at : at + size], (at, size)
    assert reader.read(2070, 100) == data[2070:], "fewer only at the end"
    reader.close()


def test_the_id_of_a_blob_says_its_deadline_and_is_unique(open_blobs: OpenBlobs) -> None:
    ids = [put(open_blobs(), b"same", deadline).id for deadline in (DEADLINE, DEADLINE, DEADLINE + 1)]
    assert [deadline_of(blob) for blob in ids] == [DEADLINE, DEADLINE, DEADLINE + 1]
    assert len(set(map(upload_of, ids))) == 3


def test_a_missing_blob_is_not_found(open_blobs: OpenBlobs) -> None:
    blob = put(open_blobs(), b"data")
    open_blobs().delete(blob.id)
    for missing in (blob.id, "0" * 32, new_upload(1)):
        with pytest.raises(FileNotFoundError):
            open_blobs().open(missing)


@pytest.mark.parametrize("size", [0, 10, 3 * PART])
def test_deleting_a_blob_is_idempotent_and_leaves_nothing(open_blobs: OpenBlobs, size: int) -> None:
    blob, other = put(open_blobs(), bytes(size)), put(open_blobs(), b"other")
    for _ in range(2):
        open_blobs().delete(blob.id)
        assert {upload_of(name) for name in open_blobs().names()} == {upload_of(other.id)}
    assert get(open_blobs(), other) == b"other"


def test_an_abandoned_blob_leaves_nothing(open_blobs: OpenBlobs) -> None:
    writer = open_blobs().create(DEADLINE)
    writer.write(bytes(3 * PART))
    writer.abandon()
    assert open_blobs().names() == []


def test_what_an_unfinished_upload_has_stored_is_listed_and_can_be_removed(open_blobs: OpenBlobs) -> None:
    blobs = open_blobs()
    blobs.create(DEADLINE).write(bytes(2 * PART + 1))
    finished = put(open_blobs(), bytes(2 * PART), DEADLINE + 1)
    names = open_blobs().names()
    assert {deadline_of(name) for name in names} <= {DEADLINE, DEADLINE + 1}
    for name in names:
        if upload_of(name) != upload_of(finished.id):
            open_blobs().remove(name)
            open_blobs().remove(name)
    assert {upload_of(name) for name in open_blobs().names()} == {upload_of(finished.id)}
    assert get(open_blobs(), finished) == bytes(2 * PART)


# -- Names -------------------------------------------------------------------------------------------------------------


def test_opening_a_folder_does_not_touch_the_uploads_of_other_processes(tmp_path: Path) -> None:
    writer = FolderBlobs(tmp_path, RealDisk()).create(DEADLINE)
    writer.write(b"half")
    FolderBlobs(tmp_path, RealDisk())
    writer.write(b"way")
    blob = writer.finish()
    assert get(FolderBlobs(tmp_path, RealDisk()), blob) == b"halfway"


@pytest.mark.parametrize(
    ("name", "deadline"),
    [
        ("9" * 32, 0),
        ("9" * 32 + ".tmp", 0),
        ("notes.txt", None),
        (".hidden", None),
        (new_upload(DEADLINE) + ".tmp", DEADLINE),
        (new_upload(DEADLINE) + "-77", DEADLINE),
        (new_upload(DEADLINE) + ".00003", DEADLINE),
    ],
)
def test_the_deadline_of_a_name(name: str, deadline: int | None) -> None:
    assert deadline_of(name) == deadline


# -- Object stores that fail -------------------------------------------------------------------------------------------


def test_an_upload_is_never_whole_in_memory() -> None:
    store = FaultyStore()
    writer = ObjectBlobs(store).create(DEADLINE)
    for number in range(1, 8):
        writer.write(bytes(PART))
        assert sum(item.size for item in store.store.items("")) == number * PART


@pytest.mark.parametrize("fault", [Fault.FAIL_BEFORE, Fault.FAIL_AFTER])
def test_an_upload_that_fails_is_an_os_error_and_leaves_nothing_when_it_is_abandoned(fault: Fault) -> None:
    store = FaultyStore()
    writer = ObjectBlobs(store).create(DEADLINE)
    writer.write(bytes(PART))
    store.fail_next("create", fault)
    with pytest.raises(OSError, match="Planned fault") as failure:
        writer.write(bytes(PART))
    assert shortage_of(failure.value) == "The object store cannot be reached; try again in a second."
    writer.abandon()
    assert list(store.store.items("")) == []


def test_calls_that_the_store_does_not_carry_out_are_os_errors() -> None:
    store = FaultyStore()
    blobs = ObjectBlobs(store)
    blob = put(blobs, bytes(3 * PART))
    reader = blobs.open(blob.id)
    store.plan = {"read": Fault.FAIL_BEFORE, "delete": Fault.FAIL_BEFORE, "items": Fault.FAIL_BEFORE}
    for call in (
        lambda: reader.read(PART, PART),
        lambda: blobs.open(blob.id),
        lambda: blobs.delete(blob.id),
        blobs.names,
        lambda: blobs.remove("name"),
    ):
        with pytest.raises(OSError, match="Planned fault"):
            call()
    store.heal()
    blobs.delete(blob.id)
    with pytest.raises(FileNotFoundError):
        reader.read(PART, PART)
