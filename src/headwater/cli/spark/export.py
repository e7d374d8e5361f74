"""`headwater spark export`: streams as a table that grows."""

from typing import TYPE_CHECKING, Any

import click

from headwater.cli.spark.command import job
from headwater.cli.spark.origin import with_origin

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headwater.spark.jobs.origin import Origin
    from headwater.spark.jobs.report import Report


@click.command()
@click.option("--to", required=True, help="Where the table is: a folder, or s3://bucket/prefix.")
@click.option(
    "--format",
    type=click.Choice(["parquet", "delta", "iceberg"]),
    default="parquet",
    show_default=True,
    help="What kind of table it is.",
)
@click.option("--schema", help="Columns to make of JSON messages: 'id long, name string, at timestamp'.")
@click.option("--into", help="One column for all of them, a struct of this name.")
@click.option("--variant", is_flag=True, help="Make one column `value` of type VARIANT of JSON messages.")
@click.option("--name", help="What the export is called; made up for a new table.")
@click.option("--checkpoint", help="Where Spark keeps its offsets, if not with the table.")
@click.option("--catalog", help="Iceberg: the URI of a catalog, if not a file with the table.")
@click.option("--table", help="Iceberg: the name in the catalog.")
@click.option(
    "--batch-mib", type=click.IntRange(1), default=256, show_default=True, help="MiB of messages in a batch, about."
)
@job
@with_origin
def export(
    spark: "SparkSession", *, origin: "Origin", schema: str, into: str, variant: bool, batch_mib: int, **rest: Any
) -> "Report":
    """Put what is new in streams into a table, every message once.

    A first run takes everything, the next one what has come since. It may be killed at any time and started again.
    """
    from headwater.spark.jobs.export.job import ExportConfig, run  # noqa: PLC0415
    from headwater.spark.jobs.export.shape import Shape  # noqa: PLC0415

    shape = Shape(schema, into, variant)
    config = ExportConfig(origin, shape=shape, batch_bytes=batch_mib * 1024 * 1024, **rest)
    return run(spark, config)
