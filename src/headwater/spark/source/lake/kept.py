"""What a process keeps of lakes, because several of its tasks need it: stores, footers, forks and tombstones."""

from bisect import bisect_left, bisect_right
from functools import lru_cache, partial

import pyarrow as pa
import pyarrow.compute as pc

from headwater.lake.reader import Footer, read_footer
from headwater.lake.scanning import Inherited, inheritance, read_forks, read_tombstones
from headwater.spark.source.lake.plan import Tables
from headwater.storage.opening import open_store
from headwater.storage.store import Store
from headwater.streams.segments import Segment

STORES_MAX = 4
FOOTERS_MAX = 64
TABLES_MAX = 4
"""Stores; parsed footers, each of up to a megabyte; and tables beside catalogs."""


@lru_cache(STORES_MAX)
def store(url: str) -> Store:
    """The store at a URL."""
    return open_store(url)


@lru_cache(FOOTERS_MAX)
def footer(url: str, key: str, segment: Segment) -> Footer:
    """What the footer of a segment says."""
    return read_footer(partial(store(url).read, key), segment)


@lru_cache(TABLES_MAX)
def pieces(url: str, tables: Tables) -> tuple[Inherited, ...]:
    """What forks have of the lives of others."""
    return tuple(inheritance(read_forks(store(url), tables.catalog)))


@lru_cache(TABLES_MAX)
def tombstones(url: str, tables: Tables) -> "Tombstones":
    """All that is dead."""
    return Tombstones(read_tombstones(store(url), tables.catalog))


class Tombstones:
    """All tombstones of a catalog, in the order of names: a segment concerns few of them."""

    def __init__(self, tombstones: pa.Table) -> None:
        names = pc.binary_join_element_wise(tombstones["bucket"], tombstones["stream"], "/")
        order = pc.sort_indices(names)
        self._tombstones, self._names = tombstones.take(order), names.take(order)

    def of(self, segment: Segment) -> pa.Table:
        """The tombstones of names that a segment may have."""
        rows = range(len(self._tombstones))
        first = bisect_left(rows, segment.first_name, key=self._name)
        last = bisect_right(rows, segment.last_name, key=self._name)
        return self._tombstones.slice(first, last - first).combine_chunks()

    def _name(self, row: int) -> str:
        name: str = self._names[row].as_py()
        return name
