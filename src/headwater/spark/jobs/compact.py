"""Compact: executors merge small segments in parallel and drop dead rows.

Each round plans disjoint rewrites with the server's own planner. Every rewrite is a task, which asks the server to swap
the old segments for its new ones. If the server has rewritten the same segments meanwhile, it refuses the swap; nothing
is lost, and the next round plans again.
"""

import secrets
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark import Broadcast
from pyspark.sql import SparkSession

from headwater.lake.catalog import Catalog, ForkRow, read_catalog, read_forks, read_tombstones
from headwater.lake.compaction.planning import REWRITE_LIMITS, Candidate, Rewrite, RewriteLimits, plan
from headwater.lake.compaction.rewriting import Cuts, Keep, rewrite
from headwater.lake.damage import LakeDamaged
from headwater.lake.format import new_segment_id, segment_key
from headwater.lake.scanning import EVER
from headwater.lake.segments.columns import view
from headwater.lake.segments.reader import Read, SegmentDamaged
from headwater.lake.segments.writer import Written
from headwater.protocol.limits import MIB, MINUTE_US, STREAMS_PER_SEGMENT_MAX
from headwater.spark.failures import LinkFailed, LinkRefused
from headwater.spark.jobs.origin import find_lake
from headwater.spark.jobs.report import JobFailed, Report, failing_job
from headwater.spark.link import Link, LinkSettings
from headwater.storage.opening import open_store
from headwater.storage.store import KeyExists, KeyMissing, Store, StoreFailed
from headwater.streams.segments import Segment

# -- What to rewrite, and which rows a rewrite may drop ----------------------------------------------------------------
#
# The server knows the extents of every stream; a catalog knows only tombstones and forks. From these follows:
#
#     a life without a tombstone          all its rows are needed
#     a life that is the source of a fork all its rows are kept, since no catalog says which of them the fork needs
#     any other life with a tombstone     its rows below the tombstone's offset are dead
#
# A catalog may be outdated, but dead rows stay dead, so a rewrite keeps too much at worst. Rows that a registered
# consumer has not read are kept in any case. The server checks each rewrite against its own state, and refuses one that
# drops a needed row.


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


# -- One rewrite, as a task on an executor: merge, store, swap ---------------------------------------------------------
#
# A task that dies or is refused leaves at most objects that nothing refers to; the server sweeps them after their
# deadline. Objects of a requested swap are never deleted here: the swap may have happened even if the answer was lost.


DEADLINE_US = 30 * MINUTE_US
"""Time from the start of a rewrite to its swap, with a margin for clock skew between two machines."""
CONFLICT = 409

Swap = Callable[[Sequence[int], Sequence[str], int, int], None]
"""Takes the numbers of the old segments, the keys of the new ones, the highest dropped position, the deadline."""


class Outcome(NamedTuple):
    """The outcome of a rewrite.

    `swapped`; `refused`: the segments have changed; `dense`: there was nothing to drop; `failed`: `detail` says why.
    """

    what: str
    rewrite: Rewrite
    keys: tuple[str, ...] = ()
    rows_dropped: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    detail: str = ""


def carry_out(planned: Rewrite, store: Store, keep: Keep, cuts: Cuts, swap: Swap) -> Outcome:
    """Do a rewrite. A failure is an outcome and not an exception, since other rewrites are not affected."""
    task = _Task(planned, store, keep, cuts)
    try:
        return task.run(swap)
    except LinkRefused as refused:
        return task.outcome("refused" if refused.status == CONFLICT else "failed", str(refused))
    except KeyMissing as missing:
        # Only segments that have been replaced are deleted.
        return task.outcome("refused", str(missing))
    except (SegmentDamaged, StoreFailed, KeyExists, LinkFailed) as error:
        return task.outcome("failed", str(error))


