"""Snapshot: fold each stream from its last snapshot to its tail, and publish the result as the next snapshot.

    describe    find the streams with enough new history, and their tails
    flush       so that this history is in the lake before a snapshot trims it
    fold        on the executors, one stream at a time, in order
    publish     by the task that has folded the stream

Messages are read from the lake if most of it is needed, and from the server if only the ends of streams are.
"""

import sys
import sysconfig
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.cloudpickle import register_pickle_by_value
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col

from headwater.lake.catalog import read_catalog, read_forks
from headwater.lake.damage import LakeDamaged
from headwater.protocol.limits import MIB
from headwater.spark.jobs.origin import Origin, describe_selected
from headwater.spark.jobs.report import Fact, JobFailed, Report
from headwater.spark.jobs.snapshot.folds import Reducer
from headwater.spark.jobs.snapshot.plan import Chosen, choose, packed, pending_rows, split
from headwater.spark.jobs.snapshot.task import COLUMNS, Folder, SnapshotStore, TaskResult, fold_live, fold_sorted
from headwater.spark.link import Link, LinkSettings, Log
from headwater.spark.options.source import SourceOptions
from headwater.spark.schemas import schema_of, spark_schema
from headwater.storage.opening import open_store
from headwater.storage.store import KeyMissing, StoreFailed

LAKE_SHARE = 4
LAKE_BYTES_MIN = 64 * MIB
"""The lake is read if at least a fourth of all retained bytes is needed, and at least this much, because reading it
means reading everything and sorting it."""
PROBLEMS_MAX = 20


@dataclass(frozen=True, slots=True)
class SnapshotConfig:
    """Which streams to fold, and how."""

    origin: Origin
    reducer: Reducer
    min_bytes: int = 1
    """Streams with fewer new bytes are skipped."""


def prepare(config: SnapshotConfig) -> SourceOptions:
    """Make all checks that need no Spark, and write nothing; JobFailed if one fails."""
    options = config.origin.parsed()
    _check(options)
    with config.origin.link() as link:
        link.log()
    return options


def run(spark: SparkSession, config: SnapshotConfig) -> Report:
    """Fold streams and publish snapshots."""
    options = prepare(config)
    _ship(config.reducer)
    with config.origin.link() as link:
        log = link.log()
        chosen = choose(describe_selected(link, options.selection), config.min_bytes)
        if log.lake_url is not None:
            link.flush()
    work = _Work(options.link, config.reducer, log.id)
    inherited_to = _inherited_to(options, log) if _prefers_lake(options, chosen, log) else None
    if inherited_to is None and options.via == "lake":
        raise JobFailed(f"The lake of {options.link.url} cannot be read from here; remove via=lake.")
    if inherited_to is None:
        return _report(chosen, "live", _from_server(spark, chosen.pending, work))
    own, inherited = split(chosen.pending, inherited_to)
    results = _from_server(spark, inherited, work)
    return _report(chosen, "lake", results + _from_lake(spark, config, own, work))


def _check(options: SourceOptions) -> None:
    for name, value in (
        ("startingOffsets", options.starting),
        ("endingOffsets", options.ending),
        ("startingTimestamp", options.since),
        ("endingTimestamp", options.until),
        ("columns", options.columns),
        ("value", options.value),
    ):
        if value is not None:
            raise JobFailed(f"A snapshot covers a whole stream; remove the option {name}.")


def _ship(reducer: Reducer) -> None:
    """Send the module of a user's function to the executors, unless it is an installed package."""
    module = sys.modules.get(getattr(reducer.function, "__module__", None) or "")
    file = getattr(module, "__file__", None)
    if module is not None and file is not None:
        installed = {Path(sysconfig.get_path(kind)).resolve() for kind in ("stdlib", "purelib", "platlib")}
        if installed.isdisjoint(Path(file).resolve().parents):
            register_pickle_by_value(module)  # type: ignore[no-untyped-call]


