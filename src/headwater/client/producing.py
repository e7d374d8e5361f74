"""The producer: idempotent writes in order, without any I/O.

Every request carries the producer's id, its epoch and a sequence number, and the stream accepts each number once. The
rules of this module:

1.  A number always stands for the same bytes. A request whose outcome is unknown is sent again unchanged.
2.  Several requests may be in flight. If one overtakes another, the stream refuses it (409, a gap); it is sent again
    when all before it are settled. A gap with nothing before it means that the stream has lost its state: the producer
    ends.
3.  A stream that knows a higher epoch refuses (403): another instance has taken over, and this one ends. With
    `auto_claim` it takes over itself, with the next epoch and numbers from 0. It does so only when nothing is in
    flight, and only if each of its unsettled requests is known not to have happened: a request that may have happened
    in the old epoch would happen again in the new one. If the outcome of one is unknown, the producer ends with that
    error.
4.  One request is sent alone until one was accepted as new: only then is the epoch known to be ours. Otherwise a later
    request could be accepted although earlier ones were taken for repetitions. With `auto_claim`, if a request that was
    sent only once is answered as a duplicate, another instance uses this epoch, and the producer claims the next one.
    If the first request had to be repeated, such an answer may be about our own attempt or about another instance, and
    the producer ends with that error. So two instances never both write in one epoch.
5.  Without `auto_claim` an answer that says "duplicate" about a request that was sent only once, or that names a higher
    number than any of ours, ends the producer: another instance, or an earlier run, has used this epoch, and the
    messages would be lost without a word. `on_duplicate="accept"` is for programs that repeat the same messages in the
    same requests.
6.  A stream that still knows what it accepted last refuses other bytes under that number (409): whatever became of
    earlier attempts, ours was never accepted. With `auto_claim` the producer claims the next epoch, else it ends.
7.  Any other refusal ends the producer: messages after a refused one must not be written without it.

The caller passes the time, in seconds since an arbitrary moment.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Generic, TypeVar

from headwater.client import bodies
from headwater.client.bodies import EncodedMessages
from headwater.client.errors import (
    ClientError,
    OutcomeUnknown,
    ProducerEnded,
    ProducerEpochUsed,
    ProducerFenced,
    SequenceConflict,
    TransportFailed,
    is_unknown,
    refusal,
    retry_after_seconds,
)
from headwater.client.gathering import shares
from headwater.client.operations import appended, producer_fields, with_values
from headwater.client.retrying import RETRIED_STATUSES, Failures, RetryPolicy
from headwater.client.values import Appended, OnDuplicate
from headwater.client.wire import Request, Response
from headwater.protocol import headers
from headwater.protocol.limits import NUMBER_MAX
from headwater.protocol.producers import Producer

W = TypeVar("W")
EPOCH_USED = (
    "Request {seq} of producer {id!r} in epoch {epoch} was taken for a repetition and not written: another process, or "
    "an earlier run of this one, has used the epoch. Pass a higher epoch, or auto_claim=True to take the next one."
)
Resolved = list[tuple[W, Appended | ClientError]]
"""Waiters and their outcomes."""


@dataclass(frozen=True, slots=True)
class ProducerOptions:
    """The identity of a producer, and how much it sends at a time."""

    id: str
    epoch: int = 0
    auto_claim: bool = False
    on_duplicate: OnDuplicate = "raise"
    batch_bytes_max: int = 1024 * 1024
    batch_messages_max: int = 10_000
    linger_ms: float = 5.0
    in_flight_max: int = 5
    pending_bytes_max: int = 16 * 1024 * 1024

    def __post_init__(self) -> None:
        if not self.id:
            raise ValueError("id is empty; a producer needs a name.")
        if not 0 <= self.epoch <= NUMBER_MAX:
            raise ValueError(f"epoch is {self.epoch}; it must be from 0 to {NUMBER_MAX}.")
        if self.auto_claim and self.on_duplicate == "accept":
            raise ValueError(
                "auto_claim and on_duplicate='accept' exclude each other: a claimed epoch has no duplicates."
            )
        for name in ("batch_bytes_max", "batch_messages_max", "in_flight_max", "pending_bytes_max"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be above 0.")
        if self.linger_ms < 0:
            raise ValueError(f"linger_ms is {self.linger_ms}; it must not be below 0.")


class BatchState(Enum):
    """Whether a batch can be sent."""

    READY = "ready"
    IN_FLIGHT = "in flight"
    BEHIND = "behind"
    """Refused as a gap: to be sent again when all before it are settled."""


@dataclass(slots=True, eq=False)
class Batch(Generic[W]):
    """The messages of one sequence number, and what is known about their request."""

    epoch: int
    seq: int
    pieces: list[EncodedMessages]
    waiters: list[W]
    failures: Failures
    closing: bool = False
    state: BatchState = BatchState.READY
    not_before: float = 0.0
    in_doubt: bool = False
    """Whether it may have been accepted."""
    sent_before: bool = False
    """Whether an earlier request with this number left; a network may deliver one again, even a refused one."""
    sent_as_first: bool = False


@dataclass(slots=True)
class Producing(Generic[W]):
    """The state of a producer: `take` returns a batch to send, `settle` records its outcome."""

    url: str
    content_type: str
    options: ProducerOptions
    policy: RetryPolicy
    incarnation: str | None = None
    failure: ClientError | None = None
    epoch: int = field(init=False)
    next_seq: int = 0
    _pending: deque[tuple[EncodedMessages, W]] = field(default_factory=deque)
    _pending_bytes: int = 0
    _oldest_at: float = 0.0
    _closing: tuple[EncodedMessages | None, W] | None = None
    _ended: bool = False
    _flushing: bool = False
    _window: list[Batch[W]] = field(default_factory=list)
    _proven: bool = False
    _claim: int | None = None
    _claims: int = 0

    def __post_init__(self) -> None:
        self.epoch = self.options.epoch

    # -- Messages in --------------------------------------------------------------------------------------------------

    def add(self, piece: EncodedMessages, waiter: W, now: float) -> bool:
        """Add messages, and return whether a batch may be due because of them."""
        self._check()
        first = not self._pending
        if first:
            self._oldest_at = now
        self._pending.append((piece, waiter))
        self._pending_bytes += len(piece.data) + 1
        return first or self._flushing or self._pending_bytes >= self.options.batch_bytes_max

    def close_stream(self, piece: EncodedMessages | None, waiter: W) -> None:
        """Close the stream after everything added so far, with or without a last message."""
        self._check()
        self._closing = (piece, waiter)
        self._ended = self._flushing = True

    def flush(self) -> None:
        """Send pending messages without lingering."""
        self._flushing = bool(self._pending) or self._closing is not None

    def end(self) -> None:
        """Accept no more messages; pending ones are still sent."""
        self._ended = True
        self.flush()

    def abandon(self) -> Resolved[W]:
        """End at once, and return an outcome for every waiter: requests in flight will not be settled."""
        self._fail(ProducerEnded(f"The producer {self.options.id!r} was stopped before everything was written."))
        for batch in self._window:
            batch.in_doubt = batch.in_doubt or batch.state is BatchState.IN_FLIGHT
            batch.state = BatchState.READY
        return self._drop()

    def _check(self) -> None:
        if self.failure is not None:
            raise self.failure
        if self._ended:
            raise ProducerEnded(f"The producer {self.options.id!r} has been closed; create another one.")

    @property
    def room(self) -> bool:
        return self._pending_bytes < self.options.pending_bytes_max

    @property
    def idle(self) -> bool:
        return not self._pending and not self._window and self._closing is None

    # -- Batches out -------------------------------------------------------------------------------------------------

    def take(self, now: float) -> Batch[W] | None:
        """The batch to send now, if there is one."""
        if self.failure is not None or self._claim is not None:
            return None
        first = self._first_waiting()
        if first is not None:
            at, batch = first
            held = batch.not_before > now or (batch.state is BatchState.BEHIND and at > 0)
            return None if held or self._full() else self._launch(batch)
        if len(self._window) < self._width() and self._due(now):
            return self._launch(self._cut())
        if not self._window and not self._pending and self._closing is not None:
            return self._launch(self._cut_closing(*self._closing))
        return None

    def wake_at(self, now: float) -> float | None:
        """When to call `take` again if nothing happens before; None if only an event can change its result."""
        if self.failure is not None or self._claim is not None or self._full():
            return None
        first = self._first_waiting()
        if first is not None:
            at, batch = first
            return None if batch.state is BatchState.BEHIND and at > 0 else batch.not_before
        if self._pending and len(self._window) < self._width():
            return now if self._flushing else self._oldest_at + self.options.linger_ms / 1000
        return None

    def _first_waiting(self) -> tuple[int, Batch[W]] | None:
        """The first batch that is not in flight. Those after it must wait: they would be refused as a gap."""
        for at, batch in enumerate(self._window):
            if batch.state is not BatchState.IN_FLIGHT:
                return at, batch
        return None

    def _full(self) -> bool:
        return sum(batch.state is BatchState.IN_FLIGHT for batch in self._window) >= self._width()

    def request(self, batch: Batch[W]) -> Request:
        fields = {
            **producer_fields(Producer(self.options.id, batch.epoch, batch.seq)),
            headers.CONTENT_TYPE: self.content_type if batch.pieces else None,
            headers.STREAM_CLOSED: batch.closing,
            headers.STREAM_INCARNATION: self.incarnation,
        }
        body = bodies.join(batch.pieces, self.content_type) if batch.pieces else b""
        return Request("POST", self.url, with_values(fields), body=body)

    def _width(self) -> int:
        return self.options.in_flight_max if self._proven else 1

    def _due(self, now: float) -> bool:
        if not self._pending:
            return False
        full = self._pending_bytes >= self.options.batch_bytes_max
        return self._flushing or full or now >= self._oldest_at + self.options.linger_ms / 1000

    def _launch(self, batch: Batch[W]) -> Batch[W]:
        batch.state = BatchState.IN_FLIGHT
        batch.sent_as_first = batch is self._window[0]
        return batch

    def _cut(self) -> Batch[W]:
        pieces: list[EncodedMessages] = []
        waiters: list[W] = []
        size = messages = 0
        while self._pending:
            piece, waiter = self._pending[0]
            size += len(piece.data) + 1
            messages += piece.messages
            if pieces and (size > self.options.batch_bytes_max or messages > self.options.batch_messages_max):
                break
            self._pending.popleft()
            self._pending_bytes -= len(piece.data) + 1
            pieces.append(piece)
            waiters.append(waiter)
        self._flushing = self._flushing and bool(self._pending or self._closing)
        return self._number(pieces, waiters, closing=False)

    def _cut_closing(self, piece: EncodedMessages | None, waiter: W) -> Batch[W]:
        self._closing = None
        return self._number([] if piece is None else [piece], [waiter], closing=True)

    def _number(self, pieces: list[EncodedMessages], waiters: list[W], *, closing: bool) -> Batch[W]:
        batch = Batch(self.epoch, self.next_seq, pieces, waiters, Failures(self.policy), closing)
        self.next_seq += 1
        self._window.append(batch)
        return batch

    # -- Answers -------------------------------------------------------------------------------------------------------

    def settle(self, batch: Batch[W], outcome: Response | TransportFailed, now: float) -> Resolved[W]:
        """Record the outcome of a batch that was sent, and return the waiters that now have an outcome."""
        batch.state = BatchState.READY
        resolved = self._judge(batch, outcome, now)
        batch.sent_before = batch.sent_before or isinstance(outcome, Response) or outcome.sent
        in_flight = any(other.state is BatchState.IN_FLIGHT for other in self._window)
        if self.failure is not None:
            resolved += self._drop()
        elif self._claim is not None and not in_flight:
            resolved += self._take_over(self._claim)
        return resolved

    def _judge(self, batch: Batch[W], outcome: Response | TransportFailed, now: float) -> Resolved[W]:
        if isinstance(outcome, TransportFailed):
            batch.in_doubt = batch.in_doubt or outcome.sent
            return self._retry(batch, outcome, None, now, outcome.others)
        if outcome.ok:
            return self._accept(batch, outcome)
        request = self.request(batch)
        error = refusal(request, outcome)
        if outcome.status in RETRIED_STATUSES:
            # A 503 without a code may come from a proxy, after the server has acted.
            answered = outcome.status == 503 and error.code is not None and not is_unknown(outcome)
            batch.in_doubt = batch.in_doubt or not (answered or outcome.status == 429)
            return self._retry(batch, error, retry_after_seconds(outcome), now, outcome.route.others)
        if isinstance(error, ProducerEpochUsed):
            batch.in_doubt = False
        if isinstance(error, ProducerFenced | ProducerEpochUsed) and self._may_claim():
            known = error.current_epoch if isinstance(error, ProducerFenced) else None
            self._claim = max(self._claim or 0, (self.epoch if known is None else known) + 1)
            return []
        if isinstance(error, SequenceConflict) and error.expected_seq is not None and not batch.sent_as_first:
            batch.state = BatchState.BEHIND
            return []
        return self._fail(error)

    def _accept(self, batch: Batch[W], response: Response) -> Resolved[W]:
        # The answer to a close says that the stream is closed; otherwise it was treated as a duplicate.
        ignored = batch.closing and not response.flag(headers.STREAM_CLOSED)
        duplicate = ignored or (response.status == 204 and bool(batch.pieces))
        if ignored or (duplicate and self._used_by_another(batch, response)):
            if self.options.auto_claim:
                self._claim = max(self._claim or 0, self.epoch + 1)
                return []
            used = EPOCH_USED.format(seq=batch.seq, id=self.options.id, epoch=batch.epoch)
            return self._fail(ProducerEpochUsed(self.request(batch), response.restated(409, used)))
        self._window.remove(batch)
        self._proven, self._claims = self._proven or not duplicate, 0
        self.incarnation = self.incarnation or response.header(headers.STREAM_INCARNATION)
        whole = appended(response, duplicate=duplicate)
        results = shares(batch.pieces, whole) if batch.pieces else [whole]
        return list(zip(batch.waiters, results, strict=True))

    def _used_by_another(self, batch: Batch[W], response: Response) -> bool:
        """Whether a duplicate repeats what another writer sent; with `auto_claim`, whether that is possible."""
        if self.options.on_duplicate == "accept":
            return False
        trusted = self._proven or not self.options.auto_claim
        highest = response.number(headers.PRODUCER_SEQ) or 0
        return not (batch.sent_before and trusted) or highest >= self.next_seq

    def _may_claim(self) -> bool:
        return self.options.auto_claim and self._claims < self.policy.attempts_max

    def _retry(
        self, batch: Batch[W], error: ClientError, retry_after: float | None, now: float, others: int
    ) -> Resolved[W]:
        delay = batch.failures.next_delay(retry_after, others=others)
        if delay is None:
            return self._fail(error)
        batch.not_before = now + delay
        return []

    def _take_over(self, epoch: int) -> Resolved[W]:
        if any(batch.in_doubt for batch in self._window):
            return self._fail(self._unknown("lost its epoch while the outcome of a write was unknown")) + self._drop()
        self._claim, self._proven = None, False
        self._claims += 1
        self.epoch, self.next_seq = epoch, len(self._window)
        for seq, batch in enumerate(self._window):
            batch.epoch, batch.seq, batch.state, batch.not_before = epoch, seq, BatchState.READY, 0.0
            batch.sent_before = False
        return []

    def _fail(self, error: ClientError) -> Resolved[W]:
        self.failure = self.failure or error
        return []

    def _drop(self) -> Resolved[W]:
        """Fail every write that is not in flight; the others get their outcome when they are settled."""
        assert self.failure is not None
        dropped = [batch for batch in self._window if batch.state is not BatchState.IN_FLIGHT]
        self._window = [batch for batch in self._window if batch.state is BatchState.IN_FLIGHT]
        waiters: Iterable[W] = [waiter for _, waiter in self._pending]
        resolved: Resolved[W] = [(waiter, self._failure_of(batch)) for batch in dropped for waiter in batch.waiters]
        resolved += [(waiter, self.failure) for waiter in waiters]
        if self._closing is not None:
            resolved.append((self._closing[1], self.failure))
        self._pending.clear()
        self._pending_bytes, self._closing = 0, None
        return resolved

    def _failure_of(self, batch: Batch[W]) -> ClientError:
        assert self.failure is not None
        if not batch.in_doubt or isinstance(self.failure, OutcomeUnknown):
            return self.failure
        error = self._unknown("ended while the outcome of a write was unknown")
        error.__cause__ = self.failure
        return error

    def _unknown(self, what: str) -> OutcomeUnknown:
        return OutcomeUnknown(f"The producer {self.options.id!r} {what}; it may or may not have happened.", sent=True)
