"""The measures of a usage report, each one aggregation over all messages."""

from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import Window as Over
from pyspark.sql import functions as F

WINDOWS_MAX = 120
"""Windows that fit side by side on the page."""
STEPS_SECONDS = (1, 5, 10, 30, 60, 300, 600, 1800, 3600, 3 * 3600, 6 * 3600, 12 * 3600, 86_400, 7 * 86_400)
"""Window lengths that people are used to."""
QUANTILES = (0.5, 0.95, 0.99)
ACCURACY = 1_000
"""Of quantiles: their rank is off by at most a thousandth."""
STREAM = ("bucket", "stream")


def events(rows: DataFrame, event_time: str | None) -> DataFrame:
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


def totals(events: DataFrame) -> dict[str, Any]:
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


def streams(events: DataFrame, session_gap_seconds: int) -> DataFrame:
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


def windows(events: DataFrame, step_seconds: int) -> DataFrame:
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
