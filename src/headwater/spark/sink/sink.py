"""The sink: `df.write.format("headwater")` and `df.writeStream.format("headwater")`, exactly once.

A task sorts its rows by stream, cuts them into chunks and sends the chunks. Chunk n of a stream has the producer's
sequence number n, and the batch is the epoch. So the server recognizes everything that a retried task sends again, and
refuses a batch of an older run. This requires that one task has all rows of a stream, which the commit checks, and that
a producer's id belongs to one query, which its ledger ensures.
"""

import logging
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from headwater.spark.failures import LinkFailed, LinkRefused
from headwater.spark.link import Link
from headwater.spark.options.sink import SinkOptions, parse_sink
from headwater.spark.options.values import OptionRefused
from headwater.spark.sink.chunks import Chunker
from headwater.spark.sink.delivery import Delivery, Producer, WriteFailed, packed
from headwater.spark.sink.ledger import Ledger, owner_of
from headwater.spark.sink.rows import RowMapper, default_type, find_columns
from headwater.spark.sink.snapshots import SnapshotWriter
from headwater.spark.sink.sorting import RUN_BYTES, Sorter

BATCH_ID = "streaming.sql.batchId"
"""The task property with the number of the micro-batch, which Spark does not pass to a writer."""
QUERY_ID = "sql.streaming.queryId"
"""The task property with the query's id, which is the same for all runs from one checkpoint; in foreachBatch too."""
STREAMS_PER_TASK_MAX = 4_000_000
"""The commit compares the streams of all tasks; this limits each task to 32 MiB of hashes."""
STREAMS_NAMED_MAX = 1_000
"""How many streams of a task the commit knows by name, for a better message."""

Messages: TypeAlias = list[WriterCommitMessage | None]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What a task wrote: hashes of its streams' names, some of the names, and counts."""

    streams: bytes = b""
    names: tuple[str, ...] = ()
    appends: int = 0
    duplicates: int = 0
    rows_repeated: int = 0
    """Rows that the server had already."""


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
    """The writer of a batch; Spark pickles it on the driver and sends it to the tasks."""
    parsed = parse_sink(options, streaming=False)
    if overwrite:
        raise OptionRefused("Streams are append-only, so mode overwrite is not possible; use mode append.")
    return SnapshotWriter(parsed, schema) if parsed.target == "snapshot" else BatchWriter(parsed, schema)


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
    """The writer of a streaming query."""
    parsed = parse_sink(options, streaming=True)
    if overwrite:
        raise OptionRefused("Streams are append-only, so output mode complete is not possible; use append or update.")
    return SnapshotWriter(parsed, schema) if parsed.target == "snapshot" else StreamWriter(parsed, schema)


