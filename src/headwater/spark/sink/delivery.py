"""Delivery: chunks go to the server, and every outcome is judged.

An append carries its producer's id, epoch and sequence, so it may be sent as often as it takes:

    200, 204                  appended now, or before
    408, 429, 500 and above   sent again after a pause, as often as the link's settings allow
    content_type_mismatch     sent again with the stream's own type, unless the row names one
    stream_closed             the stream's last chunk of the batch is sent by itself: 204 proves that all of the batch
                              had been applied before the stream was closed, anything else that it had not
    all else                  the task fails with one sentence

Requests go one after the other, so the chunks of a stream arrive in order.
"""

import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.spark.link import PAUSE_SECONDS_MAX, RETRIED, LinkSettings

REQUEST_BYTES = 4 * 1024 * 1024
REQUEST_APPENDS = 10_000
"""What one request carries, about: so much that its own cost is small, and that it is answered within a second."""
APPEND_BYTES = 200
"""What an append weighs beside its messages."""

DONE = (200, 204)


class WriteFailed(Exception):
    """Rows cannot be written; the message is one sentence for a person."""


class Producer(NamedTuple):
    """In whose name a task writes."""

    id: str
    epoch: int


class Server(Protocol):
    """What is needed of a link."""

    settings: LinkSettings

    def append(self, rows: pa.Table) -> pa.Table: ...


class Delivery:
    """Sends the chunks of one task, and counts what became of them."""

    def __init__(self, server: Server, producer: Producer, *, create: bool, content_type: str) -> None:
        self._server, self._producer = server, producer
        self._create, self._content_type = create, content_type
        self._found_closed: str | None = None
        """A closed stream of whose chunks only the last is still to be sent."""
        self.appends = self.duplicates = 0

    def send_all(self, requests: Iterable[pa.Table]) -> None:
        """Send requests one by one, each while the next is made."""
        with ThreadPoolExecutor(1) as thread:
            sent: Future[None] | None = None
            for request in requests:
                if sent is not None:
                    sent.result()
                sent = thread.submit(self.send, request)
            if sent is not None:
                sent.result()

    def send(self, chunks: pa.Table) -> None:
        """Have chunks appended, or raise WriteFailed."""
        chunks, proving = self._without_closed(chunks)
        adopting: set[str] = set()
        tries = 0
        while len(chunks):
            answers = self._server.append(self._appends(chunks, adopting))
            statuses = answers["status"].to_numpy()
            self.appends += int(np.count_nonzero(statuses == 200))
            self.duplicates += int(np.count_nonzero(statuses == 204))
            refused = np.flatnonzero(~np.isin(statuses, DONE))
            if not len(refused):
                return
            again, patient = self._sort_out(
                chunks.take(pa.array(refused)), answers.take(pa.array(refused)).to_pylist(), adopting, proving
            )
            tries = 0 if len(refused) < len(chunks) else tries + 1
            if patient:
                self._wait(tries, again, patient)
            chunks = again

    def _sort_out(
        self, chunks: pa.Table, answers: list[dict[str, Any]], adopting: set[str], proving: set[str]
    ) -> tuple[pa.Table, dict[str, Any] | None]:
        """Of chunks that were refused those to send again, and an answer that asks for a pause before that."""
        again: list[int] = []
        patient: dict[str, Any] | None = None
        adopted, closed = set(adopting), set(proving)
        names, types, last = (chunks[name].to_pylist() for name in ("stream", "content_type", "last"))
        for at, answer in enumerate(answers):
            name, code = names[at], answer["code"]
            if answer["status"] in RETRIED and code != "producers_too_many":
                patient = patient or answer
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
                raise WriteFailed(told(name, self._producer, answer))
            again.append(at)
        return chunks.take(pa.array(again, pa.int64())), patient

    def _without_closed(self, chunks: pa.Table) -> tuple[pa.Table, set[str]]:
        """The chunks without those of the closed stream that was met before, except for its last."""
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
                f"{len(chunks)} appends were put off {tries} times, the first of them to the stream "
                f"{chunks['stream'][0].as_py()!r}: {answer['detail']}"
            )
        time.sleep(min(settings.retry_interval_seconds * 2 ** max(tries - 1, 0), PAUSE_SECONDS_MAX))


def told(name: str, producer: Producer, answer: dict[str, Any]) -> str:
    """Why a stream refused an append, and what to do about it."""
    who = f"the producer {producer.id!r}"
    match answer["code"]:
        case "producer_epoch_stale":
            return (
                f"The stream {name!r} is at epoch {answer['producer_epoch']} of {who} and takes nothing of epoch "
                f"{producer.epoch}: a later run has taken over, or this one has lost its checkpoint; "
                "stop the other one, or write under another producerId."
            )
        case "producer_seq_conflict" | "producer_epoch_invalid":
            return (
                f"The stream {name!r} has forgotten what {who} wrote to it in epoch {producer.epoch}: it was deleted "
                "or set back meanwhile; look at what it holds, and write what is missing under another producerId."
            )
        case "stream_closed":
            return (
                f"The stream {name!r} was closed before all of this batch was in it, and takes nothing more; "
                "write to another one, or leave it out."
            )
        case "stream_not_found":
            return f"There is no stream {name!r}; create it, or let the option createStreams be true."
        case "producers_too_many":
            return (
                f"The stream {name!r} knows as many producers as it can; write with the options producerId and "
                "producerEpoch, so that not every write is a producer of its own."
            )
        case "invalid_json":
            return (
                f"The stream {name!r} holds JSON and was given something else; give the option contentType, for "
                f"instance text/plain, to make streams of another kind ({answer['detail'].rstrip('.')})."
            )
    return f"The stream {name!r} refused an append with {answer['status']}: {answer['detail']}"


def packed(chunks: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Chunks, in order, in requests of a good size."""
    held: list[pa.RecordBatch] = []
    appends = size = 0
    for batch in chunks:
        at, ends = 0, np.cumsum(_sizes(batch))
        while at < len(batch):
            before = int(ends[at - 1]) if at else 0
            until = int(np.searchsorted(ends, before + REQUEST_BYTES - size, "right"))
            until = min(until, at + REQUEST_APPENDS - appends)
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
    """What each chunk weighs in a request."""
    lists = batch["messages"]
    messages = lists.flatten()
    lengths = pc.binary_length(messages).to_numpy(zero_copy_only=False).astype(np.int64)
    ends = np.concatenate([[0], np.cumsum(lengths)])
    borders = lists.offsets.to_numpy() - lists.offsets[0].as_py()
    sizes: np.ndarray[Any, np.dtype[np.int64]] = np.diff(ends[borders]) + APPEND_BYTES
    return sizes
