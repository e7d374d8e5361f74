"""Open a store by its URL."""

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from headwater.storage.folder import FolderStore
from headwater.storage.memory import MemoryStore
from headwater.storage.s3 import S3Store
from headwater.storage.store import Store, TableStore, check_table_key

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")


def open_store(url: str) -> Store:
    """The store at `memory:`, `file:///path`, `/path` or `s3://bucket/prefix`.

    >>> open_store("memory:").url
    'memory:'
    """
    if url == "memory:":
        return MemoryStore()
    if _scheme(url) == "s3":
        return S3Store(url)
    folder = _folder(url)
    if folder is None:
        raise ValueError(f"{url!r} is not a valid lake URL; use a path, file:///path, s3://bucket/prefix or memory:.")
    return FolderStore(folder)


def open_table_store(url: str) -> TableStore:
    """The store for the files of a table at `/path`, `file:///path` or `s3://bucket/prefix`.

    >>> open_table_store("/data/events").location, open_table_store("file:///data/events").location
    ('/data/events', '/data/events')
    """
    if _scheme(url) == "s3":
        return S3Store(url, check_table_key)
    folder = _folder(url)
    if folder is None:
        raise ValueError(f"{url!r} is not a valid table URL; use a path, file:///path or s3://bucket/prefix.")
    return FolderStore(folder, check_table_key)


def _scheme(url: str) -> str | None:
    found = _SCHEME.match(url)
    return found[1].lower() if found else None


def _folder(url: str) -> Path | None:
    """The folder that a path or a `file:` URL names."""
    match _scheme(url):
        case None if url:
            return Path(url)
        case "file" if (parts := urlsplit(url)).path.startswith("/") and parts.netloc in ("", "localhost"):
            return Path(unquote(parts.path))
    return None
