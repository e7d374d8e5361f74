"""The contract of every `TableStore`, as far as it goes beyond that of a `Store`."""

from pathlib import Path

import pytest

from headwater.storage.opening import open_table_store
from headwater.storage.store import KeyMissing, TableStore

STAGED = "_headwater/staged/1"
FILE = "day=2025-11-16/bucket=50%25%3D½/1.parquet"


@pytest.fixture(params=["folder", "s3"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> TableStore:
    """An empty store for a table."""
    return open_table_store(str(tmp_path / "table") if request.param == "folder" else request.getfixturevalue("s3_url"))


def test_a_moved_file_has_its_new_key_only(table: TableStore) -> None:
    table.create(STAGED, b"rows")
    table.move(STAGED, FILE)
    assert list(table.keys("")) == [FILE]
    assert table.read(FILE) == b"rows"
    with pytest.raises(KeyMissing):
        table.read(STAGED)


def test_a_repeated_move_succeeds(table: TableStore) -> None:
    table.create(STAGED, b"rows")
    table.move(STAGED, FILE)
    table.move(STAGED, FILE)
    assert table.read(FILE) == b"rows"


def test_a_move_replaces_the_file_that_it_meets(table: TableStore) -> None:
    table.create(FILE, b"old")
    table.create(STAGED, b"new")
    table.move(STAGED, FILE)
    assert table.read(FILE) == b"new"
    assert list(table.keys("")) == [FILE]


def test_a_move_of_a_file_that_never_was_fails(table: TableStore) -> None:
    with pytest.raises(KeyMissing, match=f"Neither {STAGED} nor elsewhere exists"):
        table.move(STAGED, "elsewhere")


def test_keys_are_listed_by_folder(table: TableStore) -> None:
    keys = ["a/1", "a/b/2", "ab/3", FILE]
    for key in keys:
        table.create(key, b"")
    assert sorted(table.keys("")) == sorted(keys)
    assert sorted(table.keys("a/")) == ["a/1", "a/b/2"]
    assert list(table.keys("none/")) == []


@pytest.mark.parametrize("key", ["", "/a", "a/", "a//b", "../a", "a/./b", ".uploads/a", "a\n", "a\\b"])
def test_an_invalid_key_is_refused(table: TableStore, key: str) -> None:
    for call in (table.read, table.delete, lambda key: table.create(key, b""), lambda key: table.move("a", key)):
        with pytest.raises(ValueError, match="is not a valid key"):
            call(key)
