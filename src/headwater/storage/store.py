"""The seam between the lake and what holds its objects.

An object is written once, whole, and never changed. A key is made of parts joined by `/`; no key is the folder of
another key, since a folder store has no room for both. Every call may block, and may be made from any thread.
"""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

KEY_CHARACTERS_MAX = 512
"""S3 takes 1,024 bytes of prefix and key together; a part of a key is a file name, of which systems take 255."""

# A part that begins with a dot is hidden from other engines, and we keep what is not yet an object under such names.
_PART = r"(?!\.)[A-Za-z0-9_.=-]{1,255}"
_KEY = re.compile(rf"{_PART}(?:/{_PART})*")


class StoreFailed(Exception):
    """The store did not do as asked; perhaps it will, later. What was asked for may have happened all the same."""


class KeyExists(Exception):
    """There is another object under this key."""


class KeyMissing(Exception):
    """There is no object under this key."""


class Item(NamedTuple):
    """An object in a listing."""

    key: str
    size: int


class Store(Protocol):
    """A place for objects."""

    @property
    def url(self) -> str:
        """Where it is, for messages and for other engines."""

    def create(self, key: str, data: bytes) -> None:
        """Store a new object, durable when it returns; KeyExists if there is one already, which is never changed.

        One that is there with the very same bytes is what was asked for: so a retry that meets its own first attempt
        succeeds, whether the library made it or the caller.
        """

    def read(self, key: str, start: int = 0, size: int | None = None) -> bytes:
        """Exactly `size` bytes, StoreFailed if there are fewer; or all there are from `start` on. Or KeyMissing."""

    def delete(self, key: str) -> None:
        """Delete an object; one that is gone is no harm."""

    def items(self, prefix: str) -> Iterator[Item]:
        """The objects whose keys begin with `prefix`, sorted by key, asked for folder by folder as they are taken."""


def check_key(key: str) -> None:
    """Raise ValueError unless every store can hold an object under this key.

    >>> check_key("segments/shard=0/x.parquet")
    >>> check_key("../x")
    Traceback (most recent call last):
    ValueError: '../x' cannot be a key, which is letters, digits and _.=- in parts joined by '/', none begun by a dot.
    """
    if len(key) > KEY_CHARACTERS_MAX:
        raise ValueError(f"A key of {len(key)} characters is too long, the limit is {KEY_CHARACTERS_MAX}.")
    if not _KEY.fullmatch(key):
        rule = "letters, digits and _.=- in parts joined by '/', none begun by a dot"
        raise ValueError(f"{key!r} cannot be a key, which is {rule}.")


def whole(key: str, data: bytes, size: int) -> bytes:
    """The bytes that were read, if that is how many were asked for."""
    if len(data) != size:
        raise StoreFailed(f"Of {size} bytes of the object {key} the store returned {len(data)}; it may be damaged.")
    return data


def check_same(store: Store, key: str, data: bytes) -> None:
    """Raise KeyExists unless the object that was found under a key is the one that was to be created."""
    try:
        found = store.read(key)
    except KeyMissing as error:
        raise StoreFailed(f"The object {key} in {store.url} was there and then was not; try again.") from error
    if found != data:
        raise KeyExists(f"There is another object {key} in {store.url}.")


def walk(list_folder: Callable[[str], tuple[list[Item], list[str]]], prefix: str) -> Iterator[Item]:
    """The objects under a prefix in the order of their keys, by a call that lists the objects and folders in a folder.

    Folders are named with the `/` at their end, which sorts them where their objects belong: `a-b`, `a/x`, `a0`.
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
