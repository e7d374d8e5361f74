"""Report: who writes how much when, as a page with plots and as tables."""

import os
import secrets
import time
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater.spark.jobs.origin import Origin
from headwater.spark.jobs.report import JobFailed, Report
from headwater.spark.jobs.usage import measures
from headwater.spark.jobs.usage.page import page
from headwater.spark.jobs.usage.sections import Usage, sections

PAGE = "report.html"
STREAMS = "streams.parquet"
WINDOWS = "windows.parquet"
TOP = 20
SESSION_GAP_SECONDS = 300
"""The pause that ends a session, unless told otherwise: somebody has gone away."""

COLUMNS = ("bucket", "stream", "incarnation", "offset", "next_offset", "committed_at", "content_type")


@dataclass(frozen=True, slots=True)
class UsageConfig:
    """What to report on, and where to write it."""

    origin: Origin
    to: str
    """A folder; what an earlier report has written there is replaced."""
    event_time: str | None = None
    """The field of JSON messages that says when what they tell of happened."""
    window_seconds: int | None = None
    session_gap_seconds: int = SESSION_GAP_SECONDS
    top: int = TOP


def run(spark: SparkSession, config: UsageConfig) -> Report:
    """Measure streams, and write a page and two tables."""
    began = time.monotonic()
    folder = Path(config.to).absolute()
    if "://" in config.to or (folder.exists() and not folder.is_dir()):
        raise JobFailed(f"A report is written into a folder, and {config.to!r} is none.")
    events = measures.events(_rows(spark, config), config.event_time)
    kept = measures.Events(events.rows.persist(StorageLevel.MEMORY_AND_DISK), events.event_time)
    try:
        usage, windows = _measure(kept, config, folder)
    finally:
        kept.rows.unpersist()
    folder.mkdir(parents=True, exist_ok=True)
    _replace(folder / PAGE, _page(usage, config).encode())
    span = usage.span
    facts = {
        "streams": span.streams,
        "messages": span.messages,
        "bytes": span.bytes,
        "first": measures.moment(span.first_at).isoformat(),
        "last": measures.moment(span.last_at).isoformat(),
        "windows": windows,
        "window_seconds": usage.step,
        "sessions": usage.sessions["sessions"],
        "page": str(folder / PAGE),
        "table": str(folder / STREAMS),
        "seconds": round(time.monotonic() - began, 3),
    }
    return Report("report", facts)


def _rows(spark: SparkSession, config: UsageConfig) -> DataFrame:
    """The rows to measure; their payloads too, if there is a time in them."""
    with config.origin.link() as link:
        via = "live" if link.status().get("lake") is None else "lake"
    columns = ",".join((*COLUMNS, "payload") if config.event_time else COLUMNS)
    options = config.origin.source_options(via=via, columns=columns)
    config.origin.parsed(via=via, columns=columns)
    return spark.read.format("headwater").options(**options).load()


def _measure(events: measures.Events, config: UsageConfig, folder: Path) -> tuple[Usage, int]:
    span = measures.span(events)
    if span is None:
        raise JobFailed("There is no message in the streams that were chosen; there is nothing to report on.")
    step = config.window_seconds or measures.step_of(span.last_at - span.first_at)
    measures.check_windows(span, step)
    windows = measures.windows(events, step).toArrow()
    sessions = measures.sessions(events, config.session_gap_seconds).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        measures.streams(events, sessions).write.mode("overwrite").parquet((folder / STREAMS).as_uri())
        table = events.rows.sparkSession.read.parquet((folder / STREAMS).as_uri())
        usage = Usage(
            span,
            config.event_time,
            step,
            windows.to_pylist(),
            config.session_gap_seconds,
            measures.session_facts(sessions),
            measures.histogram(sessions, "seconds", 10),
            measures.histogram(events.rows, "bytes", 2),
            measures.histogram(events.rows, "delay", 10),
            [row.asDict() for row in table.orderBy(F.desc("bytes"), "bucket", "stream").limit(config.top).collect()],
            measures.shares(events.rows, "bucket", config.top),
            measures.shares(events.rows, "content_type", config.top),
        )
    finally:
        sessions.unpersist()
    pq.write_table(windows, folder / WINDOWS)
    return usage, len(windows)


def _page(usage: Usage, config: UsageConfig) -> str:
    origin, span = config.origin, usage.span
    chosen = origin.bucket or origin.prefix or origin.pattern or f"{len(origin.streams)} streams"
    times = " to ".join(measures.moment(at).strftime("%Y-%m-%d %H:%M") for at in (span.first_at, span.last_at))
    made = measures.moment(time.time()).strftime("%Y-%m-%d %H:%M")
    under = f"{origin.url}, messages of {times} (UTC)"
    foot = f"Made by headwater spark report on {made} UTC. The tables beside this page are {STREAMS} and {WINDOWS}."
    return page(f"Streams of {chosen}", under, *sections(usage), foot=foot)


def _replace(path: Path, data: bytes) -> None:
    """Write a file that is never seen by halves."""
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    part.write_bytes(data)
    os.replace(part, path)
