"""`headwater spark snapshot`: fold streams and publish what they come to."""

import sys
from typing import TYPE_CHECKING

import click

from headwater.cli.failures import fail
from headwater.cli.spark.command import job
from headwater.cli.spark.origin import with_origin

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headwater.spark.jobs.origin import Origin
    from headwater.spark.jobs.report import Report


@click.command()
@click.option(
    "--reducer", required=True, help="merge-patch, last-write-wins, counter, state-protocol, module:function."
)
@click.option("--key", help="The field that tells messages apart, for last-write-wins.")
@click.option("--min-bytes", default=1, show_default=True, type=click.IntRange(1), help="Least new history to fold.")
@job
@with_origin
def snapshot(spark: "SparkSession", *, origin: "Origin", reducer: str, key: str | None, min_bytes: int) -> "Report":
    """Fold each JSON stream from its last snapshot on, and publish the result as its next one.

    On a server that trims by snapshots (the default), what a snapshot covers is no longer read from the stream.
    """
    from headwater.spark.jobs.snapshot import folds  # noqa: PLC0415
    from headwater.spark.jobs.snapshot.job import SnapshotConfig, run  # noqa: PLC0415

    # A function of the user's is looked for where they are, as `python -m` does.
    sys.path.insert(0, "")
    try:
        chosen = folds.reducer(reducer, key)
    except ValueError as error:
        fail(str(error))
    return run(spark, SnapshotConfig(origin, chosen, min_bytes))
