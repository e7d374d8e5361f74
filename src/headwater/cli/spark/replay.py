"""`headwater spark replay`: streams into streams."""

from typing import TYPE_CHECKING, Any

import click

from headwater.cli.spark.command import job
from headwater.cli.spark.origin import split_options, with_origin

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headwater.spark.jobs.origin import Origin
    from headwater.spark.jobs.report import Report


@click.command()
@click.option("--to", help="The server that gets the streams; the same if left out.")
@click.option("--name", required=True, help="Of the job: what was copied under it once is not copied again.")
@click.option("--checkpoint", required=True, help="The folder where Spark keeps how far it has come.")
@click.option("--into", help="A bucket for all streams, instead of their own.")
@click.option(
    "--rename",
    nargs=2,
    multiple=True,
    metavar="PATTERN REPLACEMENT",
    help="What to replace in whole names; a regular expression, $1 is its first group. Repeatable.",
)
@click.option("--close", is_flag=True, help="Close the copies of streams that are closed.")
@click.option("--sink", multiple=True, callback=split_options, help="An option of the sink, name=value.")
@click.option("--partitions", type=click.IntRange(1), help="How many tasks write.")
@click.option(
    "--batch-mib", type=click.IntRange(1), default=256, show_default=True, help="MiB of messages in a batch, about."
)
@job
@with_origin
def replay(
    spark: "SparkSession", *, origin: "Origin", to: str | None, sink: dict[str, str], batch_mib: int, **rest: Any
) -> "Report":
    """Copy what is new in streams into other ones, every message once and in order.

    It may be killed at any time and started again: with the same name and checkpoint it goes on where it was.
    """
    from headwater.spark.jobs.replay import ReplayConfig, run  # noqa: PLC0415

    config = ReplayConfig(origin, to or origin.url, options=sink, batch_bytes=batch_mib * 1024 * 1024, **rest)
    return run(spark, config)
