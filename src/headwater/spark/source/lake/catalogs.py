"""Opening a lake, and reading a catalog that is recent enough."""

import time
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from headwater.lake.catalog import Catalog, CatalogReader, ForkRow
from headwater.lake.damage import LakeDamaged
from headwater.lake.scanning import RowFilter, segments_for
from headwater.spark.link import Link, Log
from headwater.spark.options.source import SourceOptions
from headwater.spark.positions import position_in
from headwater.storage.opening import open_store
from headwater.storage.store import KeyMissing, Store, StoreFailed

CATALOG_READS_MAX = 10
CATALOG_PAUSE_SECONDS = 0.2
"""How often to retry, and how long to wait between tries, for a catalog that must exist."""


class LakeUnusable(Exception):
    """The lake cannot be read as requested; the message is one sentence that says why, and what to do."""


def lake_url(options: SourceOptions, link: Link) -> str:
    """The URL from the options, or else the one that the server reports; LakeUnusable if it reports none."""
    return options.lake or lake_of(link.log(), link)


def lake_of(log: Log, link: Link) -> str:
    """The URL of a log's lake; LakeUnusable if there is none, or none for this client."""
    if log.lake_url is not None:
        return log.lake_url
    server = f"The server at {link.settings.url}"
    if log.has_lake:
        raise LakeUnusable(f"{server} shows its lake only to those with the grant 'pipeline *'; use via=live.")
    raise LakeUnusable(f"{server} has no lake, because it runs in memory only; use via=live.")


def open_lake(url: str) -> Store:
    """The store at a URL; LakeUnusable if this machine cannot reach it."""
    folder = _folder(url)
    if url == "memory:" or (folder is not None and not folder.is_dir()):
        raise LakeUnusable(f"The lake at {url} cannot be reached from this machine.")
    try:
        store = open_store(url)
        next(iter(store.items("messages/")), None)
    except (ValueError, StoreFailed) as problem:
        raise LakeUnusable(f"The lake at {url} cannot be reached from this machine: {problem}") from problem
    return store


def _folder(url: str) -> Path | None:
    if ":" not in url:
        return Path(url)
    parts = urlsplit(url)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


def newest_heading(store: Store, catalogs: CatalogReader) -> Catalog | None:
    """The current catalog without its segments; None if the lake has none yet."""
    for _ in range(CATALOG_READS_MAX):
        try:
            return catalogs.heading()
        except KeyMissing:
            # Between two reads, the metadata was replaced and deleted.
            time.sleep(CATALOG_PAUSE_SECONDS)
        except (LakeDamaged, StoreFailed) as problem:
            raise LakeUnusable(str(problem)) from problem
    raise LakeUnusable(f"The newest catalog of the lake at {store.url} is listed but cannot be read; try again later.")


def matching(catalogs: CatalogReader, row_filter: RowFilter, forks: Iterable[ForkRow] = ()) -> Catalog:
    """The current catalog with the segments that can have rows of a filter; no other manifests are read."""
    try:
        return catalogs.matching(segments_for(row_filter, forks))
    except (LakeDamaged, StoreFailed) as problem:
        raise LakeUnusable(str(problem)) from problem


def heading_up_to(link: Link, store: Store, position: int, catalogs: CatalogReader) -> Catalog | None:
    """The heading of a catalog that covers all rows up to a position; None if nothing was written and position is 0.

    A catalog may claim to cover less than an earlier one did, although the rows are in the lake. A flush then writes a
    catalog that covers them.
    """
    for _ in range(CATALOG_READS_MAX):
        catalog = newest_heading(store, catalogs)
        flushed = 0 if catalog is None else catalog.flushed
        if flushed >= position:
            return catalog
        if position_in(link.flush()) < position:
            break
    raise LakeUnusable(
        f"The lake at {store.url} has rows up to position {flushed}, not up to {position}; check that it belongs to "
        f"the server at {link.settings.url}, and that the query read from this server before."
    )
