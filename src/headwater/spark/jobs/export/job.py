"""Export: streams as a table that grows, in Parquet, Delta or Iceberg, every message in it exactly once."""

import json
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headwater.spark.jobs.export.batches import Exporter
from headwater.spark.jobs.export.ledger import claim, default_checkpoint
from headwater.spark.jobs.export.shape import Shape
from headwater.spark.jobs.export.tables import FORMATS, Table, TableOptions
from headwater.spark.jobs.origin import Origin
from headwater.spark.jobs.places import Place, open_place
from headwater.spark.jobs.report import Fact, JobFailed, Report

BATCH_BYTES = 256 * 1024 * 1024
"""Payload of a batch, about: a kill costs no more work than that."""
TAKEN = frozenset(("via", "columns", "value", "readername", "startingoffsets", "maxbytespertrigger", "ontrimmed"))
"""Options of the source that an export gives itself, in small letters: it would not be exact with others."""
LOOK_SECONDS = 1
"""How often the wait for a query lets go, so that Ctrl-C is heard."""


@dataclass(frozen=True, slots=True)
class ExportConfig:
    """What to export where, and as what."""

    origin: Origin
    to: str
    format: Literal["parquet", "delta", "iceberg"] = "parquet"
    shape: Shape = field(default_factory=Shape)
    name: str | None = None
    """Of the export, and of the reader that the server knows it by; made up for a new table."""
    checkpoint: str | None = None
    catalog: str | None = None
    """Of Iceberg: the URI of a catalog, and the table's name in it."""
    table: str | None = None
    batch_bytes: int = BATCH_BYTES


def run(spark: SparkSession, config: ExportConfig) -> Report:
    """Export what is new since the last run, in batches, and say how much that was."""
    began = time.monotonic()
    _check(config)
    place = _open(config.to)
    checkpoint = _folder(config.checkpoint) if config.checkpoint else default_checkpoint(place)
    name, mark = claim(place, _identity(config), config.name)
    rows = config.shape.apply(_stream(spark, config, name))
    table = open_table(config.format, place, TableOptions(mark, rows.schema, config.catalog, config.table))
    # Asked before any row is read: if the table is another export's it is said here.
    position = table.position
    exporter = Exporter(place, table)
    query = (
        rows.writeStream.foreachBatch(exporter)
        .queryName(name)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    positions = _finish(query, exporter)
    if positions:
        # Spark tells the source of a batch when it begins the next one, and of the last one never.
        with config.origin.link() as link:
            link.register(name, positions)
    counts = exporter.counts
    facts: dict[str, Fact] = {
        "export": name,
        "table": place.url,
        "batches": counts.batches,
        "repeated_batches": counts.repeated,
        "streams": exporter.count_streams(spark),
        "rows": counts.rows,
        "bytes": counts.bytes,
        "files": counts.files,
        "position": max(positions.values(), default=position),
        "seconds": round(time.monotonic() - began, 3),
    }
    return Report("export", facts)


def open_table(kind: str, place: Place, options: TableOptions) -> Table:
    """The table of a kind at a place."""
    if kind == "parquet":
        from headwater.spark.jobs.export.parquet import ParquetTable  # noqa: PLC0415

        return ParquetTable(place, options)
    if kind == "delta":
        from headwater.spark.jobs.export.delta import DeltaExport  # noqa: PLC0415

        return DeltaExport(place, options)
    from headwater.spark.jobs.export.iceberg import IcebergExport  # noqa: PLC0415

    return IcebergExport(place, options)


def _check(config: ExportConfig) -> None:
    if config.format not in FORMATS:
        raise JobFailed(f"There is no format {config.format!r}; there are {', '.join(FORMATS)}.")
    if config.shape.variant and config.format != "parquet":
        raise JobFailed(f"VARIANT columns are for Parquet; a table of {config.format} takes --schema.")
    if config.format != "iceberg" and (config.catalog or config.table):
        raise JobFailed("The options --catalog and --table are for Iceberg, whose tables stand in catalogs.")
    taken = next((name for name in config.origin.options if name.lower() in TAKEN), None)
    if taken is not None:
        raise JobFailed(f"The option {taken} of the source is up to the export itself; leave it out.")
    config.shape.check()
    # What the source would refuse is better said before anything is made.
    config.origin.parsed(via="lake")


def _open(url: str) -> Place:
    try:
        return open_place(url)
    except ValueError as problem:
        raise JobFailed(str(problem)) from problem


def _folder(path: str) -> str:
    """A folder by its URL: where a relative path leads is for us to say, Spark may run in another folder."""
    return path if "://" in path else Path(path).absolute().as_uri()


def _identity(config: ExportConfig) -> dict[str, Any]:
    """What makes this export this one, and the next run the same."""
    with config.origin.link() as link:
        status = link.status()
    if status.get("lake") is None:
        raise JobFailed(f"The server at {config.origin.url} has no lake to export from; start it with --data.")
    selection = {name.lower(): value for name, value in config.origin.source_options().items()}
    chosen = ("bucket", "prefix", "streams", "streamsPattern", "startingTimestamp", "endingTimestamp")
    return {
        "log_id": status["log_id"],
        "format": config.format,
        "selection": {name: selection[name.lower()] for name in chosen if name.lower() in selection},
        "shape": asdict(config.shape),
        "catalog": None if config.catalog is None else catalog_name(config.catalog),
        "table": config.table,
    }


def catalog_name(uri: str) -> str:
    """The URI of a catalog without what may be secret in it.

    >>> catalog_name("postgresql://me:secret@db:5432/lake?password=secret")
    'postgresql://db:5432/lake'
    """
    address, _, _ = uri.partition("?")
    scheme, colon, rest = address.partition("://")
    authority, slash, path = rest.partition("/")
    return f"{scheme}{colon}{authority.rpartition('@')[2]}{slash}{path}"


def _stream(spark: SparkSession, config: ExportConfig, name: str) -> DataFrame:
    options = config.origin.source_options(
        via="lake", readerName=name, startingOffsets="earliest", maxBytesPerTrigger=str(config.batch_bytes)
    )
    if "startingtimestamp" in map(str.lower, options):
        del options["startingOffsets"]
    return spark.readStream.format("headwater").options(**options).load()


def _finish(query: StreamingQuery, exporter: Exporter) -> dict[str, int]:
    """Wait until everything there was has been exported: up to which position, by shard, if there was anything."""
    try:
        while not query.awaitTermination(LOOK_SECONDS):
            pass
    except StreamingQueryException:
        if exporter.failure is not None:
            raise exporter.failure from None
        raise
    finally:
        if query.isActive:
            query.stop()
    ends = (progress["sources"][0]["endOffset"] for progress in reversed(query.recentProgress))
    last = next((one for one in ends if one), None)
    return {} if last is None else dict(json.loads(last)["shards"])
