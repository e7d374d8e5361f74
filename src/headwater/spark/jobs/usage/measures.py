"""What a usage report measures, each measure one aggregation over all messages, done by Spark."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import Window as Over
from pyspark.sql import functions as F

from headwater.spark.jobs.report import JobFailed

WINDOWS_MAX = 120
"""As many windows as fit side by side on a page."""
WINDOWS_KEPT_MAX = 100_000
"""As many as a report has, if somebody says how long they are: the driver holds them all, and so does the page."""
STEPS_SECONDS = (1, 5, 10, 30, 60, 300, 600, 1800, 3600, 3 * 3600, 6 * 3600, 12 * 3600, 86_400, 7 * 86_400)
"""Windows that people are used to."""
QUANTILES = (0.5, 0.95, 0.99)
ACCURACY = 1_000
"""Of quantiles: they are off by a thousandth of the ranks at most."""
STREAM = ("bucket", "stream")


class Totals(NamedTuple):
    """All messages together; times are in seconds since 1970."""

    streams: int
    messages: int
    bytes: int
    first_at: float
    last_at: float
    size_quantiles: tuple[float, ...]
    timed: int
    """Messages with a delay to measure."""
    delay_quantiles: tuple[float, ...] | None

    @property
    def seconds(self) -> float:
        return max(self.last_at - self.first_at, 1.0)


@dataclass(frozen=True, slots=True)
class Events:
    """The messages to be measured: bucket, stream, at (seconds since 1970), bytes, content_type, delay (seconds)."""

    rows: DataFrame
    event_time: bool
    """Whether the delay is from an event to its message, not from one message of a stream to the next."""


def events(rows: DataFrame, event_time: str | None) -> Events:
    """Rows of the source as events."""
    at = (F.unix_micros("committed_at") / 1_000_000).alias("at")
    size = (F.col("next_offset") - F.col("offset")).alias("bytes")
    if event_time is not None:
        delay = (F.unix_micros("committed_at") - F.unix_micros(event_moment(event_time))) / 1_000_000
    else:
        order = Over.partitionBy(*STREAM, "incarnation").orderBy("offset")
        before = F.lag("committed_at").over(order)
        delay = (F.unix_micros("committed_at") - F.unix_micros(before)) / 1_000_000
    kept = rows.select(*STREAM, at, "committed_at", size, "content_type", delay.alias("delay"))
    return Events(kept, event_time is not None)


def event_moment(field: str) -> Column:
    """The time in a field of a JSON message: a text in ISO 8601, or a number of seconds, or of smaller parts of one."""
    path = field if field.startswith("$") else f"$.{field}"
    text = F.get_json_object(F.make_valid_utf8(F.col("payload").cast("string")), path)
    number = text.try_cast("double")
    # Seconds are below 1e11 until the year 5138, milliseconds above that since 1973, and so on.
    seconds = (
        F.when(number > 1e17, number / 1e9)
        .when(number > 1e14, number / 1e6)
        .when(number > 1e11, number / 1e3)
        .otherwise(number)
    )
    return F.coalesce(F.timestamp_micros((seconds * 1_000_000).cast("long")), F.try_to_timestamp(text))


def span(events: Events) -> Totals | None:
    """All messages together; None if there are none."""
    row = events.rows.agg(
        F.count_distinct(*STREAM).alias("streams"),
        F.count("*").alias("messages"),
        F.sum("bytes").alias("bytes"),
        F.min("at").alias("first_at"),
        F.max("at").alias("last_at"),
        F.percentile_approx("bytes", list(QUANTILES), ACCURACY).alias("size_quantiles"),
        F.count("delay").alias("timed"),
        F.percentile_approx("delay", list(QUANTILES), ACCURACY).alias("delay_quantiles"),
    ).first()
    assert row is not None
    found = row.asDict()
    return Totals(**found) if found["messages"] else None


def step_of(seconds: float) -> int:
    """How long a window is, so that a page has room for all.

    >>> step_of(30), step_of(86_400), step_of(3 * 365 * 86_400)
    (1, 1800, 1209600)
    """
    fitting = (step for step in STEPS_SECONDS if seconds / step <= WINDOWS_MAX)
    week = STEPS_SECONDS[-1]
    return next(fitting, week * (1 + int(seconds / week / WINDOWS_MAX)))


def check_windows(span: Totals, step: int) -> None:
    """Raise JobFailed if there may be more windows than a report can have."""
    count = _windows_max(span, step)
    if count > WINDOWS_KEPT_MAX:
        fitting = (one for one in STEPS_SECONDS if _windows_max(span, one) <= WINDOWS_KEPT_MAX)
        enough = next(fitting, step_of(span.seconds))
        raise JobFailed(
            f"The messages lie in up to {count:,} windows of {step} seconds, and a report has at most "
            f"{WINDOWS_KEPT_MAX:,}; use --window {enough}, or leave it out."
        )


def _windows_max(span: Totals, step: int) -> int:
    """How many windows there may be with a message in each."""
    return min(int(span.last_at // step - span.first_at // step) + 1, span.messages)


def windows(events: Events, step: int) -> DataFrame:
    """What came in every span of `step` seconds in which anything came."""
    begins = (F.floor(F.col("at") / step) * step).cast("long").alias("begins")
    quantiles = F.percentile_approx("delay", list(QUANTILES), ACCURACY)
    return (
        events.rows.groupBy(begins)
        .agg(
            F.count("*").alias("messages"),
            F.sum("bytes").alias("bytes"),
            F.approx_count_distinct(F.concat_ws("/", *STREAM)).alias("streams"),
            quantiles.alias("delays"),
        )
        .select(
            F.timestamp_seconds("begins").alias("begins"),
            F.lit(step).alias("seconds"),
            "messages",
            "bytes",
            "streams",
            *(F.col("delays")[index].alias(f"delay_p{round(q * 100)}") for index, q in enumerate(QUANTILES)),
        )
        .orderBy("begins")
    )


def sessions(events: Events, gap_seconds: int) -> DataFrame:
    """Times without a longer pause than the gap, of every stream."""
    session = F.session_window("committed_at", f"{gap_seconds} seconds")
    found = events.rows.groupBy(*STREAM, session).agg(
        F.count("*").alias("messages"), F.sum("bytes").alias("bytes"), F.max("at").alias("last_at")
    )
    begins = F.unix_micros("session_window.start") / 1_000_000
    return found.select(*STREAM, "messages", "bytes", (F.col("last_at") - begins).alias("seconds"))


def streams(events: Events, sessions: DataFrame) -> DataFrame:
    """Every stream with what came to it."""
    counted = sessions.groupBy(*STREAM).agg(F.count("*").alias("sessions"), F.max("seconds").alias("longest_session"))
    delay = F.percentile_approx("delay", 0.5, ACCURACY).alias("delay_p50")
    told = events.rows.groupBy(*STREAM).agg(
        F.first("content_type").alias("content_type"),
        F.count("*").alias("messages"),
        F.sum("bytes").alias("bytes"),
        F.max("bytes").alias("largest"),
        F.min("committed_at").alias("first_at"),
        F.max("committed_at").alias("last_at"),
        delay,
    )
    return told.join(counted, [*STREAM], "left")


def session_facts(sessions: DataFrame) -> dict[str, Any]:
    """All sessions together."""
    row = sessions.agg(
        F.count("*").alias("sessions"),
        F.percentile_approx("seconds", list(QUANTILES), ACCURACY).alias("seconds"),
        F.percentile_approx("messages", list(QUANTILES), ACCURACY).alias("messages"),
    ).first()
    assert row is not None
    return row.asDict()


def histogram(rows: DataFrame, column: str, base: float) -> list[tuple[int, int]]:
    """How many values lie between which powers of the base: (exponent, count), those of zero and less left out."""
    exponent = F.floor(F.log(float(base), F.col(column))).alias("exponent")
    counted = rows.where(F.col(column) > 0).groupBy(exponent).count().orderBy("exponent")
    return [(int(row["exponent"]), int(row["count"])) for row in counted.collect()]


def shares(rows: DataFrame, column: str, top: int) -> list[dict[str, Any]]:
    """What came to each value of a column, the largest first."""
    counted = rows.groupBy(column).agg(
        F.count_distinct(*STREAM).alias("streams"), F.count("*").alias("messages"), F.sum("bytes").alias("bytes")
    )
    return [row.asDict() for row in counted.orderBy(F.desc("bytes"), column).limit(top).collect()]


def moment(seconds: float) -> datetime:
    """Seconds since 1970 as a time."""
    return datetime.fromtimestamp(seconds, UTC)
