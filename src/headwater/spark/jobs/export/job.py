"""Export: append streams to a Parquet, Delta or Iceberg table that holds every message exactly once."""

import json
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Literal, NamedTuple

import pyarrow as pa
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headwater.spark.jobs.export.files import AUDIT, FACTS, DataFile, FileRules, encoded, merged, write_files
from headwater.spark.jobs.export.ledger import (
    Columns,
    all_columns,
    audit_key,
    change_columns,
    check_claim,
    check_query,
    claim,
    create_once,
    default_checkpoint,
    settle,
    staged_stem,
)
from headwater.spark.jobs.export.shape import Shape, check_widening
from headwater.spark.jobs.export.tables import FORMATS, Table, TableOptions, Written, check_types
from headwater.spark.jobs.origin import Origin, find_lake
from headwater.spark.jobs.report import (
    BATCH_BYTES,
    Fact,
    JobFailed,
    Report,
    finish,
    open_location,
    spark_path,
    start_at_earliest,
    stop_between_batches,
)
from headwater.spark.schemas import spark_schema
from headwater.storage.opening import open_table_store
from headwater.storage.store import TableStore

# -- One batch: the tasks store it, the driver commits it --------------------------------------------------------------


QUERY_PROPERTY = "sql.streaming.queryId"
"""The local property with the query's id, which is the same for all runs from one checkpoint."""


@dataclass(slots=True)
class Counts:
    """The totals of a run."""

    batches: int = 0
    repeated: int = 0
    """Batches that an earlier run had committed before it was killed."""
    rows: int = 0
    bytes: int = 0
    files: int = 0
    streams: int = 0


class Widening(NamedTuple):
    """New columns of a table, to be recorded with the first batch that has them."""

    number: int
    shape: dict[str, Any]


class Stopped(Exception):
    """The export was asked to stop before this batch began."""


class Exporter:
    """Writes batches to a table, one after another."""

    def __init__(
        self,
        store: TableStore,
        table: Table,
        widening: Widening | None = None,
        stop: threading.Event | None = None,
    ) -> None:
        self._store, self._table, self._widening = store, table, widening
        self._stop = stop or threading.Event()
        self.counts = Counts()
        self.batches: list[int] = []
        self.failure: Exception | None = None
        """The failure of a batch, before Spark wraps it into an exception of its own."""

    def __call__(self, rows: DataFrame, batch: int) -> None:
        """Export a batch unless the table has it."""
        try:
            if self._stop.is_set():
                # Spark must not record the batch as done; the next run repeats it.
                raise Stopped
            query = rows.sparkSession.sparkContext.getLocalProperty(QUERY_PROPERTY)
            check_query(self._store, str(query), batch)
            self._export(rows, batch)
        except Exception as failure:
            self.failure = failure
            raise

    def _export(self, rows: DataFrame, batch: int) -> None:
        if self._table.has(batch):
            settle(self._store, batch)
            self.counts.repeated += 1
            return
        attempt = secrets.token_hex(4)
        rules = self._table.rules(batch, attempt)
        written = write_batch(rows, rules, f"{staged_stem(batch, attempt)}.audit")
        if written.files:
            self._record_columns(batch)
            self._table.commit(written)
            settle(self._store, batch)
        self._count(written)

    def _record_columns(self, batch: int) -> None:
        """Before the commit, so that every later run has these columns, even if this one is killed now."""
        if self._widening is not None:
            change_columns(self._store, self._widening.number, Columns(batch, self._widening.shape))
            self._widening = None

    def _count(self, written: Written) -> None:
        self.counts.batches += 1
        self.counts.rows += written.rows
        self.counts.bytes += written.bytes
        self.counts.files += len(written.files)
        # The distinct streams of several batches are counted from their audits.
        self.counts.streams = written.streams
        if written.files:
            self.batches.append(written.batch)

    def count_streams(self, spark: SparkSession) -> int:
        """The number of distinct streams in the batches of this run."""
        if len(self.batches) < 2:
            return self.counts.streams if self.batches else 0
        audits = merged(spark, self._store.location, [audit_key(batch) for batch in self.batches])
        return audits.select("bucket", "stream").distinct().count()


