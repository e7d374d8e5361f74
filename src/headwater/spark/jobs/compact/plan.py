"""What to rewrite, and which rows a rewrite may drop, according to the newest catalog.

The server knows the extents of every stream; a catalog knows only tombstones and forks. From these follows:

    a life without a tombstone          all its rows are needed
    a life that is the source of a fork all its rows are kept, since no catalog says which of them the fork needs
    any other life with a tombstone     its rows below the tombstone's offset are dead

A catalog may be outdated, but dead rows stay dead, so a rewrite keeps too much at worst. Rows that a registered
consumer has not read are kept in any case. The server checks each rewrite against its own state, and refuses one that
drops a needed row.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet

import pyarrow as pa

from headwater.lake.catalog import Catalog, ForkRow
from headwater.lake.compaction.planning import REWRITE_LIMITS, Candidate, Rewrite, RewriteLimits, plan
from headwater.lake.segments.columns import view

REWRITES_MAX = 256
"""Most rewrites in a plan; each of them examines all segments."""


class Dead:
    """The dead rows of each life; small enough to send to executors."""

    def __init__(self, tombstones: pa.Table, forks: Iterable[ForkRow]) -> None:
        self._tombstones = tombstones.select(["incarnation", "below"]).sort_by("incarnation").combine_chunks()
        self._sources = frozenset(fork.source_incarnation for fork in forks)

    def below(self, name: str, incarnation: int) -> int:
        """The offset below which the rows of a life are dead; 0 if all may be needed."""
        if incarnation in self._sources or not len(self._tombstones):
            return 0
        lives = view(self._tombstones["incarnation"].chunk(0))
        at = bisect_left(lives, incarnation)
        found = at < len(lives) and lives[at] == incarnation
        return int(self._tombstones["below"][at].as_py()) if found else 0


def plan_rewrites(
    catalog: Catalog,
    lowest_consumer: int,
    limits: RewriteLimits = REWRITE_LIMITS,
    *,
    avoid: AbstractSet[int] = frozenset(),
    dense: Mapping[int, int] | None = None,
    rewrites_max: int = REWRITES_MAX,
) -> list[Rewrite]:
    """Disjoint rewrites, the most useful first.

    A `dense` segment counts as fully alive as long as it has the given number of live rows. Segments of a flush in
    progress are not touched.
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
        rewrite = plan(known, lowest_consumer, limits, avoid=taken)
        if rewrite is None:
            break
        found.append(rewrite)
        taken.update(rewrite.numbers)
    return found
