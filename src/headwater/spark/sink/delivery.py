"""Delivery: chunks are sent to the server, and every outcome is handled.

An append carries its producer's id, epoch and sequence, so sending it again is safe:

    200                       appended now
    204                       appended before; for the last chunk of a stream, as the last one of the batch
    408, 429, 500, 502 to 504 sent again after a pause, as often as the link's settings allow
    content_type_mismatch     sent again with the stream's own type, unless the row names a type
    stream_closed             the stream's last chunk of the batch is sent alone: 204 proves that the whole batch was
                              applied before the stream was closed, anything else that it was not
    anything else             the task fails with one sentence

Requests are sent one at a time, so that the chunks of a stream arrive in order.
"""

import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.client.retrying import RETRIED_STATUSES
from headwater.spark.failures import NO_RIGHT
from headwater.spark.link import LinkSettings
from headwater.spark.sink.chunks import Flags

REQUEST_BYTES = 4 * 1024 * 1024
REQUEST_APPENDS = 10_000
"""The size of a request: large enough that its own cost is small, small enough to be answered within a second."""
APPEND_BYTES = 200
"""The cost of an append in addition to its messages."""

APPENDED, REPEATED = 200, 204
DONE = (APPENDED, REPEATED)
PAYLOAD_MISMATCH = "producer_payload_mismatch"


class WriteFailed(Exception):
    """Rows cannot be written; the message is one sentence for the user."""


class Producer(NamedTuple):
    """The producer under which a task writes."""

    id: str
    epoch: int


class Server(Protocol):
    """The part of a link that a delivery needs."""

    settings: LinkSettings

    def append(self, rows: pa.Table) -> pa.Table: ...


class Delivery:
    """Sends the chunks of one task, and counts the outcomes."""

    def __init__(self, server: Server, producer: Producer, *, create: bool, content_type: str) -> None:
        self._server, self._producer = server, producer
        self._create, self._content_type = create, content_type
        self._found_closed: str | None = None
        """A closed stream of which only the last chunk is still to be sent."""
        self.appends = self.duplicates = 0
        self.rows_repeated = 0
        """Rows of appends that the server had already."""

    def send_all(self, requests: Iterable[pa.Table]) -> None:
        """Send requests one at a time, each while the next is prepared."""
        with ThreadPoolExecutor(1) as thread:
            sent: Future[None] | None = None
            for request in requests:
                if sent is not None:
                    sent.result()
                sent = thread.submit(self.send, request)
            if sent is not None:
                sent.result()

    def send(self, chunks: pa.Table) -> None:
        """Append all chunks, or raise WriteFailed."""
        chunks, proving = self._without_closed(chunks)
        adopting: set[str] = set()
        tries = 0
        while len(chunks):
            answers = self._server.append(self._appends(chunks, adopting))
            statuses = answers["status"].to_numpy()
            self.appends += int(np.count_nonzero(statuses == APPENDED))
            self._count_repeated(chunks, answers, statuses == REPEATED)
            refused = np.flatnonzero(~np.isin(statuses, DONE))
            if not len(refused):
                return
            again, busy = self._sort_out(
                chunks.take(pa.array(refused)), answers.take(pa.array(refused)).to_pylist(), adopting, proving
            )
            tries = 0 if len(refused) < len(chunks) else tries + 1
            if busy:
                self._wait(tries, again, busy)
            chunks = again

    def _count_repeated(self, chunks: pa.Table, answers: pa.Table, repeated: Flags) -> None:
        """Count the chunks that the server had already; WriteFailed if it has more of a stream than was sent."""
        if not repeated.any():
            return
        self.duplicates += int(np.count_nonzero(repeated))
        found = chunks.filter(pa.array(repeated))
        self.rows_repeated += pc.sum(pc.list_value_length(found["messages"])).as_py()
        beyond = pc.greater(answers["producer_seq"].filter(pa.array(repeated)), found["seq"])
        longer = found.filter(pc.and_(found["last"], beyond.fill_null(False)))
        if len(longer):
            raise WriteFailed(explain(longer["stream"][0].as_py(), self._producer, {"code": PAYLOAD_MISMATCH}))

    def _sort_out(
        self, chunks: pa.Table, answers: list[dict[str, Any]], adopting: set[str], proving: set[str]
    ) -> tuple[pa.Table, dict[str, Any] | None]:
        """The refused chunks to send again, and an answer that requires a pause before that, if there is one.

        `adopting` are streams that keep their own content type, `proving` are closed streams whose last chunk is sent.
        """
        again: list[int] = []
        busy: dict[str, Any] | None = None
        adopted, closed = set(adopting), set(proving)
        names, types, last = (chunks[name].to_pylist() for name in ("stream", "content_type", "last"))
        for at, answer in enumerate(answers):
            name, code = names[at], answer["code"]
            if answer["status"] in RETRIED_STATUSES and code != "producers_too_many":
                busy = busy or answer
            elif code == "content_type_mismatch" and types[at] is None and name not in adopted:
                adopting.add(name)
            elif code == "stream_closed" and name not in closed:
                proving.add(name)
                if not last[at]:
                    self._found_closed = name
                    continue
                if self._found_closed == name:
                    self._found_closed = None
            else:
                raise WriteFailed(explain(name, self._producer, answer))
            again.append(at)
        return chunks.take(pa.array(again, pa.int64())), busy

    def _without_closed(self, chunks: pa.Table) -> tuple[pa.Table, set[str]]:
        """The chunks without those of the stream that was found closed, except for its last."""
        name = self._found_closed
        if name is None or chunks["stream"][0].as_py() != name:
            return chunks, set()
        ours = pc.equal(chunks["stream"], name)
        if pc.any(pc.and_(ours, chunks["last"])).as_py():
            self._found_closed = None
        return chunks.filter(pc.or_(pc.invert(ours), chunks["last"])), {name}

    def _appends(self, chunks: pa.Table, adopting: set[str]) -> pa.Table:
        """The rows of a request."""
        count = len(chunks)
        types, creates = chunks["content_type"], pa.repeat(pa.scalar(self._create), count)
        if self._create:
            types = types.fill_null(self._content_type)
        if adopting:
            theirs = pc.is_in(chunks["stream"], value_set=pa.array(sorted(adopting)))
            types = pc.if_else(theirs, pa.scalar(None, pa.string()), types)
            creates = pc.and_(creates, pc.invert(theirs))
        return pa.table(
            {
                "stream": chunks["stream"],
                "messages": chunks["messages"],
                "content_type": types,
                "create": creates,
                "close": chunks["close"],
                "producer_id": pa.repeat(self._producer.id, count),
                "producer_epoch": pa.repeat(pa.scalar(self._producer.epoch, pa.int64()), count),
                "producer_seq": chunks["seq"],
            }
        )

    def _wait(self, tries: int, chunks: pa.Table, answer: dict[str, Any]) -> None:
        settings = self._server.settings
        if tries > settings.retries:
            raise WriteFailed(
                f"The server refused {len(chunks)} appends {tries} times in a row, the first to the stream "
                f"{chunks['stream'][0].as_py()!r}; try again later, or raise the option retries: {answer['detail']}"
            )
        time.sleep(settings.retry.delay_seconds(max(tries, 1)))


