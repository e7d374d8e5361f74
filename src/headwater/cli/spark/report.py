"""`headwater spark report`: how streams are used, as tables and as a page."""

from typing import TYPE_CHECKING, Any

import click

from headwater.cli.commands import verb
from headwater.cli.spark.command import checked_job
from headwater.cli.spark.options import with_origin

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headwater.spark.jobs.origin import Origin
    from headwater.spark.jobs.report import Report


@with_origin
def _check(*, origin: "Origin", **rest: Any) -> None:
    """The checks that need no Spark."""
    from headwater.spark.jobs.usage.job import UsageConfig, prepare  # noqa: PLC0415

    prepare(UsageConfig(origin, **rest))


@verb(
    "headwater spark report --bucket shop --to usage",
    "headwater spark report --bucket shop --to usage --event-time at",
)
@click.option("--to", required=True, help="A folder for the tables and the page; an earlier report is replaced.")
@click.option("--event-time", help="The field of JSON messages with the time of the event, to measure delays from.")
@click.option(
    "--window", "window_seconds", type=click.IntRange(1), help="Length of a window, in seconds.  [default: fits a page]"
)
@click.option(
    "--session-gap",
    "session_gap_seconds",
    type=click.IntRange(1),
    default=300,
    show_default=True,
    help="A pause of this many seconds ends a session.",
)
@click.option("--top", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many streams to list.")
@checked_job(_check)
@with_origin
def report(spark: "SparkSession", *, origin: "Origin", **rest: Any) -> "Report":
    """Measure messages, bytes, delays and sessions of streams.

    Writes two Parquet tables, one row per stream and one per window of time, and a self-contained HTML page.
    """
    from headwater.spark.jobs.usage.job import UsageConfig, run  # noqa: PLC0415

    return run(spark, UsageConfig(origin, **rest))
