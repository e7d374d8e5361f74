"""The parts of a store in a folder that only a folder has: syncs, links and leftovers."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.storage.folder import UPLOADS, FolderStore
from headwater.storage.store import Item, KeyMissing, StoreFailed

KEY = "segments/shard=0/00000000000000000001-00000000000000000009-1f.x.parquet"


CREATE_MANY = """
import sys
from pathlib import Path
from headwater.storage.folder import FolderStore
store = FolderStore(Path(sys.argv[1]))
for number in range(1_000_000):
    key = f"kill/{number % 7}/{number:08}"
    store.create(key, b"%d" % number * 5_000)
    print(key, flush=True)
"""


def test_opening_a_folder_creates_nothing(tmp_path: Path) -> None:
    assert list(FolderStore(tmp_path / "lake").items("")) == []
    assert not (tmp_path / "lake").exists()


def test_uploads_of_a_killed_process_are_removed_and_never_listed(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    store.create(KEY, b"data")
    (tmp_path / UPLOADS / "leftover").write_bytes(b"half")
    assert list(store.items("")) == [Item(KEY, 4)]
    FolderStore(tmp_path)
    assert os.listdir(tmp_path / UPLOADS) == []
    assert store.read(KEY) == b"data"


def test_opening_a_folder_leaves_uploads_in_progress_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uploads: list[list[str]] = []
    sync = os.fsync

    def open_before_sync(fd: int) -> None:
        FolderStore(tmp_path)
        uploads.append(os.listdir(tmp_path / UPLOADS))
        sync(fd)

    store = FolderStore(tmp_path)
    store.create("first", b"data")
    monkeypatch.setattr(os, "fsync", open_before_sync)
    store.create(KEY, b"data")
    assert [len(names) for names in uploads] == [1] * len(uploads)
    assert store.read(KEY) == b"data"
    assert os.listdir(tmp_path / UPLOADS) == []


def test_an_object_is_synced_before_it_has_its_name_and_its_name_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    sync, link = os.fsync, os.link

    def watched_sync(fd: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{fd}"))
        steps.append("the upload" if path.parent.name == UPLOADS else os.path.relpath(path, tmp_path))
        sync(fd)

    def watched_link(old: Path, new: Path) -> None:
        steps.append("link")
        link(old, new)

    monkeypatch.setattr(os, "fsync", watched_sync)
    monkeypatch.setattr(os, "link", watched_link)
    store = FolderStore(tmp_path / "lake")
    store.create("a/b/object", b"data")
    # New folders are synced from the top down, each by a sync of its parent.
    assert steps == ["..", ".", "lake", "the upload", ".", "lake", "lake/a", "link", "lake/a/b"]
    steps.clear()
    store.create("a/b/object", b"data")
    assert steps == ["the upload", "lake/a", "link", "lake/a/b"]
    steps.clear()
    store.delete("a/b/object")
    assert steps == ["lake/a/b"]


def test_an_upload_that_is_taken_for_a_leftover_is_begun_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FolderStore(tmp_path)
    store.create("first", b"data")
    lock, opened = fcntl.flock, list[FolderStore]()

    def open_before_lock(fd: int, operation: int) -> None:
        if operation == fcntl.LOCK_EX and not opened:
            opened.append(FolderStore(tmp_path))
        lock(fd, operation)

    monkeypatch.setattr(fcntl, "flock", open_before_lock)
    store.create(KEY, b"data")
    assert opened
    assert store.read(KEY) == b"data"
    assert os.listdir(tmp_path / UPLOADS) == []


@pytest.mark.parametrize("created", [1, 20, 100])
def test_objects_survive_a_kill_whole_or_not_at_all(tmp_path: Path, created: int) -> None:
    command = [sys.executable, "-c", CREATE_MANY, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        keys = [process.stdout.readline().strip() for _ in range(created)]
        process.kill()
    store = FolderStore(tmp_path)
    assert os.listdir(tmp_path / UPLOADS) == []
    found = [item.key for item in store.items("")]
    assert set(keys) <= set(found)
    for key in found:
        assert store.read(key) == b"%d" % int(key[-8:]) * 5_000


@pytest.mark.parametrize(("first", "second"), [("a", "a/b"), ("a/b", "a")])
def test_a_key_that_is_the_folder_of_another_fails(tmp_path: Path, first: str, second: str) -> None:
    store = FolderStore(tmp_path)
    store.create(first, b"data")
    with pytest.raises(StoreFailed, match=f"create {second}:|read {second}:"):
        store.create(second, b"data")
    assert store.read(first) == b"data"
    assert os.listdir(tmp_path / UPLOADS) == []


def test_a_folder_that_cannot_be_created_fails(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    store = FolderStore(tmp_path / "file")
    with pytest.raises(StoreFailed, match=KEY):
        store.create(KEY, b"data")
    with pytest.raises(KeyMissing):
        store.read(KEY)