def explain(name: str, producer: Producer, answer: dict[str, Any]) -> str:
    """Why a stream refused an append, and what to do about it."""
    who = f"the producer {producer.id!r}"
    match answer["code"]:
        case "producer_epoch_stale":
            return (
                f"The stream {name!r} is at epoch {answer['producer_epoch']} of {who} and refuses epoch "
                f"{producer.epoch}: a later run has taken over, or this write has ended; stop the other run, or write "
                "under another producerId."
            )
        case "producer_seq_conflict" | "producer_epoch_invalid":
            return (
                f"The stream {name!r} has lost what {who} wrote to it in epoch {producer.epoch}, because it was "
                "deleted or restored meanwhile; check its contents, and write what is missing under another producerId."
            )
        case code if code == PAYLOAD_MISMATCH:
            return (
                f"The stream {name!r} has other rows in epoch {producer.epoch} of {who} than were sent now: two tasks "
                "wrote to it, another write used the same producerId and epoch, or a retry had other rows or another "
                "order; repartition with headwater.spark.writing.by_stream, sort with orderColumn, and write different "
                "rows under another producerId or epoch."
            )
        case "stream_closed":
            return (
                f"The stream {name!r} was closed before the whole batch was written to it; "
                "write to another stream, or leave its rows out."
            )
        case "stream_not_found":
            return f"There is no stream {name!r}; create it, or set the option createStreams to true."
        case "producers_too_many":
            return (
                f"The stream {name!r} has reached its limit of producers; give the options producerId and "
                "producerEpoch, so that not every write counts as a new producer."
            )
        case "quota_exceeded":
            return (
                f"The stream {name!r} takes no more, because its bucket is full ({answer['detail'].rstrip('.')}); "
                "delete or trim streams, or ask for a larger quota, and start the write again."
            )
        case "forbidden" | "producer_forbidden":
            return f"The token may not write to the stream {name!r} ({answer['detail'].rstrip('.')}); {NO_RIGHT}."
        case "invalid_json":
            return (
                f"The stream {name!r} holds JSON, but a value is not valid JSON; to create streams of another type, "
                f"give the option contentType, for example text/plain ({answer['detail'].rstrip('.')})."
            )
    return f"The stream {name!r} refused an append with {answer['status']}: {answer['detail']}"


def packed(
    chunks: Iterable[pa.RecordBatch],
    *,
    request_bytes: int = REQUEST_BYTES,
    request_appends: int = REQUEST_APPENDS,
    append_bytes: int = APPEND_BYTES,
) -> Iterator[pa.Table]:
    """Requests of moderate size, with all chunks in order."""
    held: list[pa.RecordBatch] = []
    appends = size = 0
    for batch in chunks:
        at, ends = 0, np.cumsum(_sizes(batch) + append_bytes)
        while at < len(batch):
            before = int(ends[at - 1]) if at else 0
            until = int(np.searchsorted(ends, before + request_bytes - size, "right"))
            until = min(until, at + request_appends - appends)
            if until == at and not held:
                until += 1
            if until > at:
                held.append(batch.slice(at, until - at))
                appends, size = appends + until - at, size + int(ends[until - 1]) - before
            if until < len(batch):
                yield pa.Table.from_batches(held)
                held, appends, size = [], 0, 0
            at = until
    if held:
        yield pa.Table.from_batches(held)


def _sizes(batch: pa.RecordBatch) -> "np.ndarray[Any, np.dtype[np.int64]]":
    """The bytes of all messages of each chunk."""
    lists = batch["messages"]
    messages = lists.flatten()
    lengths = pc.binary_length(messages).to_numpy(zero_copy_only=False).astype(np.int64)
    ends = np.concatenate([[0], np.cumsum(lengths)])
    boundaries = lists.offsets.to_numpy() - lists.offsets[0].as_py()
    sizes: np.ndarray[Any, np.dtype[np.int64]] = np.diff(ends[boundaries])
    return sizes
