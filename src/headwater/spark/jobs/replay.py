"""Replay: copy streams to streams on the same or another server, every message exactly once and in order."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from headwater.lake.format import split_name
from headwater.protocol import content_types
from headwater.spark.jobs.origin import Origin, describe_selected
from headwater.spark.jobs.report import (
    BATCH_BYTES,
    Fact,
    JobFailed,
    Report,
    check_sink_options,
    failing_job,
    finish,
    spark_path,
    start_at_earliest,
)
from headwater.spark.link import Link, LinkSettings
from headwater.spark.options.source import Selection
from headwater.spark.sink.chunks import CHUNKS
from headwater.spark.sink.delivery import Delivery, Producer, packed
from headwater.spark.sink.ledger import Ledger
from headwater.spark.writing import by_stream

ORDER = ("position", "offset")
"""The same as by offset within a stream; if several streams are merged, the order in which they were written."""
COUNTS = "replayed"


@dataclass(frozen=True, slots=True)
class ReplayConfig:
    """What to copy, where to, and under which names."""

    origin: Origin
    to: str
    """The URL of the server that receives the copies; it may be the same server."""
    name: str
    """Of the job: the target uses it to recognize what it has received before."""
    checkpoint: str
    """The folder in which Spark keeps its offsets."""
    into: str | None = None
    """The bucket for all copies; by default each keeps its bucket."""
    rename: Sequence[tuple[str, str]] = ()
    """Regular expressions and their replacements in whole names, applied in order."""
    close: bool = False
    """Whether to close the copies of closed streams."""
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """More options of the sink."""
    partitions: int | None = None
    batch_bytes: int = BATCH_BYTES


@failing_job()
def prepare(config: ReplayConfig) -> None:
    """Make all checks that need no Spark, and write nothing; JobFailed if one fails."""
    settings = _check(config)
    with config.origin.link() as source, Link(settings) as target:
        source.log_id()
        target.log_id()


@failing_job()
def run(spark: SparkSession, config: ReplayConfig) -> Report:
    """Copy what is new since the last run."""
    began = time.monotonic()
    settings = _check(config)
    with config.origin.link() as source, Link(settings) as target:
        apart = source.log_id() != target.log_id()
        streams, ends = 0, dict[str, str]()
        for page in copies(spark, config, source):
            streams += len(page)
            if not apart:
                check_apart(page, config.origin.parsed().selection)
            if config.close:
                note_closed(ends, page)
        if ends and may_merge(config):
            for page in copies(spark, config, source):
                leave_open(ends, page)
        # The query starts after this listing, so it reads every stream listed as closed to its end.
        ledger = Ledger(target, config.name)
        noted = ledger.end()
        messages, size, batches = _copy(_start(spark, config))
        repeated = ledger.repeated_since(noted)
        closed = _close(target, config, ends) if config.close else 0
    facts: dict[str, Fact] = {
        "job": config.name,
        "from": config.origin.url,
        "to": config.to,
        "streams": streams,
        "batches": batches,
        "messages": messages,
        "messages_repeated": repeated,
        "bytes": size,
        "closed": closed,
        "seconds": round(time.monotonic() - began, 3),
    }
    return Report("replay", facts)


def _check(config: ReplayConfig) -> LinkSettings:
    """How to reach the target; JobFailed for a configuration that cannot work."""
    options = {**_sink_options(config), "queryName": config.name}
    settings = check_sink_options(config.options, options, streaming=True).link
    if config.into is not None and "/" in config.into:
        raise JobFailed(
            f"{config.into!r} is not a valid bucket name: it contains '/'; use --rename for the rest of the name."
        )
    if config.origin.parsed().bootstraps:
        raise JobFailed("Replay copies messages, not snapshots; remove onTrimmed=bootstrap or use onTrimmed=skip.")
    return settings


# -- Names -------------------------------------------------------------------------------------------------------------


class Copy(NamedTuple):
    """A stream of the origin and its copy."""

    stream: str
    content_type: str
    closed: bool
    target: str


def target_name(config: ReplayConfig, bucket: Column, stream: Column) -> Column:
    """The whole name of the stream that receives a row."""
    name = F.concat_ws("/", bucket if config.into is None else F.lit(config.into), stream)
    for pattern, replacement in config.rename:
        name = F.regexp_replace(name, F.lit(pattern), F.lit(replacement))
    return name


def may_merge(config: ReplayConfig) -> bool:
    """Whether several streams may have the same copy."""
    return config.into is not None or bool(config.rename)


def copies(spark: SparkSession, config: ReplayConfig, link: Link) -> Iterator[list[Copy]]:
    """The streams to copy, a page at a time: all of them may not fit into the driver's memory."""
    selection = config.origin.parsed().selection
    for page in describe_selected(link, selection):
        found = [
            (*split_name(row["stream"]), row["content_type"], row["closed"])
            for row in page.select(["stream", "content_type", "closed"]).to_pylist()
        ]
        if found:
            yield _named(spark, config, found)


