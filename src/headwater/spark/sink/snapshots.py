"""Snapshots as a target: each row is published as what its stream comes to up to an offset.

A snapshot that comes too late is no failure, since a later one says the same and more.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import NamedTuple, TypeAlias

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from headwater.protocol.refusals import Code
from headwater.spark.link import Link, LinkRefused
from headwater.spark.sink.delivery import WriteFailed
from headwater.spark.sink.options import SinkOptions
from headwater.spark.sink.rows import default_type, find_columns, stream_names

LINKS = 4
"""Snapshots that a task publishes at a time; each of them waits for a disk."""

Messages: TypeAlias = list[WriterCommitMessage | None]

PUBLISHED, SKIPPED = "published", "skipped"
MISSING = "are of streams that are not there"
GONE = "are of streams that were deleted"
BEYOND = "stand beyond the end of their streams, which may have been made anew"
UNADDRESSED = "have names to whose snapshots no URL leads, as one with two slashes"
OUTCOMES = {
    Code.SNAPSHOT_CONFLICT: SKIPPED,
    # What was trimmed is covered by a later snapshot.
    Code.OFFSET_TRIMMED: SKIPPED,
    Code.STREAM_NOT_FOUND: MISSING,
    Code.BUCKET_NOT_FOUND: MISSING,
    Code.STREAM_GONE: GONE,
    Code.INVALID_NAME: UNADDRESSED,
}
FAILURES = (MISSING, GONE, BEYOND, UNADDRESSED)

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Published(WriterCommitMessage):
    """What became of snapshots: how many are published, how many came too late, and what is wrong with the others."""

    published: int = 0
    skipped: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    """How many, by the reason."""
    example: str | None = None
    """A stream of which one failed."""


class _Snapshot(NamedTuple):
    stream: str
    offset: int
    value: bytes
    content_type: str


class SnapshotBatchWriter(DataSourceArrowWriter):
    """Publishes the rows of one job."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._task = SnapshotTask(options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Published:
        return self._task.write(iterator)

    def commit(self, messages: Messages) -> None:
        check_published(messages)

    def abort(self, messages: Messages) -> None:
        """What is published stays."""


class SnapshotStreamWriter(DataSourceStreamArrowWriter):
    """Publishes the rows of the micro-batches of one query."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._task = SnapshotTask(options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Published:
        return self._task.write(iterator)

    def commit(self, messages: Messages, batchId: int) -> None:
        check_published(messages)

    def abort(self, messages: Messages, batchId: int) -> None:
        """What is published stays."""


class SnapshotTask:
    """Publishes the rows of a task."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._options, self._columns = options, find_columns(schema, options)
        self._default_type = default_type(schema, options)

    def write(self, batches: Iterable[pa.RecordBatch]) -> Published:
        """Publish all rows; WriteFailed for what no server should be asked for again."""
        outcomes: Counter[str] = Counter()
        example: str | None = None
        links: SimpleQueue[Link] = SimpleQueue()
        with ExitStack() as stack:
            for _ in range(LINKS):
                links.put(stack.enter_context(Link(self._options.link)))
            pool = stack.enter_context(ThreadPoolExecutor(LINKS))
            for batch in batches:
                rows = list(self._rows(batch))
                for row, outcome in zip(rows, pool.map(lambda row: _publish(links, row), rows), strict=True):
                    outcomes[outcome] += 1
                    example = row.stream if outcome in FAILURES else example
        failed = Counter({reason: outcomes[reason] for reason in FAILURES if outcomes[reason]})
        return Published(outcomes[PUBLISHED], outcomes[SKIPPED], failed, example)

    def _rows(self, batch: pa.RecordBatch) -> Iterator[_Snapshot]:
        columns = self._columns
        assert columns.offset is not None
        names = stream_names(batch, columns, self._options).to_pylist()
        offsets, values = batch.column(columns.offset).to_pylist(), batch.column(columns.value).cast(pa.binary())
        types: list[str | None] = [None] * len(batch)
        if columns.content_type is not None:
            types = batch.column(columns.content_type).to_pylist()
        for name, offset, value, content_type in zip(names, offsets, values.to_pylist(), types, strict=True):
            if offset is None or offset < 0 or value is None:
                raise WriteFailed(f"A snapshot of the stream {name!r} has no offset or no value; leave such rows out.")
            yield _Snapshot(name, offset, value, content_type or self._default_type)


def _publish(links: "SimpleQueue[Link]", row: _Snapshot) -> str:
    """What becomes of a snapshot."""
    if row.stream.count("/") != 1:
        return UNADDRESSED
    link = links.get()
    try:
        link.publish_snapshot(*row)
    except LinkRefused as refused:
        if refused.code not in OUTCOMES:
            raise WriteFailed(
                f"The snapshot of {row.stream!r} at offset {row.offset} was refused with {refused.status}: "
                f"{refused.detail}"
            ) from refused
        if refused.next_offset is not None and row.offset > refused.next_offset:
            # The server has one code for this and for those that come too late.
            return BEYOND
        return OUTCOMES[Code(refused.code)]
    finally:
        links.put(link)
    return PUBLISHED


def check_published(messages: Messages) -> None:
    """Raise WriteFailed if all snapshots failed; a part of them is a warning in the driver's log."""
    told = [message for message in messages if isinstance(message, Published)]
    failed = sum((one.failed for one in told), Counter[str]())
    if not failed:
        return
    done = sum(one.published + one.skipped for one in told)
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in sorted(failed.items()))
    example = next(one.example for one in told if one.example is not None)
    sentence = f"{failed.total():,} of {failed.total() + done:,} snapshots were not published: {reasons} ({example!r})."
    if not done:
        raise WriteFailed(sentence)
    _log.warning(sentence)
