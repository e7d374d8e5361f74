"""The seams to object stores: `Store` for the lake and backups, `TableStore` for tables that other engines read.

An object is written once, whole, and never changed, except for hints that say which of the others is the newest. A key
consists of parts joined by `/`. No key is the folder of another key: a folder on disk could not hold both. Every call
may block and may be made from any thread.
"""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

KEY_CHARACTERS_MAX = 512
"""S3 allows 1,024 bytes for prefix and key together; file systems allow 255 for each part, a file name."""

# Other engines ignore parts that begin with a dot, and unfinished uploads have such names.
_PART = r"(?!\.)[A-Za-z0-9_.=-]{1,255}"
_KEY = re.compile(rf"{_PART}(?:/{_PART})*")
_TABLE_PART = r"(?!\.)[^/\x00-\x1f\x7f\\]+"
_TABLE_KEY = re.compile(rf"{_TABLE_PART}(?:/{_TABLE_PART})*")

KeyRule = Callable[[str], None]
"""Raises ValueError for a key that a store does not accept."""


class StoreFailed(Exception):
    """The store did not carry out a call, or may have done so without confirming it. A retry may succeed."""


class KeyExists(Exception):
    """A different object already exists under this key."""


class KeyMissing(Exception):
    """No object exists under this key."""


class Item(NamedTuple):
    """An object in a listing."""

    key: str
    size: int


class Store(Protocol):
    """Objects that are created, read and deleted, but never renamed, and only replaced where a caller says so."""

    @property
    def url(self) -> str:
        """Where the store is, for messages and for other engines."""

    def create(self, key: str, data: bytes) -> None:
        """Store a new object, durable on return. KeyExists if a different object has the key; it is left unchanged.

        An existing object with the same bytes counts as success. So a retry that meets its own first attempt succeeds,
        whether the library or the caller made it.
        """

    def replace(self, key: str, data: bytes) -> None:
        """Store an object, durable on return, in place of any other under this key. A reader sees one or the other."""

    def read(self, key: str, start: int = 0, size: int | None = None) -> bytes:
        """Exactly `size` bytes, or everything from `start`. StoreFailed if there are fewer, KeyMissing if none."""

    def delete(self, key: str) -> None:
        """Delete an object. Idempotent."""

    def items(self, prefix: str) -> Iterator[Item]:
        """The objects whose keys begin with `prefix`, sorted by key, listed folder by folder on demand."""

    def remove_leftovers(self) -> None:
        """Remove the bytes of objects that were never stored, because the process that began to store them ended."""


class TableStore(Protocol):
    """Where a job keeps the files of a table: a folder that all executors share, or a prefix of a bucket.

    Each process opens its own from the location. Keys follow `check_table_key`, so that they can hold Hive-style
    partition folders. Unlike the objects of a `Store`, files are moved into the table once they are part of it.
    """

    @property
    def location(self) -> str:
        """A plain path or an s3:// URL, as table formats record it."""

    def create(self, key: str, data: bytes) -> None:
        """As in `Store`."""

    def read(self, key: str, start: int = 0, size: int | None = None) -> bytes:
        """As in `Store`."""

    def delete(self, key: str) -> None:
        """As in `Store`."""

    def move(self, key: str, to: str) -> None:
        """Give an object another key, replacing any object there. Idempotent; KeyMissing if neither key exists."""

    def keys(self, folder: str) -> Iterator[str]:
        """The keys in a folder and below it, in no order. A folder is empty (for all keys) or ends with a slash."""


def check_key(key: str) -> None:
    """Raise ValueError unless every store can hold an object under this key.

    >>> check_key("segments/shard=0/x.parquet")
    >>> check_key("../x")
    Traceback (most recent call last):
    ValueError: '../x' is not a valid key: use letters, digits and _.=- in parts joined by '/', none beginning with '.'.
    """
    if len(key) > KEY_CHARACTERS_MAX:
        raise ValueError(f"A key of {len(key)} characters is too long, the limit is {KEY_CHARACTERS_MAX}.")
    if not _KEY.fullmatch(key):
        rule = "use letters, digits and _.=- in parts joined by '/', none beginning with '.'"
        raise ValueError(f"{key!r} is not a valid key: {rule}.")


def check_table_key(key: str) -> None:
    """Raise ValueError unless a table can hold a file under this key.

    >>> check_table_key("day=2025-11-16/bucket=50%25½/1.parquet")
    >>> check_table_key("day=1//1.parquet")
    Traceback (most recent call last):
    ValueError: 'day=1//1.parquet' is not a valid key: use parts joined by '/', none empty or beginning with '.'.
    """
    if not _TABLE_KEY.fullmatch(key):
        raise ValueError(f"{key!r} is not a valid key: use parts joined by '/', none empty or beginning with '.'.")


def whole(key: str, data: bytes, size: int) -> bytes:
    """The bytes that were read, or StoreFailed if they are not as many as requested."""
    if len(data) != size:
        raise StoreFailed(f"The store returned {len(data)} of {size} bytes of the object {key}; it may be damaged.")
    return data


def check_same(store: Store, key: str, data: bytes) -> None:
    """Raise KeyExists unless the object found under a key is the one that was to be created."""
    try:
        found = store.read(key)
    except KeyMissing as error:
        raise StoreFailed(f"The object {key} in {store.url} existed and then did not; try again.") from error
    if found != data:
        raise KeyExists(f"A different object {key} exists in {store.url}.")


def walk(list_folder: Callable[[str], tuple[list[Item], list[str]]], prefix: str) -> Iterator[Item]:
    """The objects under a prefix in key order, given a call that lists the objects and folders of one folder.

    Folder names end with `/`, which sorts them where their objects belong: `a-b`, `a/x`, `a0`.
    """
    return _walk(list_folder, prefix[: prefix.rfind("/") + 1], prefix)


def _walk(list_folder: Callable[[str], tuple[list[Item], list[str]]], folder: str, prefix: str) -> Iterator[Item]:
    items, folders = list_folder(folder)
    entries: dict[str, Item | None] = {item.key: item for item in items} | dict.fromkeys(folders)
    for name in sorted(entries):
        if not name.startswith(prefix):
            continue
        item = entries[name]
        if item is None:
            yield from _walk(list_folder, name, prefix)
        else:
            yield item
