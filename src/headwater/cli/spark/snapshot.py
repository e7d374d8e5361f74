"""`headwater spark snapshot`: fold streams and publish the results as snapshots."""

import sys
from typing import TYPE_CHECKING, Any

import click

from headwater.cli.commands import verb
from headwater.cli.failures import fail
from headwater.cli.spark.command import checked_job
from headwater.cli.spark.options import with_origin

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headwater.spark.jobs.origin import Origin
    from headwater.spark.jobs.report import Report
    from headwater.spark.jobs.snapshot.job import SnapshotConfig


def _config(*, origin: "Origin", reducer: str, key: str | None, min_bytes: int) -> "SnapshotConfig":
    from headwater.spark.jobs.snapshot import folds  # noqa: PLC0415
    from headwater.spark.jobs.snapshot.job import SnapshotConfig  # noqa: PLC0415

    # The user's module is found in the working directory, as with `python -m`.
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        return SnapshotConfig(origin, folds.reducer(reducer, key), min_bytes)
    except ValueError as error:
        fail(str(error))


@with_origin
def _check(**options: Any) -> None:
    """The checks that need no Spark."""
    from headwater.spark.jobs.snapshot.job import prepare  # noqa: PLC0415

    prepare(_config(**options))


@verb(
    "headwater spark snapshot --bucket shop --reducer merge-patch",
    "headwater spark snapshot --bucket shop --reducer last-write-wins --key id",
    "headwater spark snapshot --bucket shop --reducer my_folds:total",
)
@click.option(
    "--reducer", required=True, help="merge-patch, last-write-wins, counter, state-protocol, or module:function."
)
@click.option("--key", help="The field that identifies a message, for last-write-wins.")
@click.option(
    "--min-bytes", default=1, show_default=True, type=click.IntRange(1), help="Skip streams with fewer new bytes."
)
@checked_job(_check)
@with_origin
def snapshot(spark: "SparkSession", **options: Any) -> "Report":
    """Fold JSON streams, and publish the results as snapshots.

    Each stream is folded from its last snapshot on.

    On a server that trims by snapshots (the default), messages that a snapshot covers can no longer be read.
    """
    from headwater.spark.jobs.snapshot.job import run  # noqa: PLC0415

    return run(spark, _config(**options))
