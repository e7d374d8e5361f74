"""Open a store by its URL."""

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from headwater.storage.folder import FolderStore
from headwater.storage.memory import MemoryStore
from headwater.storage.s3 import S3Store
from headwater.storage.store import Store

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")


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
