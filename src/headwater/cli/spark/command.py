"""`headwater spark`: the jobs of the data pipeline, one verb each.

The modules of a job are imported when its verb is used: they need PySpark.
"""

import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headwater.cli.commands import JSON, Verbs
from headwater.cli.connecting import CONTEXT, URL
from headwater.cli.contexts.choosing import choose
from headwater.cli.contexts.store import Context
from headwater.cli.failures import fail
from headwater.cli.printing import json_list, say
from headwater.cli.spark.options import BATCH, CREDENTIALS, PARTITIONS, has_credentials, iceberg, pairs, with_origin
from headwater.cli.spark.running import Job, job
from headwater.protocol.limits import MIB

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headwater.spark.jobs.export.job import ExportConfig
    from headwater.spark.jobs.origin import Origin
    from headwater.spark.jobs.report import Report

INTERVAL_SECONDS = 30.0


class Jobs(Verbs):
    """A group that lists its verbs in the order of their definitions."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


@click.group(cls=Jobs)
def spark() -> None:
    """Treat streams as tables with Spark, here or on a cluster."""


def _seconds(context: click.Context, parameter: click.Parameter, given: str | None) -> float | None:
    """A duration such as 30s."""
    from headwater.spark.options.values import OptionRefused, OptionValues  # noqa: PLC0415

    try:
        return OptionValues({"--interval": given or ""}).duration_seconds("--interval")
    except OptionRefused as refused:
        raise click.BadParameter(str(refused)) from None


@spark.verb(
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
@job
@with_origin
def export(
    *, origin: "Origin", schema: str, into: str, variant: bool, continuous: bool, interval: float | None, **rest: Any
) -> Job[Any]:
    """Append new messages of streams to a table, each exactly once.

    The first run exports everything, each later run what is new. A run may be killed at any time and started again.
    """
    from headwater.spark.jobs.export.job import ExportConfig, prepare  # noqa: PLC0415
    from headwater.spark.jobs.export.shape import Shape  # noqa: PLC0415

    if not continuous and interval is not None:
        raise click.UsageError("The option --interval needs --continuous.")
    if continuous and interval is None:
        interval = INTERVAL_SECONDS
    config = ExportConfig(origin, shape=Shape(schema, into, variant), interval_seconds=interval, **rest)
    return Job(prepare, _export, config)


def _export(spark: "SparkSession", config: "ExportConfig") -> "Report":
    from headwater.spark.jobs.export.job import run  # noqa: PLC0415

    if config.interval_seconds is None:
        return run(spark, config)
    with _stopped_by_signals() as stop:
        return run(spark, config, stop)


@contextmanager
def _stopped_by_signals() -> Iterator[threading.Event]:
    """Yield an event that SIGTERM and Ctrl-C set; outside of the block they end the process at once."""
    stop = threading.Event()
    before = [(one, signal.signal(one, lambda *_: stop.set())) for one in (signal.SIGTERM, signal.SIGINT)]
    try:
        yield stop
    finally:
        for one, handler in before:
            signal.signal(one, handler)


@spark.verb("headwater spark compact", "headwater spark compact --master spark://spark:7077 --rewrite-mib 1024")
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
@job
def compact(
    *, url: str, options: dict[str, str], lake: str | None, segment_mib: int, rewrite_mib: int, rounds: int
) -> Job[Any]:
    """Merge small segments of the lake and drop dead rows.

    The server stays online. It compacts the lake continuously, too; use this job for a lake that has fallen behind, or
    to move the work to a cluster.
    """
    from headwater.lake.compaction.planning import REWRITE_LIMITS  # noqa: PLC0415
    from headwater.spark.jobs.compact import CompactConfig, prepare, run  # noqa: PLC0415
    from headwater.spark.jobs.origin import link_settings  # noqa: PLC0415

    limits = REWRITE_LIMITS._replace(bytes_max=rewrite_mib * MIB)
    return Job(prepare, run, CompactConfig(link_settings(url, options), lake, limits, segment_mib * MIB, rounds))


@spark.verb(
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
@job
@with_origin
def snapshot(*, origin: "Origin", reducer: str, key: str | None, min_bytes: int) -> Job[Any]:
    """Fold JSON streams, and publish the results as snapshots.

    Each stream is folded from its last snapshot on.

    On a server that trims by snapshots (the default), messages that a snapshot covers can no longer be read.
    """
    from headwater.spark.jobs.snapshot import folds  # noqa: PLC0415
    from headwater.spark.jobs.snapshot.job import SnapshotConfig, prepare, run  # noqa: PLC0415

    # The user's module is found in the working directory, as with `python -m`.
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        return Job(prepare, run, SnapshotConfig(origin, folds.reducer(reducer, key), min_bytes))
    except ValueError as error:
        fail(str(error))


@spark.verb(
    "headwater spark load orders.csv --name orders --format csv --bucket shop --key customer",
    "headwater spark load events/ --name events --format json --stream \"concat('shop/', user)\" --order at",
)
@click.argument("paths", nargs=-1, required=True)
@click.option("--name", required=True, help="The job's name: files that it has loaded are not loaded again.")
@click.option(
    "--format", type=click.Choice(["csv", "json", "parquet", "orc"]), required=True, help="The format of the files."
)
@click.option("--bucket", help="The bucket of the streams, unless their names include it.")
@click.option("--stream", help="Expression for the stream's name.")
@click.option("--key", help="Expression for the last part of the stream's name, instead of --stream.")
@click.option("--prefix", default="", help="The part of the name before the key.")
@click.option("--value", help="Expression for the message.  [default: the row as JSON]")
@click.option("--order", multiple=True, help="Expression to sort the rows of a stream by; repeatable.")
@click.option("--content-type", help="The content type of new streams.  [default: application/json for text messages]")
@click.option("--close", is_flag=True, help="Close the streams after writing them.")
@click.option("--schema", help="The columns of the files: 'id long, at timestamp'.")
@pairs("--read", "An option of Spark's file reader, name=value; repeatable.", name="reading")
@pairs("--option", "An option of the Headwater sink, name=value; repeatable.", name="options")
@PARTITIONS
@job
def load(**options: Any) -> Job[Any]:
    """Append the rows of files to streams, each exactly once.

    PATHS are files, folders or glob patterns. Expressions are Spark SQL over the columns of the files. A run may be
    killed at any time and started again; the next run loads files that were added since.
    """
    from headwater.spark.jobs.load import LoadConfig, prepare, run  # noqa: PLC0415

    return Job(prepare, run, LoadConfig(**options))


@spark.verb(
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
@job
@with_origin
def replay(*, origin: "Origin", to: str | None, sink: dict[str, str], **rest: Any) -> Job[Any]:
    """Copy new messages to other streams, each exactly once.

    The messages of a stream stay in order. A run may be killed at any time and started again: with the same name and
    checkpoint it resumes where it stopped.
    """
    from headwater.spark.jobs.replay import ReplayConfig, prepare, run  # noqa: PLC0415

    to = to or origin.url
    options = sink_options(origin.url, origin.options, to, sink)
    return Job(prepare, run, ReplayConfig(origin, to, options=options, **rest))


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


@spark.verb("headwater spark verify --bucket shop", "headwater spark verify --export tables/shop --hashes hashes")
@click.option("--export", help="An export to compare too; its streams are verified if no streams are selected.")
@iceberg
@click.option("--hashes", help="A folder for a Parquet table with the hashes of every stream.")
@click.option(
    "--problems",
    "problems_max",
    type=click.IntRange(1),
    default=100,
    show_default=True,
    help="How many problems to list and to inspect message by message.",
)
@job
@with_origin
def verify(*, origin: "Origin", **rest: Any) -> Job[Any]:
    """Account for every message of every stream.

    Compares the server, its lake and an export. The exit code is 1 if any message is missing, extra, changed or out of
    order.
    """
    from headwater.spark.jobs.verify.job import VerifyConfig, prepare, run  # noqa: PLC0415

    return Job(prepare, run, VerifyConfig(origin, **rest))


@spark.verb(
    "headwater spark report --bucket shop --to usage",
    "headwater spark report --bucket shop --to usage --event-time at",
)
@click.option("--to", required=True, help="A folder for the tables and the page; an earlier report is replaced.")
@click.option("--event-time", help="The field of JSON messages with the time of the event, to measure delays from.")
@click.option(
    "--window", "window_seconds", type=click.IntRange(1), help="Length of a window, in seconds.  [default: fits a page]"
)
@click.option(
    "--session-gap",
    "session_gap_seconds",
    type=click.IntRange(1),
    default=300,
    show_default=True,
    help="A pause of this many seconds ends a session.",
)
@click.option("--top", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many streams to list.")
@job
@with_origin
def report(*, origin: "Origin", **rest: Any) -> Job[Any]:
    """Measure messages, bytes, delays and sessions of streams.

    Writes two Parquet tables, one row per stream and one per window of time, and a self-contained HTML page.
    """
    from headwater.spark.jobs.usage import UsageConfig, prepare, run  # noqa: PLC0415

    return Job(prepare, run, UsageConfig(origin, **rest))


@spark.verb("headwater spark init pipeline --bucket shop")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@URL
@CONTEXT
@click.option("--bucket", default="shop", show_default=True, help="The bucket that the pipeline reads.")
@click.option("--results", help="The bucket that the pipeline writes.  [default: the name of --bucket plus -alerts]")
@JSON
def init(
    folder: Path, *, url: str | None, context_name: str | None, bucket: str, results: str | None, as_json: bool
) -> None:
    """Write a declarative pipeline into DIR.

    It has bronze, silver and gold tables from streams, and a flow back into streams. It runs unchanged with
    `spark-pipelines`; its README explains how.
    """
    from headwater.spark.pipeline.project import ProjectRefused, write_project  # noqa: PLC0415

    try:
        written = write_project(folder, choose(url, context_name, None, {}).url, bucket, results)
    except ProjectRefused as refused:
        fail(str(refused))
    except OSError as error:
        fail(f"Cannot write to {folder}: {error.strerror}.")
    if as_json:
        json_list(str(path) for path in written)
        return
    for path in written:
        say(f"Wrote {path}")
    say(f"Next: cd {folder} && spark-pipelines run --conf spark.sql.catalogImplementation=hive")
