"""Compact: executors merge small segments in parallel and drop dead rows.

Each round plans disjoint rewrites with the server's own planner. Every rewrite is a task, which asks the server to swap
the old segments for its new ones. If the server has rewritten the same segments meanwhile, it refuses the swap; nothing
is lost, and the next round plans again.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from pyspark import Broadcast
from pyspark.sql import SparkSession

from headwater.lake.catalog import Catalog, read_catalog, read_forks, read_tombstones
from headwater.lake.compaction.planning import REWRITE_LIMITS, Rewrite, RewriteLimits
from headwater.lake.compaction.rewriting import Cuts, Keep
from headwater.lake.damage import LakeDamaged
from headwater.lake.scanning import EVER
from headwater.protocol.limits import MIB, STREAMS_PER_SEGMENT_MAX
from headwater.spark.failures import LinkFailed, LinkRefused
from headwater.spark.jobs.compact.plan import Dead, plan_rewrites
from headwater.spark.jobs.compact.task import Outcome, carry_out
from headwater.spark.jobs.origin import find_lake
from headwater.spark.jobs.report import JobFailed, Report
from headwater.spark.link import Link, LinkSettings
from headwater.storage.opening import open_store
from headwater.storage.store import KeyMissing, Store, StoreFailed

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


def prepare(config: CompactConfig) -> None:
    """Make all checks that need no Spark, and write nothing; JobFailed if one fails."""
    try:
        with Link(config.link) as link:
            open_lake(link, config.lake)
    except (LinkFailed, LinkRefused) as failure:
        raise JobFailed(str(failure)) from failure


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
