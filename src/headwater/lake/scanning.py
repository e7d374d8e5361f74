"""Scanning: every live row exactly once, planned from a catalog, its tombstones and its forks alone.

    own rows         rows of the catalog's segments whose life has no tombstone, or that are at or above its offset
    inherited rows   rows of a fork's sources below its fork point, dead or not, under the name of the fork

A plan reads no segments: the caller reads them, by any means and a table at a time, and the plan selects the rows that
count.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from itertools import pairwise
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from headwater.lake.catalog import Catalog, ForkRow, ListedSegment, MayHold
from headwater.lake.format import split_name
from headwater.lake.iceberg.manifests import Coverage
from headwater.lake.relabeling import StreamRange, relabel
from headwater.lake.segments.columns import starts, view
from headwater.streams.segments import Segment

NEEDED = ("bucket", "stream", "incarnation", "offset", "next_offset", "position", "committed_at")
"""The columns that a plan needs; a table may lack all others."""

EVER = 2**63 - 1
"""Above every offset, position and time."""


class RowFilter(NamedTuple):
    """Which rows to return: those that meet every condition."""

    names: frozenset[str] | None = None
    """Full names, `bucket/stream`; None for all."""
    prefix: str = ""
    after: int = -1
    up_to: int = EVER
    """Positions above `after` and up to `up_to`."""
    since: int = 0
    until: int = EVER
    """Times from `since` on and before `until`, in microseconds since 1970."""

    def has(self, name: str) -> bool:
        """Whether rows under this name are returned."""
        return (self.names is None or name in self.names) and name.startswith(self.prefix)


EVERYTHING = RowFilter()


class Inherited(NamedTuple):
    """Bytes that a fork inherits from one life: of its source, or of a source of that."""

    name: str
    incarnation: int
    source: str
    source_incarnation: int
    start: int
    to: int


def inheritance(forks: Iterable[ForkRow]) -> list[Inherited]:
    """What every live fork inherits from which lives, in order of offset; chains of forks are followed."""
    known = {fork.incarnation: fork for fork in forks}
    found: list[Inherited] = []
    for fork in known.values():
        if not fork.deleted:
            found += reversed(list(_ancestors(fork, known)))
    return found


def _ancestors(fork: ForkRow, known: dict[int, ForkRow]) -> Iterator[Inherited]:
    source, life, to = fork.source, fork.source_incarnation, fork.to
    met = {fork.incarnation}
    while fork.start < to:
        if life in met:
            raise ValueError(f"The fork {fork.name!r} is its own ancestor.")
        met.add(life)
        parent = known.get(life)
        # A trim of the parent does not affect its forks: they keep what they inherited.
        own = 0 if parent is None else parent.to
        if max(own, fork.start) < to:
            yield Inherited(fork.name, fork.incarnation, source, life, max(own, fork.start), to)
        if parent is None:
            return
        source, life, to = parent.source, parent.source_incarnation, min(to, own)


# -- The plan ----------------------------------------------------------------------------------------------------------


class Plan:
    """Which segments to read, and which rows of them count."""

    def __init__(
        self,
        segments: list[ListedSegment],
        tombstones: pa.Table | None,
        pieces: Sequence[Inherited],
        row_filter: RowFilter,
    ) -> None:
        self.segments = segments
        self._filter = row_filter
        self._tombstones = tombstones
        self._pieces: dict[int, list[Inherited]] = {}
        for piece in pieces:
            self._pieces.setdefault(piece.source_incarnation, []).append(piece)

    def own(self, table: pa.Table) -> pa.Table:
        """The live rows of a table, under their own names."""
        row_filter = self._filter
        conditions = self._times(table)
        if self._tombstones is not None:
            conditions.append(alive(table, self._tombstones))
        if row_filter.names is not None or row_filter.prefix:
            names = pc.binary_join_element_wise(table["bucket"], table["stream"], "/")
            if row_filter.names is not None:
                conditions.append(pc.is_in(names, value_set=pa.array(sorted(row_filter.names), pa.string())))
            conditions.append(pc.starts_with(names, pattern=row_filter.prefix))
        return _kept(table, conditions)

    def inherited(self, table: pa.Table) -> Iterator[pa.Table]:
        """The rows of a table that forks inherit, once for each fork and under its name, cut at the fork point."""
        if not self._pieces or not len(table):
            return
        table = table.combine_chunks()
        lives = starts(table["incarnation"].chunk(0))
        offset, next_offset = view(table["offset"].chunk(0)), view(table["next_offset"].chunk(0))
        for row, row_end in pairwise([*view(lives), len(table)]):
            for piece in self._pieces.get(table["incarnation"][row].as_py(), ()):
                first = bisect_right(next_offset, piece.start, row, row_end)
                stop = bisect_left(offset, piece.to, first, row_end)
                if first < stop:
                    rows = _under(table.slice(first, stop - first), piece)
                    yield _kept(rows, self._times(rows))

    def rows(self, table: pa.Table) -> pa.Table:
        """The own and the inherited rows of a table."""
        return pa.concat_tables([self.own(table), *self.inherited(table)])

    def _times(self, table: pa.Table) -> list[pa.ChunkedArray]:
        row_filter, conditions = self._filter, []
        for column, low, high in (
            ("position", row_filter.after + 1, row_filter.up_to),
            ("committed_at", row_filter.since, row_filter.until - 1),
        ):
            if low > 0 or high < EVER - 1:
                values = table[column].cast(pa.int64())
                conditions += [pc.greater_equal(values, low), pc.less_equal(values, high)]
        return conditions


def live_rows(
    catalog: Catalog,
    tombstones: pa.Table | None,
    forks: Iterable[ForkRow] = (),
    row_filter: RowFilter = EVERYTHING,
    *,
    inherited: bool = True,
) -> Plan:
    """A plan that finds every live row once; with `inherited`, also the rows of sources under the name of each fork.

    Without tombstones it also finds the dead rows that are still in the lake.
    """
    forks = list(forks) if inherited else []
    pieces = [piece for piece in inheritance(forks) if row_filter.has(piece.name)]
    may_hold = segments_for(row_filter, forks)
    # Rows that only a fork needs count as live too.
    held = [listed for listed in catalog.segments if tombstones is None or listed.live_rows]
    return Plan([listed for listed in held if may_hold(listed.segment)], tombstones, pieces, row_filter)


def segments_for(row_filter: RowFilter, forks: Iterable[ForkRow] = ()) -> MayHold:
    """Whether a segment, or some of those that a manifest lists, can have rows that a filter selects.

    With forks, the rows that they inherit count too.
    """
    names = None
    if row_filter.names is not None:
        names = sorted(name for name in row_filter.names if name.startswith(row_filter.prefix))
    sources = sorted({piece.source for piece in inheritance(forks) if row_filter.has(piece.name)})

    def may_hold(covered: Segment | Coverage) -> bool:
        if covered.last_position <= row_filter.after or covered.first_position > row_filter.up_to:
            return False
        if covered.last_at < row_filter.since or covered.first_at >= row_filter.until:
            return False
        first, last = covered.first_name, covered.last_name
        own = may_have(covered, row_filter.prefix) if names is None else _any_between(names, first, last)
        return own or _any_between(sources, first, last)

    return may_hold


def _any_between(names: Sequence[str], first: str, last: str) -> bool:
    return bisect_left(names, first) < bisect_right(names, last)


def may_have(covered: Segment | Coverage, prefix: str) -> bool:
    """Whether a segment, or those that a manifest lists, can have names with this prefix."""
    first, last = covered.first_name, covered.last_name
    return last >= prefix and (first <= prefix or first.startswith(prefix))


def alive(table: pa.Table, tombstones: pa.Table) -> pa.ChunkedArray:
    """For each row whether it has no tombstone: an anti join on incarnation and offset."""
    tombstone = pc.index_in(table["incarnation"], value_set=tombstones["incarnation"])
    return pc.fill_null(pc.greater_equal(table["offset"], pc.take(tombstones["below"], tombstone)), True)


def _kept(table: pa.Table, conditions: Sequence[pa.ChunkedArray]) -> pa.Table:
    # Usually all rows are kept, and then nothing needs to be copied.
    matter = [condition for condition in conditions if not pc.all(condition, min_count=0).as_py()]
    return table.filter(reduce(pc.and_, matter)) if matter else table


def _under(rows: pa.Table, piece: Inherited) -> pa.Table:
    """Rows of one life under the name of a fork."""
    fork = StreamRange(*split_name(piece.name), piece.incarnation, piece.start, piece.to)
    return relabel(rows, [fork], [len(rows)], rows.schema)
