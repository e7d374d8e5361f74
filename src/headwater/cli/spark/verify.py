"""`headwater spark verify`: the server against its lake against an export."""

from typing import TYPE_CHECKING, Any

import click

from headwater.cli.spark.command import job
from headwater.cli.spark.origin import with_origin

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headwater.spark.jobs.origin import Origin
    from headwater.spark.jobs.report import Report


@click.command()
@click.option("--export", help="An export to compare too; without a choice of streams, its streams are verified.")
@click.option(
    "--catalog", help="Of an export to Iceberg: the URI of its catalog, if that is not a file with the table."
)
@click.option("--table", help="Of an export to Iceberg: its name in the catalog.")
@click.option("--hashes", help="A folder for a Parquet table with the hashes of every stream.")
@click.option(
    "--problems",
    "problems_max",
    type=click.IntRange(1),
    default=100,
    show_default=True,
    help="How many problems to tell, and to look at message by message.",
)
@job
@with_origin
def verify(spark: "SparkSession", *, origin: "Origin", **rest: Any) -> "Report":
    """Account for every message of every stream, on the server, in its lake and in an export.

    Ends with exit code 1 if anything is missing, extra, changed or out of order.
    """
    from headwater.spark.jobs.verify.job import VerifyConfig, run  # noqa: PLC0415

    return run(spark, VerifyConfig(origin, **rest))
