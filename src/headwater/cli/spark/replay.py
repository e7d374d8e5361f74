"""`headwater spark replay`: streams into streams."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from headwater.cli.commands import verb
from headwater.cli.contexts.store import Context
from headwater.cli.spark.command import checked_job
from headwater.cli.spark.options import BATCH, CREDENTIALS, PARTITIONS, has_credentials, pairs, with_origin

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headwater.spark.jobs.origin import Origin
    from headwater.spark.jobs.replay import ReplayConfig
    from headwater.spark.jobs.report import Report


def _config(*, origin: "Origin", to: str | None, sink: dict[str, str], **rest: Any) -> "ReplayConfig":
    from headwater.spark.jobs.replay import ReplayConfig  # noqa: PLC0415

    to = to or origin.url
    return ReplayConfig(origin, to, options=sink_options(origin.url, origin.options, to, sink), **rest)


@with_origin
def _check(**options: Any) -> None:
    """The checks that need no Spark."""
    from headwater.spark.jobs.replay import prepare  # noqa: PLC0415

    prepare(_config(**options))


@verb(
    "headwater spark replay --bucket shop --to http://other:4437 --name shop-copy --checkpoint /srv/shop-copy",
    "headwater spark replay --bucket shop --into shop-test --name test --checkpoint /srv/test",
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
@checked_job(_check)
@with_origin
def replay(spark: "SparkSession", **options: Any) -> "Report":
    """Copy new messages to other streams, each exactly once.

    The messages of a stream stay in order. A run may be killed at any time and started again: with the same name and
    checkpoint it resumes where it stopped.
    """
    from headwater.spark.jobs.replay import run  # noqa: PLC0415

    return run(spark, _config(**options))


def sink_options(url: str, options: Mapping[str, str], to: str, sink: dict[str, str]) -> dict[str, str]:
    """The options of the sink, with the credentials of the source if both are one server.

    >>> options = {"token": "t", "via": "live"}
    >>> [sink_options("http://h", options, to, {}) for to in ("http://h:80/", "https://h", "http://other")]
    [{'token': 't'}, {}, {}]
    >>> sink_options("http://h", options, "http://h", {"tokenFile": "/f"})
    {'tokenFile': '/f'}
    """
    if has_credentials(sink) or not Context(url).is_for(to):
        return sink
    return {**{name: value for name, value in options.items() if name.lower() in CREDENTIALS}, **sink}
