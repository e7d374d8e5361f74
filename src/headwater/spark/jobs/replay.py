"""Replay: streams into streams, here or on another server, every message once and in order."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from headwater.lake.format import split_name
from headwater.protocol import content_types
from headwater.spark.jobs.origin import Origin
from headwater.spark.jobs.report import Fact, JobFailed, Report
from headwater.spark.link import Link, LinkFailed, LinkRefused, LinkSettings
from headwater.spark.options.sink import parse_sink
from headwater.spark.options.source import Selection
from headwater.spark.options.values import OptionRefused
from headwater.spark.sink.chunks import CHUNKS
from headwater.spark.sink.delivery import Delivery, Producer, WriteFailed, packed
from headwater.spark.writing import by_stream

BATCH_BYTES = 256 * 1024 * 1024
"""Payload of a batch, about: a kill costs no more work than that."""
LOOK_SECONDS = 1
"""How often the wait for a query lets go, to count what it did and to hear Ctrl-C."""
ORDER = ("position", "offset")
"""Within a stream the same as by offset; where several become one, as they were written."""
COUNTS = "replayed"
OWN_OPTIONS = frozenset(
    ("bucket", "close", "contenttype", "ordercolumn", "producerepoch", "producerid", "stream", "target", "url")
)


@dataclass(frozen=True, slots=True)
class ReplayConfig:
    """What to copy where, and under which names."""

    origin: Origin
    to: str
    """The URL of the server that gets it, perhaps the same."""
    name: str
    """Of the job: under it the target knows what it has got."""
    checkpoint: str
    """The folder where Spark keeps how far it has come."""
    into: str | None = None
    """A bucket for all streams, instead of their own."""
    rename: Sequence[tuple[str, str]] = ()
    """Regular expressions and what replaces each of their matches in the whole names, one after the other."""
    close: bool = False
    """Whether what is closed at the origin is closed at the target."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Further options of the sink."""
    partitions: int | None = None
    batch_bytes: int = BATCH_BYTES


def run(spark: SparkSession, config: ReplayConfig) -> Report:
    """Copy what is new since the last run, and say how much that was."""
    began = time.monotonic()
    settings = _check(config)
    try:
        with config.origin.link() as source, Link(settings) as target:
            apart = source.status()["log_id"] != target.status()["log_id"]
            streams, ends = 0, dict[str, str]()
            for page in copies(spark, config, source):
                streams += len(page)
                if not apart:
                    check_apart(page, config.origin.parsed().selection)
                if config.close:
                    note_closed(ends, page)
            if ends and joins(config):
                for page in copies(spark, config, source):
                    leave_open(ends, page)
            # What is closed by now is read to its end by the query, which begins later.
            messages, size, batches = _finish(_start(spark, config))
            closed = _close(target, config, ends) if config.close else 0
    except (LinkFailed, LinkRefused, WriteFailed) as failure:
        raise JobFailed(str(failure)) from failure
    facts: dict[str, Fact] = {
        "job": config.name,
        "from": config.origin.url,
        "to": config.to,
        "streams": streams,
        "batches": batches,
        "messages": messages,
        "bytes": size,
        "closed": closed,
        "seconds": round(time.monotonic() - began, 3),
    }
    return Report("replay", facts)


def _check(config: ReplayConfig) -> LinkSettings:
    """How to reach the target; JobFailed for what cannot be."""
    for name in config.options:
        if name.lower() in OWN_OPTIONS:
            raise JobFailed(f"The option {name} of the sink is the job's own to set; leave it out.")
    if config.into is not None and "/" in config.into:
        raise JobFailed(f"{config.into!r} is no bucket, which has no '/'; use a rename for the rest of the names.")
    if config.origin.parsed().bootstraps:
        raise JobFailed(
            "A snapshot is no message and is not copied; leave onTrimmed=bootstrap out, or use onTrimmed=skip."
        )
    try:
        return parse_sink({**_sink_options(config), "queryName": config.name}, streaming=True).link
    except OptionRefused as refused:
        raise JobFailed(str(refused)) from refused


# -- Names -------------------------------------------------------------------------------------------------------------


class Copy(NamedTuple):
    """A stream of the origin, and the one that it is copied to."""

    stream: str
    content_type: str
    closed: bool
    target: str


def target_name(config: ReplayConfig, bucket: Column, stream: Column) -> Column:
    """The whole name of the stream that a row goes to."""
    name = F.concat_ws("/", bucket if config.into is None else F.lit(config.into), stream)
    for pattern, replacement in config.rename:
        name = F.regexp_replace(name, F.lit(pattern), F.lit(replacement))
    return name


