"""`headwater spark report`: who writes how much when, as a page with plots and as tables."""

from typing import TYPE_CHECKING, Any

import click

from headwater.cli.spark.command import job
from headwater.cli.spark.origin import with_origin

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headwater.spark.jobs.origin import Origin
    from headwater.spark.jobs.report import Report


@click.command()
@click.option("--to", required=True, help="A folder for the page and its tables; an earlier report there is replaced.")
@click.option("--event-time", help="The field of JSON messages that says when it happened, to measure delays by.")
@click.option("--window", "window_seconds", type=click.IntRange(1), help="Seconds of a window, if not as they fit.")
@click.option(
    "--session-gap",
    "session_gap_seconds",
    type=click.IntRange(1),
    default=300,
    show_default=True,
    help="Seconds of silence that end a session.",
)
@click.option("--top", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many streams to list.")
@job
@with_origin
def report(spark: "SparkSession", *, origin: "Origin", **rest: Any) -> "Report":
    """Measure streams: messages, bytes, rates, delays, sessions.

    Writes a page with plots that needs nothing else, and tables in Parquet beside it.
    """
    from headwater.spark.jobs.usage.job import UsageConfig, run  # noqa: PLC0415

    return run(spark, UsageConfig(origin, **rest))