def write_batch(rows: DataFrame, rules: FileRules, audit: str) -> Written:
    """Let the tasks store the files of a batch, and its audit under a key."""
    facts = rows.mapInArrow(partial(write_files, rules), spark_schema(FACTS)).toArrow().to_pylist()
    files = [
        DataFile(**{name: fact[name] for name in DataFile._fields})
        for fact in sorted(facts, key=lambda fact: str(fact["key"]))
        if fact["kind"] == "data"
    ]
    parts = {fact["key"]: fact["rows"] for fact in facts if fact["kind"] == "part"}
    if not files:
        return Written(rules.batch, [], 0)
    if len(parts) > 1:
        return Written(rules.batch, files, write_audit(rows.sparkSession, rules.location, sorted(parts), audit))
    ((part, streams),) = parts.items()
    open_table_store(rules.location).move(part, audit)
    return Written(rules.batch, files, streams)


def write_audit(spark: SparkSession, location: str, parts: list[str], audit: str) -> int:
    """Merge the parts that tasks have stored into one audit; return its number of streams."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        table = pa.Table.from_batches(batches, AUDIT)
        # A retried task may find the audit of its first attempt.
        create_once(open_table_store(location), audit, encoded(table))
        yield pa.RecordBatch.from_pydict({"streams": [len(table)]})

    ordered = merged(spark, location, parts).coalesce(1).sortWithinPartitions("bucket", "stream", "incarnation")
    return sum(row["streams"] for row in ordered.mapInArrow(write, "streams long").collect())


# -- The job -----------------------------------------------------------------------------------------------------------


TAKEN = frozenset(
    ("via", "columns", "value", "consumername", "readername", "startingoffsets", "maxbytespertrigger", "ontrimmed")
)
"""Options of the source, in lower case, that the export sets itself: it relies on their values to be exact."""

CONCURRENT = "CONCURRENT_STREAM_LOG_UPDATE"
"""How Spark names the failure of a query whose checkpoint another one writes to."""


@dataclass(frozen=True, slots=True)
class ExportConfig:
    """What to export, where to, and in which format."""

    origin: Origin
    to: str
    format: Literal["parquet", "delta", "iceberg"] = "parquet"
    shape: Shape = field(default_factory=Shape)
    name: str | None = None
    """The name of the export and of its registered consumer; generated for a new table if None."""
    checkpoint: str | None = None
    catalog: str | None = None
    """Iceberg: the URI of the catalog and the table's name in it."""
    table: str | None = None
    batch_bytes: int = BATCH_BYTES
    interval_seconds: float | None = None
    """How often a continuous export looks for new messages; None to end when everything is exported."""


class Prepared(NamedTuple):
    """What is known of an export before Spark starts."""

    store: TableStore
    checkpoint: str
    identity: dict[str, Any]


def prepare(config: ExportConfig) -> Prepared:
    """Make all checks that need no Spark, and write nothing; JobFailed if one fails."""
    _check(config)
    store = open_location(config.to)
    checkpoint = spark_path(config.checkpoint) if config.checkpoint else default_checkpoint(store)
    identity = _identity(config)
    check_claim(store, identity, config.name)
    return Prepared(store, checkpoint, identity)


def run(spark: SparkSession, config: ExportConfig, stop: threading.Event | None = None) -> Report:
    """Export what is new since the last run, in batches; a continuous export goes on until `stop` is set."""
    began = time.monotonic()
    stop = stop or threading.Event()
    store, checkpoint, identity = prepare(config)
    # What the claim records as the columns of the table must be possible ones: it is never changed.
    config.shape.check()
    check_types(config.format, config.shape.columns())
    name, export_id = claim(store, identity, config.name)
    widening = _widening(store, config)
    rows = config.shape.apply(_stream(spark, config, name))
    table = open_table(config.format, store, TableOptions(export_id, rows.schema, config.catalog, config.table))
    # Before any row is read: this fails if the table belongs to another export.
    position = table.position
    exporter = Exporter(store, table, widening, stop)
    writer = rows.writeStream.foreachBatch(exporter).queryName(name).option("checkpointLocation", checkpoint)
    if config.interval_seconds is None:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{round(config.interval_seconds * 1000)} milliseconds")
    positions = _finish(writer.start(), exporter, stop)
    if positions:
        # Spark commits a batch to the source when it starts the next one, so it never commits the last one.
        with config.origin.link() as link:
            link.register(name, positions, config.origin.parsed(via="lake").consumer_silence_seconds)
    counts = exporter.counts
    facts: dict[str, Fact] = {
        "export": name,
        "table": store.location,
        "batches": counts.batches,
        "repeated_batches": counts.repeated,
        # A continuous export may have had a great many batches, and stops at once.
        "streams": exporter.count_streams(spark) if config.interval_seconds is None else None,
        "rows": counts.rows,
        "bytes": counts.bytes,
        "files": counts.files,
        "position": max(positions.values(), default=position),
        "seconds": round(time.monotonic() - began, 3),
    }
    return Report("export", facts)