class _Task:
    """A rewrite in progress."""

    def __init__(self, planned: Rewrite, store: Store, keep: Keep, cuts: Cuts) -> None:
        self._planned, self._store, self._keep, self._cuts = planned, store, keep, cuts
        self._deadline = time.time_ns() // 1000 + DEADLINE_US
        self._keys: list[str] = []
        self._rows_dropped = self._bytes_read = self._bytes_written = 0

    def run(self, swap: Swap) -> Outcome:
        planned = self._planned
        dropped = self._drop() if planned.is_drop else self._merge()
        if planned.why == "sparse" and not self._rows_dropped:
            for key in self._keys:
                self._store.delete(key)
            self._keys.clear()
            return self.outcome("dense")
        swap(planned.numbers, self._keys, dropped, self._deadline)
        return self.outcome("swapped")

    def outcome(self, what: str, detail: str = "") -> Outcome:
        sizes = self._rows_dropped, self._bytes_read, self._bytes_written
        return Outcome(what, self._planned, tuple(self._keys), *sizes, detail)

    def _drop(self) -> int:
        """Drop all rows without reading them; return their highest position."""
        self._rows_dropped = sum(segment.rows for segment in self._planned.segments)
        return max(segment.last_position for segment in self._planned.segments)

    def _merge(self) -> int:
        """Write the new segments; return the highest position of the dropped rows."""
        rewritten = rewrite(
            self._read_of,
            self._planned.segments,
            self._keep,
            self._cuts,
            new_id=lambda: new_segment_id(self._deadline, secrets.token_hex(6)),
            put=self._put,
        )
        self._rows_dropped = rewritten.rows_dropped
        return rewritten.dropped

    def _put(self, written: Written) -> None:
        key = _key(written.segment)
        self._keys.append(key)
        self._store.create(key, written.data)
        if not self._is_stored(key, written.data):
            raise StoreFailed(f"The store does not return the bytes that were stored under {key}.")
        self._bytes_written += len(written.data)

    def _is_stored(self, key: str, data: bytes) -> bool:
        """Read the new object back: the old ones will be deleted."""
        try:
            return self._store.read(key) == data
        except KeyMissing:
            return False

    def _read_of(self, segment: Segment) -> Read:
        return partial(self._read, _key(segment))

    def _read(self, key: str, start: int, size: int) -> bytes:
        self._bytes_read += size
        return self._store.read(key, start, size)


def _key(segment: Segment) -> str:
    return segment_key(0, segment.first_position, segment.last_position, segment.id)


# -- The job -----------------------------------------------------------------------------------------------------------


SHARD = "0"
SEGMENT_BYTES = 32 * MIB
"""Approximate payload of a new segment, the same as the server's own."""
ROUNDS_MAX = 10
"""A new segment may be merged again with its neighbours, each time into one three times as large."""
SWAP_SECONDS_MAX = 600.0
"""Time-out of a swap: the server reads all new segments, and handles one swap at a time."""
PROBLEMS_MAX = 20


@dataclass(frozen=True, slots=True)
class CompactConfig:
    """Which lake to compact, and how much of it at a time."""

    link: LinkSettings
    lake: str | None = None
    """The lake's URL as the executors reach it; by default as the server reports it."""
    limits: RewriteLimits = REWRITE_LIMITS
    segment_bytes: int = SEGMENT_BYTES
    rounds_max: int = ROUNDS_MAX


@failing_job()
def prepare(config: CompactConfig) -> None:
    """Make all checks that need no Spark, and write nothing; JobFailed if one fails."""
    with Link(config.link) as link:
        open_lake(link, config.lake)


def run(spark: SparkSession, config: CompactConfig) -> Report:
    """Rewrite until nothing is left to do, or for the given number of rounds."""
    with Link(config.link) as link:
        url, store = open_lake(link, config.lake)
        tally = Tally()
        if not any(link.flush().values()):
            return Report("compact", {"rounds": 0, "rewrites": 0})
        first = catalog = _catalog(store, link)
        while True:
            lowest = lowest_consumer(link)
            planned = plan_rewrites(catalog, lowest, config.limits, avoid=tally.avoid, dense=tally.dense)
            if not planned or tally.rounds == config.rounds_max:
                return tally.report(first, catalog, len(planned))
            tally.rounds += 1
            dead = spark.sparkContext.broadcast(Dead(read_tombstones(store, catalog), read_forks(store, catalog)))
            work = _Work(config.link, url, dead, lowest, Cuts(config.segment_bytes, STREAMS_PER_SEGMENT_MAX))
            tally.add(spark.sparkContext.parallelize(planned, len(planned)).mapPartitions(work).collect())
            dead.destroy()
            catalog = _catalog(store, link)
            tally.settle(catalog)


