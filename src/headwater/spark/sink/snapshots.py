"""Snapshots as the target: each row is published as the snapshot of its stream at an offset.

A snapshot that is older than the stream's current one is skipped, because the current one covers it.
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
from headwater.spark.failures import LinkRefused
from headwater.spark.link import Link
from headwater.spark.options.sink import SinkOptions
from headwater.spark.sink.delivery import WriteFailed
from headwater.spark.sink.rows import default_type, find_columns, stream_names

LINKS = 4
"""How many snapshots a task publishes concurrently; each of them waits for a disk sync."""

Messages: TypeAlias = list[WriterCommitMessage | None]

PUBLISHED, SKIPPED = "published", "skipped"
MISSING = "are of streams that do not exist"
GONE = "are of streams that were deleted"
BEYOND = "are beyond the end of their streams, which may have been recreated"
UNADDRESSED = "have stream names that no snapshot URL can express, such as one with two slashes"
OUTCOMES = {
    Code.SNAPSHOT_CONFLICT: SKIPPED,
    # A later snapshot covers what was trimmed.
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
    """What a task did: how many snapshots it published, how many it skipped as too old, and why others failed."""

    published: int = 0
    skipped: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    """Counts, by reason."""
    example: str | None = None
    """A stream whose snapshot failed."""


class _Snapshot(NamedTuple):
    stream: str
    offset: int
    value: bytes
    content_type: str


class SnapshotWriter(DataSourceArrowWriter, DataSourceStreamArrowWriter):
    """Publishes the rows of one batch, or of the micro-batches of one query."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._task = SnapshotTask(options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Published:
        return self._task.write(iterator)

    def commit(self, messages: Messages, batchId: int = 0) -> None:
        check_published(messages)

    def abort(self, messages: Messages, batchId: int = 0) -> None:
        """Nothing is undone: published snapshots stay."""


class SnapshotTask:
    """Publishes the rows of a task."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._options, self._columns = options, find_columns(schema, options)
        self._default_type = default_type(schema, options)

    def write(self, batches: Iterable[pa.RecordBatch]) -> Published:
        """Publish all rows; WriteFailed for a refusal that a retry would not change."""
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
                raise WriteFailed(
                    f"A snapshot of the stream {name!r} has no valid offset or no value; leave such rows out."
                )
            yield _Snapshot(name, offset, value, content_type or self._default_type)


def _publish(links: "SimpleQueue[Link]", row: _Snapshot) -> str:
    """Publish one snapshot; its outcome."""
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
            # The server uses the same code for this and for snapshots that are too old.
            return BEYOND
        return OUTCOMES[Code(refused.code)]
    finally:
        links.put(link)
    return PUBLISHED


def check_published(messages: Messages) -> None:
    """Raise WriteFailed if all snapshots failed; log a warning on the driver if some did."""
    reports = [message for message in messages if isinstance(message, Published)]
    failed = sum((one.failed for one in reports), Counter[str]())
    if not failed:
        return
    done = sum(one.published + one.skipped for one in reports)
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in sorted(failed.items()))
    example = next(one.example for one in reports if one.example is not None)
    sentence = f"{failed.total():,} of {failed.total() + done:,} snapshots were not published: {reasons} ({example!r})."
    if not done:
        raise WriteFailed(sentence)
    _log.warning(sentence)