class BatchWriter(DataSourceArrowWriter):
    """Writes one batch."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._task, self._options = TaskWriter(options, schema), options
        # A made-up id is the same for all tasks and their retries, by which the server recognizes a retry.
        self._producer = Producer(options.producer_id or f"spark-{uuid.uuid4()}", options.producer_epoch or 0)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        if self._options.producer_id is None:
            return self._task.write(iterator, self._producer)
        return self._task.write(iterator, self._producer, owner_of(task_property(QUERY_ID)))

    def commit(self, messages: Messages) -> None:
        check_one_task_per_stream(messages)
        if self._options.producer_id is not None:
            note_repeated(messages, self._options, self._producer)
        else:
            self._finish()

    def abort(self, messages: Messages) -> None:
        """Nothing is undone: a retry under the same producerId finds what was appended, and continues."""
        if self._options.producer_id is None:
            self._finish()

    def _finish(self) -> None:
        """Tell the server that the made-up producer is not used again, so that streams need not remember it."""
        with suppress(LinkFailed, LinkRefused), Link(self._options.link) as link:
            link.finish(self._producer.id)


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the micro-batches of one query."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        assert options.producer_id is not None
        self._task, self._options, self._producer_id = TaskWriter(options, schema), options, options.producer_id

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        batch, query = task_property(BATCH_ID), task_property(QUERY_ID)
        if batch is None or query is None:
            raise WriteFailed(
                f"Spark did not pass the batch number and the query's id (task properties {BATCH_ID} and {QUERY_ID}), "
                "so the rows cannot be written exactly once; use a supported version of Spark."
            )
        return self._task.write(iterator, Producer(self._producer_id, int(batch)), owner_of(query))

    def commit(self, messages: Messages, batchId: int) -> None:
        check_one_task_per_stream(messages)
        note_repeated(messages, self._options, Producer(self._producer_id, batchId))

    def abort(self, messages: Messages, batchId: int) -> None:
        """Nothing is undone: a retry finds what was appended, and continues."""


class TaskWriter:
    """Writes the rows of a task."""

    def __init__(self, options: SinkOptions, schema: StructType, *, run_bytes: int = RUN_BYTES) -> None:
        self._options, self._columns, self._run_bytes = options, find_columns(schema, options), run_bytes
        self._default_type = default_type(schema, options)

    def write(self, batches: Iterable[pa.RecordBatch], producer: Producer, owner: str | None = None) -> Written:
        """Sort, cut and send all rows; WriteFailed if the producer's id does not belong to the owner, if there is one.

        An id that was made up for this write needs none.
        """
        options, mapper = self._options, RowMapper(self._columns, self._options)
        tally = _StreamTally()
        with Sorter(mapper.order, run_bytes=self._run_bytes) as sorter:
            for batch in batches:
                sorter.add(mapper.rows(batch))
            if sorter.empty:
                return Written()
            chunker = Chunker(options.append_bytes, options.append_messages)
            with Link(options.link) as link:
                if owner is not None:
                    Ledger(link, producer.id).claim(owner)
                delivery = Delivery(link, producer, create=options.create, content_type=self._default_type)
                delivery.send_all(packed(tally.count(_chunks(chunker, sorter))))
        done = delivery.appends, delivery.duplicates, delivery.rows_repeated
        return Written(tally.hashes(), tuple(tally.names), *done)


def task_property(name: str) -> str | None:
    """A property of the job that this task belongs to."""
    context = TaskContext.get()
    return None if context is None else context.getLocalProperty(name)


def _chunks(chunker: Chunker, sorter: Sorter) -> Iterator[pa.RecordBatch]:
    for block in sorter.blocks():
        yield chunker.feed(block)
    last = chunker.finish()
    if last is not None:
        yield last


class _StreamTally:
    """Notes which streams a task writes to."""

    def __init__(self) -> None:
        self._hashes = bytearray()
        self.names: list[str] = []

    def count(self, chunks: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same chunks; their streams are noted."""
        for batch in chunks:
            for name in batch["stream"].filter(batch["last"]).to_pylist():
                self._hashes += _hash(name)
                if len(self.names) < STREAMS_NAMED_MAX:
                    self.names.append(name)
            if len(self._hashes) > 8 * STREAMS_PER_TASK_MAX:
                raise WriteFailed(
                    f"A task writes to more than {STREAMS_PER_TASK_MAX:,} streams; use more partitions, for example "
                    "with headwater.spark.writing.by_stream(rows, partitions)."
                )
            yield batch

    def hashes(self) -> bytes:
        return bytes(self._hashes)


def _hash(name: str) -> bytes:
    return blake2b(name.encode(), digest_size=8).digest()


def check_one_task_per_stream(messages: Messages) -> None:
    """Raise WriteFailed if two tasks wrote to one stream: the server took chunks of one for retries of the other."""
    written = [message for message in messages if isinstance(message, Written)]
    hashes = np.sort(np.frombuffer(b"".join(one.streams for one in written), np.uint64))
    twice = {one.tobytes() for one in np.unique(hashes[1:][hashes[1:] == hashes[:-1]])}
    if not twice:
        return
    known = sorted({name for one in written for name in one.names if _hash(name) in twice})
    which = f"the stream {known[0]!r}" if known else "a stream"
    more = f" and {len(twice) - 1:,} more" if len(twice) > 1 else ""
    raise WriteFailed(
        f"Two tasks wrote to {which}{more}, so rows of one of them are missing there; repartition with "
        "headwater.spark.writing.by_stream, and write the batch again to other streams or under another producerId."
    )


def note_repeated(messages: Messages, options: SinkOptions, producer: Producer) -> None:
    """Log and record how many rows of a batch the server had already."""
    repeated = sum(message.rows_repeated for message in messages if isinstance(message, Written))
    if not repeated:
        return
    with Link(options.link) as link:
        ledger = Ledger(link, producer.id)
        ledger.note_repeated(producer.epoch, repeated)
    _log.warning(
        "The server had %d rows of epoch %d of the producer %r already, and did not add them again; %r records this.",
        repeated, producer.epoch, producer.id, ledger.stream,
    )  # fmt: skip
