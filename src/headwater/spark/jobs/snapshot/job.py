"""Snapshot: fold each stream with a reducer, from its last snapshot to its tail, and publish what it comes to.

    describe    which streams have enough new history, and where each ends
    flush       then, so that all of it is in the lake before a snapshot lets any of it go
    fold        on the executors, a stream at a time, in order
    publish     each from the task that folded it

Messages come from the lake where much of it is wanted, and from the server where it is only the ends of streams.
"""

import sys
import sysconfig
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.cloudpickle import register_pickle_by_value
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col

from headwater.lake.scanning import LakeDamaged, read_catalog, read_forks
from headwater.protocol.limits import MIB
from headwater.spark.jobs.origin import Origin
from headwater.spark.jobs.report import Fact, JobFailed, Report
from headwater.spark.jobs.snapshot.folds import Reducer
from headwater.spark.jobs.snapshot.plan import Chosen, choose, packed, split, wants_of
from headwater.spark.jobs.snapshot.store import SnapshotStore
from headwater.spark.jobs.snapshot.task import COLUMNS, Folder, Told, fold_live, fold_sorted
from headwater.spark.link import Link, LinkSettings
from headwater.spark.options.source import Selection, SourceOptions
from headwater.storage.opening import open_store
from headwater.storage.store import KeyMissing, StoreFailed

LAKE_SHARE = 4
LAKE_BYTES_MIN = 64 * MIB
"""The lake is read where at least a fourth of what streams hold is wanted, and this much: it gives all of it, and Spark
has to sort it."""
TOLD = "what string, number bigint, detail string"
PROBLEMS_MAX = 20


@dataclass(frozen=True, slots=True)
class SnapshotConfig:
    """Which streams, and how they are folded."""

    origin: Origin
    reducer: Reducer
    min_bytes: int = 1
    """Streams with less new history are left alone."""


def run(spark: SparkSession, config: SnapshotConfig) -> Report:
    """Fold and publish."""
    options = config.origin.parsed()
    _check(options)
    _carry(config.reducer)
    with config.origin.link() as link:
        status = link.status()
        chosen = choose(_described(link, options.selection), config.min_bytes)
        if status["lake"] is not None:
            link.flush()
    work = _Work(options.link, config.reducer, status["log_id"])
    heirs = _heirs(options, status) if _wants_lake(options, chosen, status) else None
    if heirs is None and options.via == "lake":
        raise JobFailed(f"The lake of {options.link.url} cannot be read from here; leave via=lake out.")
    if heirs is None:
        return _report(chosen, "live", _from_server(spark, chosen.wants, work))
    own, inherited = split(chosen.wants, heirs)
    told = _from_server(spark, inherited, work)
    return _report(chosen, "lake", told + _from_lake(spark, config, own, work))


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
            raise JobFailed(f"The option {name} has no place here: a snapshot covers all of a stream; leave it out.")


def _carry(reducer: Reducer) -> None:
    """Have a function of the user's sent to the executors whole, unless it is installed like they have it too."""
    module = sys.modules.get(getattr(reducer.function, "__module__", None) or "")
    file = getattr(module, "__file__", None)
    if module is not None and file is not None:
        installed = {Path(sysconfig.get_path(kind)).resolve() for kind in ("stdlib", "purelib", "platlib")}
        if installed.isdisjoint(Path(file).resolve().parents):
            register_pickle_by_value(module)  # type: ignore[no-untyped-call]


def _described(link: Link, selection: Selection) -> Iterator[pa.Table]:
    pages = link.describe_all(selection.prefix) if selection.names is None else [link.describe(sorted(selection.names))]
    for page in pages:
        yield page.filter(pa.array(map(selection.has, page["stream"].to_pylist()), pa.bool_()))


