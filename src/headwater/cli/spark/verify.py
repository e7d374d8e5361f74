"""`headwater spark verify`: compare the server, its lake and an export."""

from typing import TYPE_CHECKING, Any

import click

from headwater.cli.commands import verb
from headwater.cli.spark.command import checked_job
from headwater.cli.spark.options import iceberg, with_origin

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headwater.spark.jobs.origin import Origin
    from headwater.spark.jobs.report import Report


@with_origin
def _check(*, origin: "Origin", **rest: Any) -> None:
    """The checks that need no Spark."""
    from headwater.spark.jobs.verify.job import VerifyConfig, prepare  # noqa: PLC0415

    prepare(VerifyConfig(origin, **rest))


@verb("headwater spark verify --bucket shop", "headwater spark verify --export tables/shop --hashes hashes")
@click.option("--export", help="An export to compare too; its streams are verified if no streams are selected.")
@iceberg
@click.option("--hashes", help="A folder for a Parquet table with the hashes of every stream.")
@click.option(
    "--problems",
    "problems_max",
    type=click.IntRange(1),
    default=100,
    show_default=True,
    help="How many problems to list and to inspect message by message.",
)
@checked_job(_check)
@with_origin
def verify(spark: "SparkSession", *, origin: "Origin", **rest: Any) -> "Report":
    """Account for every message of every stream.

    Compares the server, its lake and an export. The exit code is 1 if any message is missing, extra, changed or out of
    order.
    """
    from headwater.spark.jobs.verify.job import VerifyConfig, run  # noqa: PLC0415

    return run(spark, VerifyConfig(origin, **rest))
