"""`headwater spark export`: streams as a table that grows."""

from typing import TYPE_CHECKING, Any

import click

from headwater.cli.examples import examples
from headwater.cli.spark.command import job
from headwater.cli.spark.options import BATCH, iceberg, with_origin

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headwater.spark.jobs.origin import Origin
    from headwater.spark.jobs.report import Report


@click.command(
    epilog=examples(
        "headwater spark export --bucket shop --to tables/shop",
        "headwater spark export --bucket shop --to s3://lake/shop --format delta --checkpoint /srv/shop",
        "headwater spark export --prefix shop/orders- --to tables/orders --schema 'id long, item string'",
    )
)
@click.option("--to", required=True, help="Where the table is: a folder, or s3://bucket/prefix.")
@click.option(
    "--format",
    type=click.Choice(["parquet", "delta", "iceberg"]),
    default="parquet",
    show_default=True,
    help="The table format.",
)
@click.option("--schema", help="Typed columns for JSON messages: 'id long, name string, at timestamp'.")
@click.option("--into", help="Put the typed columns into one struct column of this name.")
@click.option("--variant", is_flag=True, help="Store JSON messages in one VARIANT column named `value`.")
@click.option("--name", help="The name of the export.  [default: generated for a new table]")
@click.option("--checkpoint", help="Where Spark keeps its offsets.  [default: next to the table]")
@iceberg
@BATCH
@job
@with_origin
def export(spark: "SparkSession", *, origin: "Origin", schema: str, into: str, variant: bool, **rest: Any) -> "Report":
    """Append new messages of streams to a table, each exactly once.

    The first run exports everything, each later run what is new. A run may be killed at any time and started again.
    """
    from headwater.spark.jobs.export.job import ExportConfig, run  # noqa: PLC0415
    from headwater.spark.jobs.export.shape import Shape  # noqa: PLC0415

    return run(spark, ExportConfig(origin, shape=Shape(schema, into, variant), **rest))