def _wants_lake(options: SourceOptions, chosen: Chosen, status: dict[str, Any]) -> bool:
    much = chosen.new_bytes >= max(LAKE_BYTES_MIN, chosen.retained_bytes // LAKE_SHARE)
    named = options.selection.names is not None
    return status["lake"] is not None and (options.via == "lake" or (options.via == "auto" and much and not named))


def _heirs(options: SourceOptions, status: dict[str, Any]) -> dict[int, int] | None:
    """Up to where the bytes of each fork are its source's, by incarnation; None if the lake cannot be read from here.

    These bytes stand under the name of the source: a fork that has any in what is wanted is asked of the server.
    """
    try:
        store = open_store(options.lake or status["lake"]["url"])
        catalog = read_catalog(store)
        if catalog is None or catalog.log_id != status["log_id"]:
            return None
        return {fork.incarnation: fork.to for fork in read_forks(store, catalog)}
    except (ValueError, StoreFailed, KeyMissing, LakeDamaged):
        return None


class _Work:
    """What every task is told."""

    def __init__(self, link: LinkSettings, reducer: Reducer, log_id: str) -> None:
        self._link, self._reducer, self._log_id = link, reducer, log_id

    def live(self, bins: Iterable[pa.Table]) -> Iterator[Told]:
        """Fold some streams, asking the server for them."""
        with SnapshotStore(self._link, self._log_id) as snapshots, Link(self._link) as link:
            folder = Folder(self._reducer, snapshots)
            for wants in bins:
                fold_live(wants_of(wants), link, folder)
        yield from folder.told()

    def sorted(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Fold rows that come sorted."""
        with SnapshotStore(self._link, self._log_id) as snapshots:
            folder = Folder(self._reducer, snapshots)
            fold_sorted(batches, folder)
        told = folder.told()
        columns = [list(column) for column in zip(*told, strict=True)] if told else [[], [], []]
        types = pa.string(), pa.int64(), pa.string()
        arrays = [pa.array(column, type_) for column, type_ in zip(columns, types, strict=True)]
        yield pa.record_batch(arrays, list(Told._fields))


def _from_server(spark: SparkSession, wants: pa.Table, work: _Work) -> list[Told]:
    bins = packed(wants, spark.sparkContext.defaultParallelism)
    return spark.sparkContext.parallelize(bins, len(bins)).mapPartitions(work.live).collect() if bins else []


def _from_lake(spark: SparkSession, config: SnapshotConfig, wants: pa.Table, work: _Work) -> list[Told]:
    """Rows of a stream are spread over segments: they are brought together, and sorted, by Spark."""
    if not len(wants):
        return []
    life = ["bucket", "stream", "incarnation"]
    messages = _messages(spark, config).join(_frame(spark, wants), life)
    mine = messages.where((col("offset") >= col("start")) & (col("offset") < col("tail")))
    placed = mine.repartition(*life).sortWithinPartitions(*life, "offset")
    return [Told(*row) for row in placed.mapInArrow(work.sorted, TOLD).collect()]


def _messages(spark: SparkSession, config: SnapshotConfig) -> DataFrame:
    options = config.origin.source_options(via="lake", columns=",".join([*COLUMNS, "incarnation"]))
    return spark.read.format("headwater").options(**options).load()


def _frame(spark: SparkSession, wants: pa.Table) -> DataFrame:
    parts = pc.split_pattern(wants["stream"], "/", max_splits=1)
    named = [pc.list_element(parts, 0), pc.list_element(parts, 1), *wants.columns[1:]]
    return spark.createDataFrame(pa.table(named, ["bucket", "stream", *wants.column_names[1:]]))


def _report(chosen: Chosen, via: str, told: list[Told]) -> Report:
    counts: Counter[str] = Counter()
    for one in told:
        counts[one.what] += one.number
    settled = sum(counts[what] for what in ("published", "stale", "gone", "failed"))
    facts: dict[str, Fact] = {
        "streams": chosen.streams,
        "published": counts["published"],
        "unchanged": chosen.unchanged,
        "not_json": chosen.not_json,
        "unaddressed": chosen.unaddressed,
        "stale": counts["stale"],
        # Streams that no row came of were deleted or trimmed meanwhile.
        "gone": counts["gone"] + len(chosen.wants) - settled,
        "failed": counts["failed"],
        "messages": counts["messages"],
        "bytes_folded": counts["bytes_folded"],
        "bytes_published": counts["bytes_published"],
        "via": via,
    }
    problems = [one.detail for one in told if one.detail is not None]
    return Report("snapshot", facts, tuple(problems[:PROBLEMS_MAX]))
