"""What a Python worker caches of a lake, because several of its tasks need it: stores, footers, forks, tombstones."""

from bisect import bisect_left, bisect_right
from functools import lru_cache, partial

import pyarrow as pa
import pyarrow.compute as pc

from headwater.lake.reader import Footer, read_footer
from headwater.lake.scanning import Inherited, inheritance, read_forks, read_tombstones
from headwater.spark.source.lake.plan import CatalogTables
from headwater.storage.opening import open_store
from headwater.storage.store import Store
from headwater.streams.segments import Segment

STORES_MAX = 4
FOOTERS_MAX = 64
"""Parsed footers take up to a megabyte each."""
TABLES_MAX = 4


@lru_cache(STORES_MAX)
def store(url: str) -> Store:
    """The store at a URL."""
    return open_store(url)


@lru_cache(FOOTERS_MAX)
def footer(url: str, key: str, segment: Segment) -> Footer:
    """The parsed footer of a segment."""
    return read_footer(partial(store(url).read, key), segment)


@lru_cache(TABLES_MAX)
def inherited(url: str, tables: CatalogTables) -> tuple[Inherited, ...]:
    """The ranges that forks inherit from other streams."""
    return tuple(inheritance(read_forks(store(url), tables.catalog)))


@lru_cache(TABLES_MAX)
def tombstones(url: str, tables: CatalogTables) -> "Tombstones":
    """The tombstones of a catalog."""
    return Tombstones(read_tombstones(store(url), tables.catalog))


class Tombstones:
    """All tombstones of a catalog, sorted by name, so that those for a segment are found quickly."""

    def __init__(self, tombstones: pa.Table) -> None:
        names = pc.binary_join_element_wise(tombstones["bucket"], tombstones["stream"], "/")
        order = pc.sort_indices(names)
        self._tombstones, self._names = tombstones.take(order), names.take(order)

    def of(self, segment: Segment) -> pa.Table:
        """The tombstones of streams whose rows a segment may have."""
        rows = range(len(self._tombstones))
        first = bisect_left(rows, segment.first_name, key=self._name)
        last = bisect_right(rows, segment.last_name, key=self._name)
        return self._tombstones.slice(first, last - first).combine_chunks()

    def _name(self, row: int) -> str:
        name: str = self._names[row].as_py()
        return name