def open_table(kind: str, store: TableStore, options: TableOptions) -> Table:
    """The table of a format in a store."""
    return table_type(kind)(store, options)


def table_type(kind: str) -> Callable[[TableStore, TableOptions], Table]:
    """The class for tables of a format; JobFailed if the package that it needs is missing."""
    if kind == "parquet":
        from headwater.spark.jobs.export.parquet import ParquetTable  # noqa: PLC0415

        return ParquetTable
    if kind == "delta":
        from headwater.spark.jobs.export.delta import DeltaExport  # noqa: PLC0415

        return DeltaExport
    from headwater.spark.jobs.export.iceberg import IcebergExport  # noqa: PLC0415

    return IcebergExport


def _check(config: ExportConfig) -> None:
    if config.format not in FORMATS:
        raise JobFailed(f"{config.format!r} is not a known format; use one of {', '.join(FORMATS)}.")
    if config.shape.variant and config.format != "parquet":
        raise JobFailed(f"VARIANT columns need --format parquet; use --schema with --format {config.format}.")
    if config.format != "iceberg" and (config.catalog or config.table):
        raise JobFailed("The options --catalog and --table need --format iceberg.")
    taken = next((name for name in config.origin.options if name.lower() in TAKEN), None)
    if taken is not None:
        raise JobFailed(f"The export sets the source option {taken} itself; remove it.")
    config.shape.check_options()
    table_type(config.format)
    # Reject invalid source options before anything is written.
    config.origin.parsed(via="lake")


def _identity(config: ExportConfig) -> dict[str, Any]:
    """The properties that every run of this export has to share."""
    with config.origin.link() as link:
        lake, log_id = find_lake(link), link.log_id()
    if lake is None:
        raise JobFailed(f"The server at {config.origin.url} has no lake to export from; start it with --data.")
    selection = {name.lower(): value for name, value in config.origin.source_options().items()}
    chosen = ("bucket", "prefix", "streams", "streamsPattern", "startingTimestamp", "endingTimestamp")
    return {
        "log_id": log_id,
        "format": config.format,
        "selection": {name: selection[name.lower()] for name in chosen if name.lower() in selection},
        "shape": asdict(config.shape),
        "catalog": None if config.catalog is None else catalog_name(config.catalog),
        "table": config.table,
    }


def _widening(store: TableStore, config: ExportConfig) -> Widening | None:
    """The change of the table's columns, if there is one; JobFailed if the table cannot get these columns."""
    known = all_columns(store)
    before, after = Shape(**known[-1].shape), config.shape
    if before == after:
        return None
    check_widening(config.format, store.location, before.columns(), after.columns())
    return Widening(len(known), asdict(after))


def catalog_name(uri: str) -> str:
    """The URI of a catalog without the parts that may be secret.

    >>> catalog_name("postgresql://me:secret@db:5432/lake?password=secret")
    'postgresql://db:5432/lake'
    """
    address, _, _ = uri.partition("?")
    scheme, colon, rest = address.partition("://")
    authority, slash, path = rest.partition("/")
    return f"{scheme}{colon}{authority.rpartition('@')[2]}{slash}{path}"


def _stream(spark: SparkSession, config: ExportConfig, name: str) -> DataFrame:
    options = config.origin.source_options(via="lake", consumerName=name, maxBytesPerTrigger=str(config.batch_bytes))
    return spark.readStream.format("headwater").options(**start_at_earliest(options)).load()


def _finish(query: StreamingQuery, exporter: Exporter, stop: threading.Event) -> dict[str, int]:
    """Wait until the query has ended; return the position that each shard has reached, if any."""
    try:
        finish(query, lambda: stop_between_batches(query, stop))
    except StreamingQueryException as error:
        if isinstance(exporter.failure, Stopped):
            # The source knows how far the batches before have come.
            return {}
        if exporter.failure is not None:
            raise exporter.failure from None
        if CONCURRENT in str(error):
            raise JobFailed(
                "Another run of this export is in progress, and both use one checkpoint; the table is not harmed. "
                "Let one of them end, or stop it, and run this one again."
            ) from error
        raise
    ends = (progress["sources"][0]["endOffset"] for progress in reversed(query.recentProgress))
    last = next((one for one in ends if one), None)
    return {} if last is None else dict(json.loads(last)["shards"])