def joins(config: ReplayConfig) -> bool:
    """Whether several streams may become one."""
    return config.into is not None or bool(config.rename)


def copies(spark: SparkSession, config: ReplayConfig, link: Link) -> Iterator[list[Copy]]:
    """What there is to copy, and where it goes, a page at a time: there may be more than the driver can hold."""
    selection = config.origin.parsed().selection
    pages = [link.describe(sorted(selection.names))] if selection.names else link.describe_all(selection.prefix)
    for page in pages:
        found = [
            (*split_name(row["stream"]), row["content_type"], row["closed"])
            for row in page.select(["stream", "content_type", "closed"]).to_pylist()
            if selection.has(row["stream"])
        ]
        if found:
            yield _named(spark, config, found)


def _named(spark: SparkSession, config: ReplayConfig, found: list[tuple[str, str, str, bool]]) -> list[Copy]:
    rows = spark.createDataFrame(found, "bucket string, stream string, content_type string, closed boolean")
    columns = F.concat_ws("/", "bucket", "stream"), "content_type", "closed"
    try:
        named = rows.select(*columns, target_name(config, F.col("bucket"), F.col("stream"))).collect()
    except PySparkException as problem:
        raise JobFailed(
            f"The names cannot be changed as told: {next(filter(None, str(problem).splitlines()))}"
        ) from problem
    return [Copy(*row) for row in named]


def check_apart(copies: Sequence[Copy], selection: Selection) -> None:
    """Raise JobFailed if a copy would be copied in turn, on and on with every run."""
    for copy in copies:
        if selection.has(copy.target):
            raise JobFailed(
                f"The copy of {copy.stream!r} would be {copy.target!r}, which would be copied again by the next run; "
                "copy into another bucket with --into, under other names with --rename, or to another server."
            )


# -- Messages ----------------------------------------------------------------------------------------------------------


def _start(spark: SparkSession, config: ReplayConfig) -> StreamingQuery:
    reading = config.origin.source_options(
        via="live", startingOffsets="earliest", maxBytesPerTrigger=str(config.batch_bytes)
    )
    if "startingTimestamp" in reading:
        del reading["startingOffsets"]
    rows = spark.readStream.format("headwater").options(**reading).load()
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
        .options(**_sink_options(config), checkpointLocation=_absolute(config.checkpoint))
        .queryName(config.name)
        .trigger(availableNow=True)
        .start()
    )


def _absolute(path: str) -> str:
    # Spark would look from where its Java was started.
    return path if "://" in path else Path(path).absolute().as_uri()


def _sink_options(config: ReplayConfig) -> dict[str, str]:
    return {**config.options, "url": config.to, "orderColumn": ",".join(ORDER)}


def _finish(query: StreamingQuery) -> tuple[int, int, int]:
    """Wait until everything there was has been copied: how many messages, bytes and batches that were."""
    seen: dict[int, tuple[int, int]] = {}

    def look() -> None:
        # Spark keeps the last hundred only.
        for progress in query.recentProgress:
            counted = progress.observedMetrics.get(COUNTS)
            if counted is not None and counted["messages"]:
                seen[progress.batchId] = counted["messages"], counted["bytes"]

    try:
        while not query.awaitTermination(LOOK_SECONDS):
            look()
    finally:
        if query.isActive:
            query.stop()
    look()
    return sum(messages for messages, _ in seen.values()), sum(size for _, size in seen.values()), len(seen)


# -- Ends --------------------------------------------------------------------------------------------------------------


def note_closed(ends: dict[str, str], page: Iterable[Copy]) -> None:
    """Take what the closed ones of a page become, with their types, among the targets to close."""
    for copy in page:
        if copy.closed:
            ends.setdefault(copy.target, copy.content_type)


def leave_open(ends: dict[str, str], page: Iterable[Copy]) -> None:
    """Take out what open ones become too: a second look, since that may be on a page before or behind."""
    for copy in page:
        if not copy.closed:
            ends.pop(copy.target, None)


def _close(link: Link, config: ReplayConfig, ends: Mapping[str, str]) -> int:
    """Close what is to be closed; streams without a message are made for that."""
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
    # A producer of its own: those of the query count its batches.
    delivery = Delivery(link, Producer(f"{config.name}/end", 0), create=True, content_type=content_types.DEFAULT)
    delivery.send_all(packed(chunks.to_batches()))
    return delivery.appends
