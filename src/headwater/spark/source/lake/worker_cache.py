"""What a Python worker caches of a lake, because several of its tasks need it: stores, footers, forks, tombstones."""

from functools import lru_cache, partial

import pyarrow as pa

from headwater.lake.catalog import TOMBSTONES, Deletes, ListedSegment, forks_in, tombstones_of
from headwater.lake.scanning import Inherited, inheritance
from headwater.lake.segments.reader import Footer, read_footer
from headwater.spark.source.lake.plan import ForksFile
from headwater.storage.opening import open_store
from headwater.storage.store import Store
from headwater.streams.segments import Segment

STORES_MAX = 4
FOOTERS_MAX = 64
"""Parsed footers take up to a megabyte each."""
FORKS_MAX = 4


@lru_cache(STORES_MAX)
def store(url: str) -> Store:
    """The store at a URL."""
    return open_store(url)


@lru_cache(FOOTERS_MAX)
def footer(url: str, key: str, segment: Segment) -> Footer:
    """The parsed footer of a segment."""
    return read_footer(partial(store(url).read, key), segment)


@lru_cache(FORKS_MAX)
def inherited(url: str, forks: ForksFile) -> tuple[Inherited, ...]:
    """The ranges that forks inherit from other streams."""
    return tuple(inheritance(forks_in(store(url), *forks)))


def tombstones(url: str, listed: ListedSegment) -> pa.Table:
    """The tombstones of the lives with dead rows in a segment."""
    deletes = listed.deletes
    return TOMBSTONES.empty_table() if deletes is None else _tombstones(url, deletes)


@lru_cache(FOOTERS_MAX)
def _tombstones(url: str, deletes: Deletes) -> pa.Table:
    return tombstones_of(store(url), [deletes])
