"""`headwater spark compact`: rewrite the lake's segments on a cluster."""

from typing import TYPE_CHECKING, Any

import click

from headwater.cli.commands import verb
from headwater.cli.spark.command import checked_job
from headwater.cli.spark.options import pairs
from headwater.protocol.limits import MIB

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headwater.spark.jobs.compact.job import CompactConfig
    from headwater.spark.jobs.report import Report


def _config(
    *, url: str, options: dict[str, str], lake: str | None, segment_mib: int, rewrite_mib: int, rounds: int
) -> "CompactConfig":
    from headwater.lake.compaction.planning import REWRITE_LIMITS  # noqa: PLC0415
    from headwater.spark.jobs.compact.job import CompactConfig  # noqa: PLC0415
    from headwater.spark.jobs.origin import link_settings  # noqa: PLC0415

    limits = REWRITE_LIMITS._replace(bytes_max=rewrite_mib * MIB)
    return CompactConfig(link_settings(url, options), lake, limits, segment_mib * MIB, rounds)


def _check(**options: Any) -> None:
    """The checks that need no Spark."""
    from headwater.spark.jobs.compact.job import prepare  # noqa: PLC0415

    prepare(_config(**options))


@verb("headwater spark compact", "headwater spark compact --master spark://spark:7077 --rewrite-mib 1024")
@pairs(
    "--option", "An option of the Headwater source, such as tokenFile=... or tls.ca=...; repeatable.", name="options"
)
@click.option("--lake", help="The lake's URL as the executors reach it.  [default: as the server reports it]")
@click.option("--segment-mib", default=32, show_default=True, type=click.IntRange(1), help="Size of new segments.")
@click.option(
    "--rewrite-mib",
    default=256,
    show_default=True,
    type=click.IntRange(1),
    help="Maximum payload that one task rewrites.",
)
@click.option("--rounds", default=10, show_default=True, type=click.IntRange(1), help="Maximum number of rounds.")
@checked_job(_check)
def compact(spark: "SparkSession", **options: Any) -> "Report":
    """Merge small segments of the lake and drop dead rows.

    The server stays online and does the same by itself, a little at a time. Use this job for a lake that has fallen
    behind, or to move the work to a cluster.
    """
    from headwater.spark.jobs.compact.job import run  # noqa: PLC0415

    return run(spark, _config(**options))
