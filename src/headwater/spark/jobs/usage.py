"""Report: two tables that say how streams are used, by stream and by time, and a page made from them."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import Window as Over
from pyspark.sql import functions as F

from headwater.spark.jobs.origin import Origin
from headwater.spark.jobs.report import JobFailed, Report
from headwater.units import render_duration

# -- Measures, each one aggregation over all messages ------------------------------------------------------------------


WINDOWS_MAX = 120
"""Windows that fit side by side on the page."""
STEPS_SECONDS = (1, 5, 10, 30, 60, 300, 600, 1800, 3600, 3 * 3600, 6 * 3600, 12 * 3600, 86_400, 7 * 86_400)
"""Window lengths that people are used to."""
QUANTILES = (0.5, 0.95, 0.99)
ACCURACY = 1_000
"""Of quantiles: their rank is off by at most a thousandth."""
STREAM = ("bucket", "stream")


def as_events(rows: DataFrame, event_time: str | None) -> DataFrame:
    """Rows of the source as events: bucket, stream, content_type, committed_at, bytes and delay (seconds or null).

    The delay runs from the time in a field of the message to its commit or, without such a field, from one message of
    a stream to the next.
    """
    if event_time is not None:
        since = _event_moment(event_time)
    else:
        since = F.lag("committed_at").over(Over.partitionBy(*STREAM, "incarnation").orderBy("offset"))
    delay = (F.unix_micros("committed_at") - F.unix_micros(since)) / 1_000_000
    size = F.col("next_offset") - F.col("offset")
    return rows.select(*STREAM, "content_type", "committed_at", size.alias("bytes"), delay.alias("delay"))


def _event_moment(field: str) -> Column:
    """The time in a field of a JSON message: ISO 8601, or a number of seconds, milli-, micro- or nanoseconds."""
    path = field if field.startswith("$") else f"$.{field}"
    text = F.get_json_object(F.make_valid_utf8(F.col("payload").cast("string")), path)
    number = text.try_cast("double")
    # Seconds stay below 1e11 until the year 5138; milliseconds have been above it since 1973, and so on.
    seconds = (
        F.when(number > 1e17, number / 1e9)
        .when(number > 1e14, number / 1e6)
        .when(number > 1e11, number / 1e3)
        .otherwise(number)
    )
    return F.coalesce(F.timestamp_micros((seconds * 1_000_000).cast("long")), F.try_to_timestamp(text))


def measure_totals(events: DataFrame) -> dict[str, Any]:
    """All messages together."""
    (row,) = (
        events.agg(
            *_sums(),
            F.count_distinct(*STREAM).alias("streams"),
            F.min("committed_at").alias("first_at"),
            F.max("committed_at").alias("last_at"),
            F.percentile_approx("bytes", 0.5, ACCURACY).alias("bytes_p50"),
            *_delays(),
        )
        .toArrow()
        .to_pylist()
    )
    return dict(row)


def measure_streams(events: DataFrame, session_gap_seconds: int) -> DataFrame:
    """One row per stream. A session is a time without a pause as long as the gap."""
    session = F.session_window("committed_at", f"{session_gap_seconds} seconds")
    sessions = events.groupBy(*STREAM, session).agg(F.max("committed_at").alias("ends"))
    seconds = (F.unix_micros("ends") - F.unix_micros("session_window.start")) / 1_000_000
    counted = sessions.groupBy(*STREAM).agg(F.count("*").alias("sessions"), F.max(seconds).alias("longest_session"))
    measured = events.groupBy(*STREAM).agg(
        F.first("content_type").alias("content_type"),
        *_sums(),
        F.max("bytes").alias("largest"),
        F.min("committed_at").alias("first_at"),
        F.max("committed_at").alias("last_at"),
        *_delays(),
    )
    return measured.join(counted, [*STREAM])


def measure_windows(events: DataFrame, step_seconds: int) -> DataFrame:
    """One row per window of `step_seconds` that has messages."""
    measured = events.groupBy(F.window("committed_at", f"{step_seconds} seconds").alias("window")).agg(
        *_sums(), F.approx_count_distinct(F.concat_ws("/", *STREAM)).alias("streams"), *_delays()
    )
    begins = F.col("window.start").alias("begins")
    return measured.select(begins, F.lit(step_seconds).alias("seconds"), *measured.columns[1:]).orderBy("begins")


def shares(streams: DataFrame, column: str, top: int) -> list[dict[str, Any]]:
    """The streams, messages and bytes of each value of a column, the largest first."""
    sums = F.count("*").alias("streams"), F.sum("messages").alias("messages"), F.sum("bytes").alias("bytes")
    counted = streams.groupBy(column).agg(*sums).orderBy(F.desc("bytes"), column)
    return list(counted.limit(top).toArrow().to_pylist())


def step_for(seconds: float) -> int:
    """The length of a window, so that the page has room for all of them.

    >>> step_for(30), step_for(86_400), step_for(3 * 365 * 86_400)
    (1, 1800, 1209600)
    """
    fitting = (step for step in STEPS_SECONDS if seconds / step <= WINDOWS_MAX)
    week = STEPS_SECONDS[-1]
    return next(fitting, week * (1 + int(seconds / week / WINDOWS_MAX)))


def _sums() -> list[Column]:
    return [F.count("*").alias("messages"), F.sum("bytes").alias("bytes")]


def _delays() -> list[Column]:
    found = F.percentile_approx("delay", list(QUANTILES), ACCURACY)
    return [found[index].alias(f"delay_p{round(quantile * 100)}") for index, quantile in enumerate(QUANTILES)]


# -- The page: one HTML file without scripts, for light and dark screens and for paper ---------------------------------


Row = Mapping[str, Any]
CHARTS = ("messages", "bytes", "streams", "delay_p95")
BAR = "bytes"
STYLE = """
:root { color-scheme: light dark; font: 15px/1.45 system-ui, sans-serif; }
body { max-width: 1080px; margin: 2rem auto; padding: 0 1rem; }
h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; } h2 small { font-weight: normal; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; break-inside: avoid; }
th, td { text-align: left; padding: .3rem .7rem; border-bottom: 1px solid #8884; }
td { overflow-wrap: anywhere; } td.number { text-align: right; white-space: nowrap; }
meter { width: 6rem; margin-right: .7rem; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(460px, 1fr)); column-gap: 2rem; }
figure { margin: 0; break-inside: avoid; } figcaption { display: flex; justify-content: space-between; }
.chart { display: flex; align-items: flex-end; gap: 1px; height: 7rem; border-bottom: 1px solid; }
.chart i { flex: 1; background: steelblue; print-color-adjust: exact; } .chart i:hover { background: darkorange; }
"""


def render(title: str, facts: Row, windows: Sequence[Row], tables: Mapping[str, Sequence[Row]]) -> str:
    """A page with facts, a chart of each measure over time, and tables with the columns that their rows have."""
    parts = [
        _table([{"": _words(name), " ": value} for name, value in facts.items()]),
        f'<div class="charts">{"".join(_chart(name, windows) for name in CHARTS)}</div>',
        *(f"<h2>{escape(name)}</h2>{_table(rows)}" for name, rows in tables.items()),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n<body><h1>{escape(title)}</h1>\n"
        + "\n".join(parts)
        + f"\n<p>Made by headwater spark report on {shown(datetime.now(UTC))}.</p></body></html>\n"
    )


def _chart(name: str, windows: Sequence[Row]) -> str:
    """One column for each of the newest windows, those without messages included."""
    known = {row["begins"]: max(row[name] or 0, 0) for row in windows}
    last, step = max(known), timedelta(seconds=windows[0]["seconds"])
    times = [last - step * back for back in reversed(range(WINDOWS_MAX)) if last - step * back >= min(known)]
    values = [known.get(at, 0) for at in times]
    peak = max(values)
    columns = "".join(
        f'<i style="height:{100 * value / (peak or 1):.1f}%" title="{shown(at)}: {shown(value)}"></i>'
        for at, value in zip(times, values, strict=True)
    )
    note = f"in windows of {render_duration(step.total_seconds())}, at most {shown(peak)}"
    ends = f"<span>{shown(times[0])}</span><span>{shown(last)}</span>"
    return (
        f"<figure><h2>{_words(name)} <small>{note}</small></h2>"
        f'<div class="chart">{columns}</div><figcaption>{ends}</figcaption></figure>'
    )


def _table(rows: Sequence[Row]) -> str:
    heads = "".join(f"<th>{_words(name)}</th>" for name in rows[0])
    most = max(row.get(BAR, 0) for row in rows) or 1
    body = "".join(f"<tr>{''.join(_cell(name, value, most) for name, value in row.items())}</tr>" for row in rows)
    return f"<table><tr>{heads}</tr>{body}</table>"


def _cell(name: str, value: Any, most: int) -> str:
    if not isinstance(value, int | float):
        return f"<td>{escape(shown(value))}</td>"
    bar = f'<meter value="{value / most:.3f}"></meter>' if name == BAR else ""
    return f'<td class="number">{bar}{shown(value)}</td>'


def _words(name: str) -> str:
    return escape(name.replace("_", " "))


def shown(value: Any) -> str:
    """A value for a person.

    >>> shown(12_345), shown(1234.5678), shown(0.25), shown(None)
    ('12,345', '1,234.568', '0.25', '-')
    """
    match value:
        case None:
            return "-"
        case datetime():
            return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        case float():
            return f"{value:,.3f}".rstrip("0").rstrip(".")
        case int():
            return f"{value:,}"
    return str(value)


# -- The job -----------------------------------------------------------------------------------------------------------


PAGE = "report.html"
STREAMS = "streams.parquet"
WINDOWS = "windows.parquet"
TOP = 20
SESSION_GAP_SECONDS = 300
COLUMNS = ("bucket", "stream", "incarnation", "offset", "next_offset", "committed_at", "content_type")
LARGEST = (*STREAM, "bytes", "messages", "largest", "sessions", "delay_p50", "last_at")
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
    events = as_events(rows, config.event_time).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        totals = measure_totals(events)
        if not totals["messages"]:
            raise JobFailed("The selected streams have no messages, so there is nothing to report.")
        span = totals["last_at"] - totals["first_at"]
        step = config.window_seconds or step_for(span.total_seconds())
        streams = _write(measure_streams(events, config.session_gap_seconds), folder / STREAMS)
        windows = _write(measure_windows(events, step).coalesce(1), folder / WINDOWS)
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
    largest = streams.select(*LARGEST).orderBy(F.desc("bytes"), *STREAM).limit(config.top)
    return render(
        f"Usage of {chosen}",
        {"server": origin.url, **totals, "delays_in_seconds": delay},
        windows.orderBy(F.desc("begins")).limit(WINDOWS_MAX).toArrow().to_pylist(),
        {
            "Largest streams": largest.toArrow().to_pylist(),
            "Buckets": shares(streams, "bucket", config.top),
            "Content types": shares(streams, "content_type", config.top),
        },
    )
