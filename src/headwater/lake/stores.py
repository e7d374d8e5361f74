"""Open a store by its URL, and claim it for one server."""

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec

from headwater.lake.folder_store import FolderStore
from headwater.lake.memory_store import MemoryStore
from headwater.lake.s3_store import S3Store
from headwater.lake.store import KeyExists, Store

OWNER_KEY = "owner.json"
OWNER_VERSION = 1

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")


class LakeOwned(Exception):
    """The lake belongs to another server."""


class Owner(msgspec.Struct, frozen=True):
    """Whose lake it is: the journal from which everything in it came."""

    version: int
    journal: str


def open_store(url: str) -> Store:
    """The store at `memory:`, `file:///path`, `/path` or `s3://bucket/prefix`.

    >>> open_store("memory:").url
    'memory:'
    """
    scheme = _SCHEME.match(url)
    match scheme and scheme[1].lower():
        case None if url:
            return FolderStore(Path(url))
        case "file" if (parts := urlsplit(url)).path.startswith("/") and parts.netloc in ("", "localhost"):
            return FolderStore(Path(unquote(parts.path)))
        case "memory" if url == "memory:":
            return MemoryStore()
        case "s3":
            return S3Store(url)
    raise ValueError(
        f"{url!r} is no place for a lake, it should be a path, file:///path, s3://bucket/prefix or memory:."
    )


def claim(store: Store, journal: str) -> None:
    """Make the lake this journal's own, unless it is another's already; of two who claim it at once, one gets it."""
    mine = msgspec.json.encode(Owner(OWNER_VERSION, journal))
    try:
        store.create(OWNER_KEY, mine)
    except KeyExists as error:
        whose = _journal(store.read(OWNER_KEY))
        if whose == journal:
            return
        owner = "something else" if whose is None else f"another server (journal {whose})"
        raise LakeOwned(f"The lake at {store.url} belongs to {owner}; use another prefix.") from error


def _journal(data: bytes) -> str | None:
    """The journal that an owner's file names; None if it is not one that we understand."""
    try:
        owner = msgspec.json.decode(data, type=Owner)
    except msgspec.DecodeError:
        return None
    return owner.journal if owner.version == OWNER_VERSION else None