class _Work:
    """The work of one task: some of the planned rewrites."""

    def __init__(self, link: LinkSettings, lake: str, dead: "Broadcast[Dead]", lowest: int, cuts: Cuts) -> None:
        self._link, self._lake, self._dead, self._lowest, self._cuts = link, lake, dead, lowest, cuts

    def __call__(self, planned: Iterable[Rewrite]) -> Iterator[Outcome]:
        store, keep = open_store(self._lake), Keep(self._dead.value.below, self._lowest)
        timeout_seconds = max(SWAP_SECONDS_MAX, self._link.timeout_seconds)
        with Link(self._link._replace(timeout_seconds=timeout_seconds)) as link:
            for one in planned:
                yield carry_out(one, store, keep, self._cuts, link.swap)


@dataclass
class Tally:
    """The outcomes of all rounds so far."""

    rounds: int = 0
    done: list[Outcome] = field(default_factory=list)
    refused: int = 0
    open: list[Outcome] = field(default_factory=list)
    """Refused swaps; the refusal may be the answer to a retry of a request that succeeded."""
    avoid: set[int] = field(default_factory=set)
    dense: dict[int, int] = field(default_factory=dict)
    """Segments none of whose dead rows may be dropped, with their number of live rows."""
    problems: list[str] = field(default_factory=list)

    def add(self, outcomes: Iterable[Outcome]) -> None:
        for outcome in outcomes:
            match outcome.what:
                case "swapped":
                    self.done.append(outcome)
                case "refused":
                    self.open.append(outcome)
                case "dense":
                    self.dense |= {one.number: one.live_rows for one in outcome.rewrite.candidates}
                case _:
                    self.avoid.update(outcome.rewrite.numbers)
                    self.problems.append(
                        f"Segments {list(outcome.rewrite.numbers)} were not rewritten: {outcome.detail}"
                    )

    def settle(self, catalog: Catalog) -> None:
        """Find out which of the refused swaps have happened nevertheless."""
        listed = {one.key for one in catalog.segments}
        for outcome in self.open:
            if outcome.keys and listed.issuperset(outcome.keys):
                self.done.append(outcome)
            else:
                self.refused += 1
        self.open.clear()

    def report(self, first: Catalog, last: Catalog, left: int) -> Report:
        facts: dict[str, Any] = {
            "rounds": self.rounds,
            "rewrites": len(self.done),
            "refused": self.refused,
            "left_over": left,
            "segments_before": len(first.segments),
            "segments_after": len(last.segments),
            "bytes_before": sum(one.segment.size for one in first.segments),
            "bytes_after": sum(one.segment.size for one in last.segments),
            "bytes_read": sum(one.bytes_read for one in self.done),
            "bytes_written": sum(one.bytes_written for one in self.done),
            "rows_dropped": sum(one.rows_dropped for one in self.done),
        }
        return Report("compact", facts, tuple(self.problems[:PROBLEMS_MAX]))


# -- The lake ----------------------------------------------------------------------------------------------------------


def open_lake(link: Link, url: str | None) -> tuple[str, Store]:
    """The lake of a server; JobFailed if only the server can reach it."""
    reported = find_lake(link)
    if reported is None or (url or reported) == "memory:":
        raise JobFailed(f"The server at {link.settings.url} has no lake that Spark can read; start it with --lake.")
    found = url or reported
    try:
        return found, open_store(found)
    except ValueError as error:
        raise JobFailed(str(error)) from error


def _catalog(store: Store, link: Link) -> Catalog:
    """A catalog that includes everything committed so far."""
    link.flush()
    try:
        catalog = read_catalog(store)
    except (StoreFailed, KeyMissing, LakeDamaged) as error:
        raise JobFailed(f"The lake at {store.url} cannot be read: {error}") from error
    if catalog is None or catalog.log_id != link.log_id():
        raise JobFailed(
            f"{store.url} is not the lake of {link.settings.url}; pass the lake's URL as reached from here as --lake."
        )
    return catalog


def lowest_consumer(link: Link) -> int:
    """The position that every registered consumer has reached."""
    return min((positions[SHARD] for positions in link.consumers().values()), default=EVER)
