"""Export: append streams to a Parquet, Delta or Iceberg table that holds every message exactly once."""

import json
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headwater.spark.jobs.export.batches import Exporter, Stopped, Widening
from headwater.spark.jobs.export.ledger import all_columns, check_claim, claim, default_checkpoint
from headwater.spark.jobs.export.shape import Shape
from headwater.spark.jobs.export.tables import FORMATS, Table, TableOptions, check_types
from headwater.spark.jobs.export.widening import check_widening
from headwater.spark.jobs.origin import Origin, find_lake
from headwater.spark.jobs.paths import open_location, spark_path
from headwater.spark.jobs.queries import BATCH_BYTES, finish, start_at_earliest, stop_between_batches
from headwater.spark.jobs.report import Fact, JobFailed, Report
from headwater.storage.store import TableStore

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
    """Of the export and of its registered consumer; generated for a new table if None."""
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
