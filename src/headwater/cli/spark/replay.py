"""`headwater spark replay`: streams into streams."""

from typing import TYPE_CHECKING, Any

import click

from headwater.cli.contexts.store import Context
from headwater.cli.examples import examples
from headwater.cli.spark.command import job
from headwater.cli.spark.options import BATCH, CREDENTIALS, PARTITIONS, has_credentials, pairs, with_origin

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headwater.spark.jobs.origin import Origin
    from headwater.spark.jobs.report import Report


@click.command(
    epilog=examples(
        "headwater spark replay --bucket shop --to http://other:4437 --name shop-copy --checkpoint /srv/shop-copy",
        "headwater spark replay --bucket shop --into shop-test --name test --checkpoint /srv/test",
    )
)
@click.option("--to", help="The server that receives the streams.  [default: the same server]")
@click.option("--name", required=True, help="The job's name: messages that it has copied are not copied again.")
@click.option("--checkpoint", required=True, help="The folder in which Spark keeps its offsets.")
@click.option("--into", help="Copy all streams into this bucket.")
@click.option(
    "--rename",
    nargs=2,
    multiple=True,
    metavar="PATTERN REPLACEMENT",
    help="Replace a regular expression in whole names; $1 is its first group. Repeatable.",
)
@click.option("--close", is_flag=True, help="Close the copies of closed streams.")
@pairs("--sink", "An option of the Headwater sink, name=value; repeatable.")
@PARTITIONS
@BATCH
@job
@with_origin
def replay(spark: "SparkSession", *, origin: "Origin", to: str | None, sink: dict[str, str], **rest: Any) -> "Report":
    """Copy new messages to other streams, each exactly once.

    The messages of a stream stay in order. A run may be killed at any time and started again: with the same name and
    checkpoint it resumes where it stopped.
    """
    from headwater.spark.jobs.replay import ReplayConfig, run  # noqa: PLC0415

    # The credentials of one server are never sent to another.
    if not has_credentials(sink) and (to is None or Context(origin.url).is_for(to)):
        sink = {**{name: value for name, value in origin.options.items() if name.lower() in CREDENTIALS}, **sink}
    return run(spark, ReplayConfig(origin, to or origin.url, options=sink, **rest))