def _prefers_lake(options: SourceOptions, chosen: Chosen, log: Log) -> bool:
    much = chosen.new_bytes >= max(LAKE_BYTES_MIN, chosen.retained_bytes // LAKE_SHARE)
    named = options.selection.names is not None
    return log.lake_url is not None and (options.via == "lake" or (options.via == "auto" and much and not named))


def _inherited_to(options: SourceOptions, log: Log) -> dict[int, int] | None:
    """The offset up to which each fork inherits bytes, by incarnation; None if the lake cannot be read from here.

    In the lake, inherited bytes are under the name of the source. A fork that needs any is read from the server.
    """
    try:
        store = open_store(options.lake or log.lake_url or "")
        catalog = read_catalog(store)
        if catalog is None or catalog.log_id != log.id:
            return None
        return {fork.incarnation: fork.to for fork in read_forks(store, catalog)}
    except (ValueError, StoreFailed, KeyMissing, LakeDamaged):
        return None


class _Work:
    """The work of a task."""

    def __init__(self, link: LinkSettings, reducer: Reducer, log_id: str) -> None:
        self._link, self._reducer, self._log_id = link, reducer, log_id

    def live(self, bins: Iterable[pa.Table]) -> Iterator[TaskResult]:
        """Fold streams that are read from the server."""
        with Link(self._link) as link:
            folder = Folder(self._reducer, SnapshotStore(link, self._log_id))
            for pending in bins:
                fold_live(pending_rows(pending), link, folder)
        yield from folder.results()

    def sorted(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Fold sorted rows."""
        with Link(self._link) as link:
            folder = Folder(self._reducer, SnapshotStore(link, self._log_id))
            fold_sorted(batches, folder)
        results = [result._asdict() for result in folder.results()]
        yield pa.RecordBatch.from_pylist(results, schema=schema_of(TaskResult))


def _from_server(spark: SparkSession, pending: pa.Table, work: _Work) -> list[TaskResult]:
    bins = packed(pending, spark.sparkContext.defaultParallelism)
    return spark.sparkContext.parallelize(bins, len(bins)).mapPartitions(work.live).collect() if bins else []


def _from_lake(spark: SparkSession, config: SnapshotConfig, pending: pa.Table, work: _Work) -> list[TaskResult]:
    """Fold rows of the lake; Spark collects the rows of each stream from its segments and sorts them."""
    if not len(pending):
        return []
    life = ["bucket", "stream", "incarnation"]
    messages = _messages(spark, config).join(_frame(spark, pending), life)
    needed = messages.where((col("offset") >= col("start")) & (col("offset") < col("tail")))
    ordered = needed.repartition(*life).sortWithinPartitions(*life, "offset")
    return [TaskResult(*row) for row in ordered.mapInArrow(work.sorted, spark_schema(schema_of(TaskResult))).collect()]


def _messages(spark: SparkSession, config: SnapshotConfig) -> DataFrame:
    options = config.origin.source_options(via="lake", columns=",".join([*COLUMNS, "incarnation"]))
    return spark.read.format("headwater").options(**options).load()


def _frame(spark: SparkSession, pending: pa.Table) -> DataFrame:
    parts = pc.split_pattern(pending["stream"], "/", max_splits=1)
    columns = [pc.list_element(parts, 0), pc.list_element(parts, 1), *pending.columns[1:]]
    return spark.createDataFrame(pa.table(columns, ["bucket", "stream", *pending.column_names[1:]]))


def _report(chosen: Chosen, via: str, results: list[TaskResult]) -> Report:
    counts: Counter[str] = Counter()
    for result in results:
        counts[result.what] += result.number
    settled = sum(counts[what] for what in ("published", "stale", "gone", "failed"))
    facts: dict[str, Fact] = {
        "streams": chosen.streams,
        "published": counts["published"],
        "unchanged": chosen.unchanged,
        "not_json": chosen.not_json,
        "unaddressed": chosen.unaddressed,
        "stale": counts["stale"],
        # A stream without a result had no rows: it was deleted or trimmed after it was described.
        "gone": counts["gone"] + len(chosen.pending) - settled,
        "failed": counts["failed"],
        "messages": counts["messages"],
        "bytes_folded": counts["bytes_folded"],
        "bytes_published": counts["bytes_published"],
        "via": via,
    }
    problems = [result.detail for result in results if result.detail is not None]
    return Report("snapshot", facts, tuple(problems[:PROBLEMS_MAX]))
