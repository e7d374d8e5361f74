"""Compact: segments become fewer and larger, and lose what is dead, rewritten side by side by the executors.

Each round plans rewrites that do not touch each other, by the same planner as the server's own chore, and every rewrite
is a task that hands in its result itself. The server may rewrite the same segments meanwhile: whoever is second is
refused, loses nothing, and plans anew.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from pyspark import Broadcast
from pyspark.sql import SparkSession

from headwater.lake.catalog import Catalog
from headwater.lake.compaction.planning import REWRITE_LIMITS, Rewrite, RewriteLimits
from headwater.lake.compaction.rewriting import Cuts, Keep
from headwater.lake.scanning import EVER, LakeDamaged, read_catalog, read_forks, read_tombstones
from headwater.protocol.limits import MIB, STREAMS_PER_SEGMENT_MAX
from headwater.spark.jobs.compact.plan import Dead, plan_rewrites
from headwater.spark.jobs.compact.task import Outcome, carry_out
from headwater.spark.jobs.report import JobFailed, Report
from headwater.spark.link import Link, LinkSettings
from headwater.storage.opening import open_store
from headwater.storage.store import KeyMissing, Store, StoreFailed

SHARD = "0"
SEGMENT_BYTES = 32 * MIB
"""Payload of a new segment, about: as large as the server makes its own."""
ROUNDS_MAX = 10
"""What is rewritten may be rewritten once more together with its neighbours, each time three times as large."""
SWAP_SECONDS_MAX = 600.0
"""How long an answer to a swap may take: the server reads all that is new, one swap after the other."""
PROBLEMS_MAX = 20


@dataclass(frozen=True, slots=True)
class CompactConfig:
    """Which lake, and how much of it is rewritten at a time."""

    link: LinkSettings
    lake: str | None = None
    """Where the executors find the lake; as the server says, if left out."""
    limits: RewriteLimits = REWRITE_LIMITS
    segment_bytes: int = SEGMENT_BYTES
    rounds_max: int = ROUNDS_MAX


def run(spark: SparkSession, config: CompactConfig) -> Report:
    """Rewrite until the lake is well, or the rounds are over."""
    with Link(config.link) as link:
        url, store = open_lake(link, config.lake)
        tally = Tally()
        if not any(link.flush().values()):
            return Report("compact", {"rounds": 0, "rewrites": 0})
        first = catalog = _catalog(store, link)
        while True:
            lowest = lowest_reader(link)
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
    """What every task of a round is told."""

    def __init__(self, link: LinkSettings, lake: str, dead: "Broadcast[Dead]", lowest: int, cuts: Cuts) -> None:
        self._link, self._lake, self._dead, self._lowest, self._cuts = link, lake, dead, lowest, cuts

    def __call__(self, planned: Iterable[Rewrite]) -> Iterator[Outcome]:
        store, keep = open_store(self._lake), Keep(self._dead.value.below, self._lowest)
        patience = max(SWAP_SECONDS_MAX, self._link.timeout_seconds)
        with Link(self._link._replace(timeout_seconds=patience)) as link:
            for one in planned:
                yield carry_out(one, store, keep, self._cuts, link.swap)


@dataclass
class Tally:
    """What the rounds have come to so far."""

    rounds: int = 0
    done: list[Outcome] = field(default_factory=list)
    refused: int = 0
    open: list[Outcome] = field(default_factory=list)
    """Refused, as we were told; but the first answer to the same request may have been lost."""
    avoid: set[int] = field(default_factory=set)
    dense: dict[int, int] = field(default_factory=dict)
    """Segments whose dead rows all are needed somehow, with their live rows."""
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
                    self.problems.append(f"The segments {list(outcome.rewrite.numbers)} stay: {outcome.detail}")

    def settle(self, catalog: Catalog) -> None:
        """Tell rewrites that were refused from those that are in the lake all the same."""
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
    """The lake of a server, which must be where others can reach it."""
    status = link.status()
    if status["lake"] is None or (url or status["lake"]["url"]) == "memory:":
        raise JobFailed(f"The server at {link.settings.url} has no lake that others can read; serve it with --lake.")
    found = url or status["lake"]["url"]
    try:
        return found, open_store(found)
    except ValueError as error:
        raise JobFailed(str(error)) from error


def _catalog(store: Store, link: Link) -> Catalog:
    """A catalog that tells of everything until now."""
    link.flush()
    try:
        catalog = read_catalog(store)
    except (StoreFailed, KeyMissing, LakeDamaged) as error:
        raise JobFailed(f"The lake at {store.url} cannot be read: {error}") from error
    if catalog is None or catalog.log_id != link.status()["log_id"]:
        raise JobFailed(f"There is no lake of {link.settings.url} at {store.url}; name it as it is reached from here.")
    return catalog


def lowest_reader(link: Link) -> int:
    """The position that every registered reader has reached."""
    return min((positions[SHARD] for positions in link.readers().values()), default=EVER)
