"""What to rewrite, and which rows a rewrite may leave out, by what the newest catalog says.

A server knows the extents of every stream; a catalog tells of tombstones and forks. From these it follows:

    a life without a tombstone            all its rows are needed
    a life that a fork is made of     all its rows are kept: from where on the fork holds them no catalog says
    any other life with a tombstone       its rows below what the tombstone says are needed by nobody

A catalog may be old: what is dead stays dead, so it leads to keeping too much, never too little. Rows that a registered
reader has not read are kept in any case. And the server judges each rewrite by what it knows: one that leaves out what
is needed after all is refused.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet

import pyarrow as pa

from headwater.lake.catalog import Catalog, ForkRow
from headwater.lake.columns import view
from headwater.lake.compaction.planning import REWRITE_LIMITS, Candidate, Rewrite, RewriteLimits, plan

REWRITES_MAX = 256
"""Rewrites that are planned at a time; each looks at all segments anew."""


class Dead:
    """Which rows nobody needs, by life; small enough to be sent to executors."""

    def __init__(self, tombstones: pa.Table, forks: Iterable[ForkRow]) -> None:
        self._tombstones = tombstones.select(["incarnation", "below"]).sort_by("incarnation").combine_chunks()
        self._sources = frozenset(fork.source_incarnation for fork in forks)

    def below(self, name: str, incarnation: int) -> int:
        """The offset below which the rows of a life may go; 0 if all are needed, or may be."""
        if incarnation in self._sources or not len(self._tombstones):
            return 0
        lives = view(self._tombstones["incarnation"].chunk(0))
        at = bisect_left(lives, incarnation)
        found = at < len(lives) and lives[at] == incarnation
        return int(self._tombstones["below"][at].as_py()) if found else 0


def plan_rewrites(
    catalog: Catalog,
    lowest_reader: int,
    limits: RewriteLimits = REWRITE_LIMITS,
    *,
    avoid: AbstractSet[int] = frozenset(),
    dense: Mapping[int, int] | None = None,
    rewrites_max: int = REWRITES_MAX,
) -> list[Rewrite]:
    """Rewrites that do not touch each other, the most useful first; `dense` segments count as alive while they are so.

    A flush that is under way is left alone.
    """
    known = [
        Candidate(
            listed.number,
            listed.segment,
            listed.segment.rows if (dense or {}).get(listed.number) == listed.live_rows else listed.live_rows,
        )
        for listed in catalog.segments
        if listed.segment.last_position <= catalog.flushed
    ]
    taken, found = set(avoid), list[Rewrite]()
    while len(found) < rewrites_max:
        rewrite = plan(known, lowest_reader, limits, avoid=taken)
        if rewrite is None:
            break
        found.append(rewrite)
        taken.update(rewrite.numbers)
    return found