def _named(spark: SparkSession, config: ReplayConfig, found: list[tuple[str, str, str, bool]]) -> list[Copy]:
    rows = spark.createDataFrame(found, "bucket string, stream string, content_type string, closed boolean")
    columns = F.concat_ws("/", "bucket", "stream"), "content_type", "closed"
    try:
        named = rows.select(*columns, target_name(config, F.col("bucket"), F.col("stream"))).collect()
    except PySparkException as problem:
        raise JobFailed(f"--rename cannot be applied: {next(filter(None, str(problem).splitlines()))}") from problem
    return [Copy(*row) for row in named]


def check_apart(copies: Sequence[Copy], selection: Selection) -> None:
    """Raise JobFailed if the next run would copy a copy, and so on without end."""
    for copy in copies:
        if selection.has(copy.target):
            raise JobFailed(
                f"The copy of {copy.stream!r} would be {copy.target!r}, which the next run would copy again; "
                "copy to another bucket with --into, to other names with --rename, or to another server with --to."
            )


# -- Messages ----------------------------------------------------------------------------------------------------------


def _start(spark: SparkSession, config: ReplayConfig) -> StreamingQuery:
    reading = config.origin.source_options(via="live", maxBytesPerTrigger=str(config.batch_bytes))
    rows = spark.readStream.format("headwater").options(**start_at_earliest(reading)).load()
    copied = rows.select(
        target_name(config, F.col("bucket"), F.col("stream")).alias("stream"),
        F.col("payload").alias("value"),
        "content_type",
        *ORDER,
    )
    counts = F.count(F.lit(1)).alias("messages"), F.sum(F.length("value")).alias("bytes")
    return (
        by_stream(copied.observe(COUNTS, *counts), config.partitions)
        .writeStream.format("headwater")
        .options(**_sink_options(config), checkpointLocation=spark_path(config.checkpoint))
        .queryName(config.name)
        .trigger(availableNow=True)
        .start()
    )


def _sink_options(config: ReplayConfig) -> dict[str, str]:
    return {**config.options, "url": config.to, "orderColumn": ",".join(ORDER)}


def _copy(query: StreamingQuery) -> tuple[int, int, int]:
    """Wait until the query has copied everything; return the numbers of messages, bytes and batches."""
    seen: dict[int, tuple[int, int]] = {}

    def record() -> None:
        # Spark keeps the progress of the last hundred batches only.
        for progress in query.recentProgress:
            counted = progress.observedMetrics.get(COUNTS)
            if counted is not None and counted["messages"]:
                seen[progress.batchId] = counted["messages"], counted["bytes"]

    finish(query, record)
    return sum(messages for messages, _ in seen.values()), sum(size for _, size in seen.values()), len(seen)


# -- Closing -----------------------------------------------------------------------------------------------------------


def note_closed(ends: dict[str, str], page: Iterable[Copy]) -> None:
    """Add the copies of closed streams, with their content types, to the streams to close."""
    for copy in page:
        if copy.closed:
            ends.setdefault(copy.target, copy.content_type)


def leave_open(ends: dict[str, str], page: Iterable[Copy]) -> None:
    """Remove the copies that an open stream has too. A second pass, since it may be on any page."""
    for copy in page:
        if not copy.closed:
            ends.pop(copy.target, None)


def _close(link: Link, config: ReplayConfig, ends: Mapping[str, str]) -> int:
    """Close streams, and create those that do not exist because they have no messages."""
    columns = [
        list(ends),
        [[]] * len(ends),
        list(ends.values()),
        [True] * len(ends),
        [0] * len(ends),
        [True] * len(ends),
    ]
    chunks = pa.Table.from_arrays(
        [pa.array(column, kind) for column, kind in zip(columns, CHUNKS.types, strict=True)], schema=CHUNKS
    )
    # A separate producer, since the epochs of the query's producers count its batches.
    delivery = Delivery(link, Producer(f"{config.name}/end", 0), create=True, content_type=content_types.DEFAULT)
    delivery.send_all(packed(chunks.to_batches()))
    return delivery.appends
