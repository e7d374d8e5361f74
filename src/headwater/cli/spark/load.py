"""`headwater spark load`: files into streams."""

from typing import TYPE_CHECKING, Any

import click

from headwater.cli.spark.command import URL, job
from headwater.cli.spark.origin import split_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headwater.spark.jobs.report import Report


@click.command()
@click.argument("paths", nargs=-1, required=True)
@URL
@click.option("--name", required=True, help="Of the job: what is loaded under it once is not loaded again.")
@click.option("--format", type=click.Choice(["csv", "json", "parquet", "orc"]), required=True, help="Of the files.")
@click.option("--bucket", help="The bucket of the streams, if their names do not say it.")
@click.option("--stream", help="Expression for the name of a row's stream.")
@click.option("--key", help="Expression for the end of that name, a stream for each key, instead of --stream.")
@click.option("--prefix", default="", help="What stands before the keys.")
@click.option("--value", help="Expression for the message; if left out, the row as JSON.")
@click.option("--order", multiple=True, help="Expression to sort the rows of a stream by; repeatable.")
@click.option("--content-type", help="Of new streams; application/json if left out and messages are text.")
@click.option("--close", is_flag=True, help="Close the streams that were written.")
@click.option("--schema", help="The columns of the files: 'id long, at timestamp'.")
@click.option(
    "--read", "reading", multiple=True, callback=split_options, help="An option of Spark's reader, name=value."
)
@click.option("--option", "options", multiple=True, callback=split_options, help="An option of the sink, name=value.")
@click.option("--partitions", type=click.IntRange(1), help="How many tasks write.")
@job
def load(spark: "SparkSession", **options: Any) -> "Report":
    """Put the rows of files into streams, every row once.

    PATHS are files, folders or patterns. Expressions are Spark's SQL over the columns of the files. It may be killed at
    any time and started again; files that have come since the last run are loaded by the next.
    """
    from headwater.spark.jobs.load.job import LoadConfig, run  # noqa: PLC0415

    return run(spark, LoadConfig(**options))
