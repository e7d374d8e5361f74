"""`headwater spark export`: streams as a table that grows."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from headwater.cli.commands import verb
from headwater.cli.spark.command import checked_job
from headwater.cli.spark.options import BATCH, iceberg, with_origin

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headwater.spark.jobs.export.job import ExportConfig
    from headwater.spark.jobs.origin import Origin
    from headwater.spark.jobs.report import Report

INTERVAL_SECONDS = 30.0


def _seconds(context: click.Context, parameter: click.Parameter, given: str | None) -> float | None:
    """A duration such as 30s."""
    from headwater.spark.options.values import OptionRefused, OptionValues  # noqa: PLC0415

    try:
        return OptionValues({"--interval": given or ""}).duration_seconds("--interval")
    except OptionRefused as refused:
        raise click.BadParameter(str(refused)) from None


def _config(
    *, origin: "Origin", schema: str, into: str, variant: bool, continuous: bool, interval: float | None, **rest: Any
) -> "ExportConfig":
    from headwater.spark.jobs.export.job import ExportConfig  # noqa: PLC0415
    from headwater.spark.jobs.export.shape import Shape  # noqa: PLC0415

    if not continuous and interval is not None:
        raise click.UsageError("The option --interval needs --continuous.")
    seconds = INTERVAL_SECONDS if interval is None else interval
    shape = Shape(schema, into, variant)
    return ExportConfig(origin, shape=shape, interval_seconds=seconds if continuous else None, **rest)


@with_origin
def _check(**options: Any) -> None:
    """The checks that need no Spark."""
    from headwater.spark.jobs.export.job import prepare  # noqa: PLC0415

    prepare(_config(**options))


@contextmanager
def _stopped_by_signals() -> Iterator[threading.Event]:
    """An event that SIGTERM and Ctrl-C set; without the block they would end the process at once."""
    stop = threading.Event()
    before = [(one, signal.signal(one, lambda *_: stop.set())) for one in (signal.SIGTERM, signal.SIGINT)]
    try:
        yield stop
    finally:
        for one, handler in before:
            signal.signal(one, handler)


@verb(
    "headwater spark export --bucket shop --to tables/shop",
    "headwater spark export --bucket shop --to s3://lake/shop --format delta --checkpoint /srv/shop",
    "headwater spark export --bucket shop --to tables/shop --continuous --interval 1m",
    "headwater spark export --prefix shop/orders- --to tables/orders --schema 'id long, item string'",
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
@click.option("--continuous", is_flag=True, help="Go on until SIGTERM or Ctrl-C, and then finish the current batch.")
@click.option(
    "--interval",
    callback=_seconds,
    help=f"Continuous: how often to look for new messages: 500ms, 30s, 5m.  [default: {INTERVAL_SECONDS:.0f}s]",
)
@iceberg
@BATCH
@checked_job(_check)
@with_origin
def export(spark: "SparkSession", **options: Any) -> "Report":
    """Append new messages of streams to a table, each exactly once.

    The first run exports everything, each later run what is new. A run may be killed at any time and started again.
    """
    from headwater.spark.jobs.export.job import run  # noqa: PLC0415

    config = _config(**options)
    if config.interval_seconds is None:
        return run(spark, config)
    with _stopped_by_signals() as stop:
        return run(spark, config, stop)
