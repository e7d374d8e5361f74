"""`headwater spark compact`: rewrite the lake's segments on a cluster."""

from typing import TYPE_CHECKING

import click

from headwater.cli.failures import fail
from headwater.cli.spark.command import URL, job
from headwater.cli.spark.origin import split_options
from headwater.protocol.limits import MIB

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headwater.spark.jobs.report import Report


@click.command()
@URL
@click.option(
    "--option",
    "options",
    multiple=True,
    callback=split_options,
    help="An option of the source about the server, name=value: token=..., tls.ca=...",
)
@click.option("--lake", help="Where the executors reach the lake, if not where the server says.")
@click.option("--segment-mib", default=32, show_default=True, type=click.IntRange(1), help="Size of new segments.")
@click.option(
    "--rewrite-mib", default=256, show_default=True, type=click.IntRange(1), help="Most that one task takes on."
)
@click.option("--rounds", default=10, show_default=True, type=click.IntRange(1), help="Most rounds of rewrites.")
@job
def compact(
    spark: "SparkSession",
    *,
    url: str,
    options: dict[str, str],
    lake: str | None,
    segment_mib: int,
    rewrite_mib: int,
    rounds: int,
) -> "Report":
    """Merge small segments of the lake and drop what is dead.

    The server goes on serving, and does the same by itself, a little at a time; this is for a lake that has fallen
    behind, or that others should do the work for.
    """
    from headwater.lake.compaction.planning import REWRITE_LIMITS  # noqa: PLC0415
    from headwater.spark.jobs.compact.job import CompactConfig, run  # noqa: PLC0415
    from headwater.spark.options.link import parse_link  # noqa: PLC0415
    from headwater.spark.options.values import OptionRefused, OptionValues  # noqa: PLC0415

    try:
        given = OptionValues({"url": url, **options})
        link = parse_link(given)
        given.refuse_unknown()
    except OptionRefused as refused:
        fail(str(refused))
    limits = REWRITE_LIMITS._replace(bytes_max=rewrite_mib * MIB)
    return run(spark, CompactConfig(link, lake, limits, segment_mib * MIB, rounds))
