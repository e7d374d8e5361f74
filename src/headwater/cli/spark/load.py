"""`headwater spark load`: files into streams."""

from typing import TYPE_CHECKING, Any

import click

from headwater.cli.commands import verb
from headwater.cli.spark.command import checked_job
from headwater.cli.spark.options import PARTITIONS, pairs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headwater.spark.jobs.report import Report


def _check(**options: Any) -> None:
    """The checks that need no Spark."""
    from headwater.spark.jobs.load.job import LoadConfig, prepare  # noqa: PLC0415

    prepare(LoadConfig(**options))


@verb(
    "headwater spark load orders.csv --name orders --format csv --bucket shop --key customer",
    "headwater spark load events/ --name events --format json --stream \"concat('shop/', user)\" --order at",
)
@click.argument("paths", nargs=-1, required=True)
@click.option("--name", required=True, help="The job's name: files that it has loaded are not loaded again.")
@click.option(
    "--format", type=click.Choice(["csv", "json", "parquet", "orc"]), required=True, help="The format of the files."
)
@click.option("--bucket", help="The bucket of the streams, unless their names include it.")
@click.option("--stream", help="Expression for the stream's name.")
@click.option("--key", help="Expression for the last part of the stream's name, instead of --stream.")
@click.option("--prefix", default="", help="The part of the name before the key.")
@click.option("--value", help="Expression for the message.  [default: the row as JSON]")
@click.option("--order", multiple=True, help="Expression to sort the rows of a stream by; repeatable.")
@click.option("--content-type", help="The content type of new streams.  [default: application/json for text messages]")
@click.option("--close", is_flag=True, help="Close the streams after writing them.")
@click.option("--schema", help="The columns of the files: 'id long, at timestamp'.")
@pairs("--read", "An option of Spark's file reader, name=value; repeatable.", name="reading")
@pairs("--option", "An option of the Headwater sink, name=value; repeatable.", name="options")
@PARTITIONS
@checked_job(_check)
def load(spark: "SparkSession", **options: Any) -> "Report":
    """Append the rows of files to streams, each exactly once.

    PATHS are files, folders or glob patterns. Expressions are Spark SQL over the columns of the files. A run may be
    killed at any time and started again; the next run loads files that were added since.
    """
    from headwater.spark.jobs.load.job import LoadConfig, run  # noqa: PLC0415

    return run(spark, LoadConfig(**options))
