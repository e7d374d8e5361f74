"""The contract of every `Store`."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Barrier, Thread

import pytest

from headwater.storage.store import KEY_CHARACTERS_MAX, Item, KeyExists, KeyMissing, Store, StoreFailed

KEY = "segments/shard=0/00000000000000000001-00000000000000000009-1f.x.parquet"
MIB = 1024 * 1024


def test_an_object_is_read_as_it_was_created(store: Store, reopen: Callable[[], Store]) -> None:
    store.create(KEY, b"\x00bytes\xff")
    assert store.read(KEY) == b"\x00bytes\xff"
    assert reopen().read(KEY) == b"\x00bytes\xff"


def test_an_object_may_be_empty(store: Store) -> None:
    store.create(KEY, b"")
    assert store.read(KEY) == b""
    assert list(store.items("")) == [Item(KEY, 0)]


@pytest.mark.parametrize(
    ("start", "size", "expected"),
    [
        (0, 10, b"0123456789"),
        (0, 1, b"0"),
        (3, 4, b"3456"),
        (9, 1, b"9"),
        (3, None, b"3456789"),
        (0, 0, b""),
        (4, 0, b""),
        (10, None, b""),
        (11, None, b""),
    ],
)
def test_a_range_is_read_exactly(store: Store, start: int, size: int | None, expected: bytes) -> None:
    store.create(KEY, b"0123456789")
    assert store.read(KEY, start, size) == expected


@pytest.mark.parametrize(("start", "size"), [(0, 11), (9, 2), (10, 1), (50, 5)])
def test_a_range_past_the_end_fails(store: Store, start: int, size: int) -> None:
    store.create(KEY, b"0123456789")
    with pytest.raises(StoreFailed, match=KEY):
        store.read(KEY, start, size)


@pytest.mark.parametrize(("start", "size"), [(0, None), (0, 0), (0, 5), (7, None), (7, 5)])
def test_a_missing_key_is_missing_for_any_range(store: Store, start: int, size: int | None) -> None:
    store.create("other", b"data")
    with pytest.raises(KeyMissing, match=KEY):
        store.read(KEY, start, size)


def test_an_object_is_never_replaced(store: Store, reopen: Callable[[], Store]) -> None:
    store.create(KEY, b"first")
    for other in (store, reopen()):
        with pytest.raises(KeyExists, match=KEY):
            other.create(KEY, b"second")
    assert store.read(KEY) == b"first"


def test_an_object_is_replaced_only_on_request(store: Store, reopen: Callable[[], Store]) -> None:
    store.replace(KEY, b"first")
    store.replace(KEY, b"second, and longer")
    assert reopen().read(KEY) == b"second, and longer"
    reopen().replace(KEY, b"3")
    assert store.read(KEY) == b"3"
    assert [item.size for item in store.items(KEY)] == [1]


def test_creating_the_same_object_again_succeeds(store: Store, reopen: Callable[[], Store]) -> None:
    store.create(KEY, b"same")
    store.create(KEY, b"same")
    reopen().create(KEY, b"same")
    assert store.read(KEY) == b"same"


def test_of_several_concurrent_creates_one_wins(store: Store, reopen: Callable[[], Store]) -> None:
    racers = [store, reopen(), store, reopen()]
    start = Barrier(len(racers))

    def race(number: int, key: str) -> bytes | None:
        data = bytes([number]) * 10_000
        start.wait()
        try:
            racers[number].create(key, data)
        except KeyExists:
            return None
        return data

    with ThreadPoolExecutor(len(racers)) as pool:
        # SeaweedFS keeps some of the losers waiting for a second.
        for turn in range(8):
            key = f"race/{turn}"
            winners = [data for data in pool.map(race, range(len(racers)), [key] * len(racers)) if data is not None]
            assert winners == [store.read(key)]


def test_a_deleted_object_is_gone(store: Store, reopen: Callable[[], Store]) -> None:
    store.create(KEY, b"data")
    store.delete(KEY)
    with pytest.raises(KeyMissing):
        reopen().read(KEY)
    assert list(store.items("")) == []


def test_deleting_is_idempotent(store: Store) -> None:
    store.delete("never/was")
    store.create(KEY, b"data")
    store.delete(KEY)
    store.delete(KEY)
    store.delete("segments/shard=0/other")


def test_a_deleted_key_can_be_used_again(store: Store) -> None:
    store.create(KEY, b"old")
    store.delete(KEY)
    store.create(KEY, b"new")
    assert store.read(KEY) == b"new"


def test_keys_are_listed_in_the_order_of_their_bytes(store: Store) -> None:
    # A folder `a/` sorts between `a-b` or `a.b` and `a0`, not where its name alone would put it.
    keys = ["B", "_x/y", "a-b", "a.b", "a/b", "a/b-/d", "a/b.c", "a/b0", "a/b=1/c", "a0", "a=b/c", "b/c/d/e"]
    assert keys == sorted(keys)
    for size, key in reversed(list(enumerate(keys))):
        store.create(key, bytes(size))
    assert list(store.items("")) == [Item(key, size) for size, key in enumerate(keys)]


@pytest.mark.parametrize(
    ("prefix", "expected"),
    [
        ("", ["a/b/1", "a/b/2", "a/b2", "a/c/1", "ab"]),
        ("a", ["a/b/1", "a/b/2", "a/b2", "a/c/1", "ab"]),
        ("a/", ["a/b/1", "a/b/2", "a/b2", "a/c/1"]),
        ("a/b", ["a/b/1", "a/b/2", "a/b2"]),
        ("a/b/", ["a/b/1", "a/b/2"]),
        ("a/b/2", ["a/b/2"]),
        ("a/b/2/", []),
        ("b", []),
        ("no/such/folder/", []),
    ],
)
def test_a_prefix_is_any_beginning_of_a_key(store: Store, prefix: str, expected: list[str]) -> None:
    for key in ("a/b/1", "a/b/2", "a/b2", "a/c/1", "ab"):
        store.create(key, b"")
    assert [item.key for item in store.items(prefix)] == expected


def test_more_objects_than_a_page_holds_are_all_listed(store: Store) -> None:
    keys = [f"many/shard=0/{number:06}.parquet" for number in range(2100)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda key: store.create(key, b"x"), keys))
    assert [item.key for item in store.items("many/")] == keys
    assert next(store.items("many/")) == Item(keys[0], 1)


def test_a_big_object_is_stored_whole(store: Store) -> None:
    data = os.urandom(20 * MIB + 1)
    store.create(KEY, data)
    assert store.read(KEY) == data
    assert store.read(KEY, 7 * MIB - 3, 9 * MIB) == data[7 * MIB - 3 : 16 * MIB - 3]
    assert list(store.items("seg")) == [Item(KEY, len(data))]


def test_a_read_during_a_delete_returns_everything_or_fails(store: Store) -> None:
    data = os.urandom(2 * MIB)
    start = Barrier(2)

    def delete(key: str) -> None:
        start.wait()
        store.delete(key)

    for turn in range(10):
        key = f"doomed/{turn}"
        store.create(key, data)
        thread = Thread(target=delete, args=(key,))
        thread.start()
        start.wait()
        with suppress(KeyMissing, StoreFailed):
            assert store.read(key) == data
        thread.join()
        with pytest.raises(KeyMissing):
            store.read(key)


@pytest.mark.parametrize(
    "key", ["", "/a", "a/", "a//b", "../a", "a/./b", ".uploads/a", "a b", "ä", "a\n", "a\\b", "x" * 256]
)
def test_an_invalid_key_is_refused(store: Store, key: str) -> None:
    for call in (store.read, store.delete, lambda key: store.create(key, b"")):
        with pytest.raises(ValueError, match="is not a valid key"):
            call(key)


def test_a_key_has_a_maximum_length(store: Store) -> None:
    longest = "/".join(["x" * 255, "y" * 200, "z" * 55])
    assert len(longest) == KEY_CHARACTERS_MAX
    store.create(longest, b"data")
    assert list(store.items("")) == [Item(longest, 4)]
    with pytest.raises(ValueError, match="too long"):
        store.create(longest + "z", b"data")
