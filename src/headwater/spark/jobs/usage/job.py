"""Report: two tables that say how streams are used, by stream and by time, and a page made from them."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater.spark.jobs.origin import Origin
from headwater.spark.jobs.report import JobFailed, Report
from headwater.spark.jobs.usage import measures
from headwater.spark.jobs.usage.page import render

PAGE = "report.html"
STREAMS = "streams.parquet"
WINDOWS = "windows.parquet"
TOP = 20
SESSION_GAP_SECONDS = 300
COLUMNS = ("bucket", "stream", "incarnation", "offset", "next_offset", "committed_at", "content_type")
LARGEST = (*measures.STREAM, "bytes", "messages", "largest", "sessions", "delay_p50", "last_at")
"""The columns of the streams that the page lists."""


@dataclass(frozen=True, slots=True)
class UsageConfig:
    """What to report on, and where to write it."""

    origin: Origin
    to: str
    """A folder; an earlier report in it is replaced."""
    event_time: str | None = None
    """The field of JSON messages that holds the time of the event."""
    window_seconds: int | None = None
    session_gap_seconds: int = SESSION_GAP_SECONDS
    top: int = TOP


class Prepared(NamedTuple):
    """What is known of a report before Spark starts."""

    folder: Path
    options: dict[str, str]
    """Those of the source: payloads are read only if they hold the time of the event."""


def prepare(config: UsageConfig) -> Prepared:
    """Make all checks that need no Spark, and write nothing; JobFailed if one fails."""
    folder = Path(config.to).absolute()
    if "://" in config.to or (folder.exists() and not folder.is_dir()):
        raise JobFailed(f"{config.to!r} is not a local folder; a report can only be written to one.")
    with config.origin.link() as link:
        via = "live" if link.log().lake_url is None else "lake"
    columns = ",".join((*COLUMNS, "payload") if config.event_time else COLUMNS)
    config.origin.parsed(via=via, columns=columns)
    return Prepared(folder, config.origin.source_options(via=via, columns=columns))


def run(spark: SparkSession, config: UsageConfig) -> Report:
    """Measure streams, and write two tables and a page."""
    began = time.monotonic()
    folder, options = prepare(config)
    rows = spark.read.format("headwater").options(**options).load()
    events = measures.events(rows, config.event_time).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        totals = measures.totals(events)
        if not totals["messages"]:
            raise JobFailed("The selected streams have no messages, so there is nothing to report.")
        span = totals["last_at"] - totals["first_at"]
        step = config.window_seconds or measures.step_for(span.total_seconds())
        streams = _write(measures.streams(events, config.session_gap_seconds), folder / STREAMS)
        windows = _write(measures.windows(events, step).coalesce(1), folder / WINDOWS)
    finally:
        events.unpersist()
    sessions = streams.agg(F.sum("sessions")).collect()[0][0]
    (folder / PAGE).write_text(_page(config, {**totals, "sessions": sessions}, streams, windows))
    facts = {
        **{name: totals[name] for name in ("streams", "messages", "bytes")},
        "first": totals["first_at"].isoformat(),
        "last": totals["last_at"].isoformat(),
        "windows": windows.count(),
        "window_seconds": step,
        "sessions": sessions,
        "page": str(folder / PAGE),
        "table": str(folder / STREAMS),
        "seconds": round(time.monotonic() - began, 3),
    }
    return Report("report", facts)


def _write(table: DataFrame, path: Path) -> DataFrame:
    """Store a table, and read it from there."""
    table.write.mode("overwrite").parquet(path.as_uri())
    return table.sparkSession.read.parquet(path.as_uri())


def _page(config: UsageConfig, totals: dict[str, Any], streams: DataFrame, windows: DataFrame) -> str:
    origin = config.origin
    chosen = origin.bucket or origin.prefix or origin.pattern or f"{len(origin.streams)} streams"
    delay = "from one message of a stream to the next"
    if config.event_time is not None:
        delay = f"from the time in the field '{config.event_time}' to the commit"
    largest = streams.select(*LARGEST).orderBy(F.desc("bytes"), *measures.STREAM).limit(config.top)
    return render(
        f"Usage of {chosen}",
        {"server": origin.url, **totals, "delays_in_seconds": delay},
        windows.orderBy(F.desc("begins")).limit(measures.WINDOWS_MAX).toArrow().to_pylist(),
        {
            "Largest streams": largest.toArrow().to_pylist(),
            "Buckets": measures.shares(streams, "bucket", config.top),
            "Content types": measures.shares(streams, "content_type", config.top),
        },
    )
