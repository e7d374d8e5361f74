"""The sink: `df.write.format("headwater")` and `df.writeStream.format("headwater")`, exactly once.

A task sorts its rows by stream, cuts them into chunks and sends those. Chunk n of a stream is sequence n of the
producer, whose epoch is the batch; so a task that is tried again sends what the server has already, and a batch of an
older run is refused. That holds as long as one task has all rows of a stream, which the commit checks.
"""

import uuid
from collections.abc import Iterable, Iterator, Mapping
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

from headwater.spark.link import Link
from headwater.spark.options.values import OptionRefused
from headwater.spark.sink.chunks import Chunker
from headwater.spark.sink.delivery import Delivery, Producer, WriteFailed, packed
from headwater.spark.sink.options import SinkOptions, parse_sink
from headwater.spark.sink.rows import RowReader, default_type, find_columns
from headwater.spark.sink.runs import Sorter
from headwater.spark.sink.snapshots import SnapshotBatchWriter, SnapshotStreamWriter

BATCH_ID = "streaming.sql.batchId"
"""The property of a task that says which batch it is part of; a writer is not told otherwise."""
STREAMS_PER_TASK_MAX = 4_000_000
"""The commit compares the streams of all tasks: 32 MiB of hashes from each at most."""
STREAMS_TOLD = 1_000
"""Streams of a task that the commit knows by name, for a better message."""

Messages: TypeAlias = list[WriterCommitMessage | None]


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What a task has written: hashes of its streams, some of their names, and counts."""

    streams: bytes = b""
    names: tuple[str, ...] = ()
    appends: int = 0
    duplicates: int = 0


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
    """What Spark asks for a batch write; made on the driver and sent to the tasks."""
    parsed = parse_sink(options, streaming=False)
    if overwrite:
        raise OptionRefused("Streams are only ever added to, so there is no mode overwrite; use mode append.")
    if parsed.target == "snapshot":
        return SnapshotBatchWriter(parsed, schema)
    # Made once for all tasks and their retries, which are thereby recognised.
    identity = parsed.producer_id or f"spark-{uuid.uuid4()}"
    return BatchWriter(parsed, schema, Producer(identity, parsed.producer_epoch or 0))


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
    """What Spark asks for a streaming write."""
    parsed = parse_sink(options, streaming=True)
    if overwrite:
        raise OptionRefused(
            "Streams are only ever added to, so there is no output mode complete; use append or update."
        )
    return SnapshotStreamWriter(parsed, schema) if parsed.target == "snapshot" else StreamWriter(parsed, schema)


class BatchWriter(DataSourceArrowWriter):
    """Writes the tasks of one job."""

    def __init__(self, options: SinkOptions, schema: StructType, producer: Producer) -> None:
        self._task, self._producer = TaskWriter(options, schema), producer

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return self._task.write(iterator, self._producer)

    def commit(self, messages: Messages) -> None:
        check_apart(messages)

    def abort(self, messages: Messages) -> None:
        """Nothing is taken back: what was appended is what a retry finds."""


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the micro-batches of one query."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        assert options.producer_id is not None
        self._task, self._producer_id = TaskWriter(options, schema), options.producer_id

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return self._task.write(iterator, Producer(self._producer_id, batch_id()))

    def commit(self, messages: Messages, batchId: int) -> None:
        check_apart(messages)

    def abort(self, messages: Messages, batchId: int) -> None:
        """Nothing is taken back: what was appended is what a retry finds."""


class TaskWriter:
    """Writes the rows of a task."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._options, self._columns = options, find_columns(schema, options)
        self._default_type = default_type(schema, options)

    def write(self, batches: Iterable[pa.RecordBatch], producer: Producer) -> Written:
        """Sort, cut and send all rows."""
        options, reader = self._options, RowReader(self._columns, self._options)
        tally = _Tally()
        with Sorter(reader.order) as sorter:
            for batch in batches:
                sorter.add(reader.read(batch))
            if sorter.empty:
                return Written()
            chunker = Chunker(options.append_bytes, options.append_messages)
            with Link(options.link) as link:
                delivery = Delivery(link, producer, create=options.create, content_type=self._default_type)
                delivery.send_all(packed(tally.count(_chunks(chunker, sorter))))
        return Written(tally.hashes(), tuple(tally.names), delivery.appends, delivery.duplicates)


def batch_id() -> int:
    """The number of the micro-batch that this task is part of."""
    context = TaskContext.get()
    told = None if context is None else context.getLocalProperty(BATCH_ID)
    if told is None:
        raise WriteFailed("Spark does not say which batch this task belongs to, so its rows cannot be written safely.")
    return int(told)


def _chunks(chunker: Chunker, sorter: Sorter) -> Iterator[pa.RecordBatch]:
    for block in sorter.blocks():
        yield chunker.feed(block)
    last = chunker.finish()
    if last is not None:
        yield last


class _Tally:
    """Which streams a task writes."""

    def __init__(self) -> None:
        self._hashes = bytearray()
        self.names: list[str] = []

    def count(self, chunks: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same chunks, with their streams remembered."""
        for batch in chunks:
            for name in batch["stream"].filter(batch["last"]).to_pylist():
                self._hashes += _hash(name)
                if len(self.names) < STREAMS_TOLD:
                    self.names.append(name)
            if len(self._hashes) > 8 * STREAMS_PER_TASK_MAX:
                raise WriteFailed(
                    f"A task writes to more than {STREAMS_PER_TASK_MAX:,} streams; use more partitions, for example "
                    "with headwater.spark.writing.by_stream."
                )
            yield batch

    def hashes(self) -> bytes:
        return bytes(self._hashes)


def _hash(name: str) -> bytes:
    return blake2b(name.encode(), digest_size=8).digest()


def check_apart(messages: Messages) -> None:
    """Raise WriteFailed if two tasks have written one stream: the chunks of one look like those of the other."""
    written = [message for message in messages if isinstance(message, Written)]
    hashes = np.sort(np.frombuffer(b"".join(one.streams for one in written), np.uint64))
    twice = {one.tobytes() for one in np.unique(hashes[1:][hashes[1:] == hashes[:-1]])}
    if not twice:
        return
    known = sorted({name for one in written for name in one.names if _hash(name) in twice})
    which = f"the stream {known[0]!r}" if known else "a stream"
    more = f" and {len(twice) - 1:,} more" if len(twice) > 1 else ""
    raise WriteFailed(
        f"Two tasks have written to {which}{more}, so rows of one of them are missing there; repartition with "
        "headwater.spark.writing.by_stream, and write the batch anew to other streams or under another producerId."
    )
