"""The producer: writes that happen once, in order, however often they are sent.

Every request carries the producer's id, its epoch and a sequence number, and the stream takes each number once. The
rules that this module keeps:

1.  A number stands for the same bytes for ever. A request whose outcome is not known is sent again as it was.
2.  Several requests may be under way. If one overtakes another, the stream refuses it (409, a gap); it goes again when
    all before it are settled. A gap with nothing before it means that the stream has forgotten: that is the end.
3.  A stream that knows a higher epoch refuses (403): another instance has taken over, and this one ends. With
    `auto_claim` it takes over itself, with the next epoch and numbers from 0. It does so only when nothing is under
    way, and only if each of its unsettled requests is known not to have happened: a request that may have happened in
    the old epoch would happen again in the new one. If one is in doubt, the producer ends and says so.
4.  With `auto_claim` one request goes alone until one was accepted as new: only then is the epoch known to be ours. The
    answer that a request was there before, though it was sent once only, means that another instance uses this epoch,
    and the next one is claimed. If the first request had to be repeated, that answer may speak of ours or of another's,
    and the producer ends and says so. So no two instances ever go on in one epoch.
5.  Any other refusal ends the producer: what comes after a message that was refused must not be written without it.

Time is given by the caller, in seconds from any beginning.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from headwater.client import bodies
from headwater.client.batches import Batch, ProducerOptions, Standing
from headwater.client.bodies import EncodedMessages
from headwater.client.errors import (
    ClientError,
    Conflict,
    OutcomeUnknown,
    ProducerEnded,
    ProducerFenced,
    SequenceConflict,
    TransportFailed,
    number,
    refusal,
    seconds,
)
from headwater.client.gathering import shares
from headwater.client.retrying import RETRIED_STATUSES, Failures, RetryPolicy
from headwater.client.values import Appended
from headwater.client.wire import (
    INCARNATION,
    NEXT_OFFSET,
    RECORD_NEXT,
    RECORD_START,
    RETRY_AFTER,
    STREAM_CLOSED,
    Request,
    Response,
)

W = TypeVar("W")
IGNORED = "The stream was not closed: this number of this epoch was used before; write with a higher epoch."
Resolved = list[tuple[W, Appended | ClientError]]
"""Who is to be told what."""


@dataclass(slots=True)
class Producing(Generic[W]):
    """The state of a producer; `take` gives what is to be sent, `settle` is told what became of it."""

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

    # -- What goes in --------------------------------------------------------------------------------------------------

    def add(self, piece: EncodedMessages, waiter: W, now: float) -> bool:
        """Take it in; whether that is a reason to look whether something is to be sent."""
        self._check()
        first = not self._pending
        if first:
            self._oldest_at = now
        self._pending.append((piece, waiter))
        self._pending_bytes += len(piece.data) + 1
        return first or self._flushing or self._pending_bytes >= self.options.batch_bytes_max

    def close_stream(self, piece: EncodedMessages | None, waiter: W) -> None:
        """Close the stream behind everything that was added, with a last message or without."""
        self._check()
        self._closing = (piece, waiter)
        self._ended = self._flushing = True

    def flush(self) -> None:
        """Send what is there without lingering."""
        self._flushing = bool(self._pending) or self._closing is not None

    def end(self) -> None:
        """Take nothing more; what is there is still sent."""
        self._ended = True
        self.flush()

    def abandon(self) -> Resolved[W]:
        """End at once; of what is under way nobody will hear."""
        self._fail(ProducerEnded(f"The producer {self.options.id!r} was stopped before everything was written."))
        for batch in self._window:
            batch.in_doubt = batch.in_doubt or batch.standing is Standing.FLYING
            batch.standing = Standing.READY
        return self._drop()

    def _check(self) -> None:
        if self.failure is not None:
            raise self.failure
        if self._ended:
            raise ProducerEnded(f"The producer {self.options.id!r} was closed; make another one.")

    @property
    def room(self) -> bool:
        return self._pending_bytes < self.options.pending_bytes_max

    @property
    def idle(self) -> bool:
        return not self._pending and not self._window and self._closing is None

    # -- What goes out -------------------------------------------------------------------------------------------------

    def take(self, now: float) -> Batch[W] | None:
        """The batch that is to be sent now, if there is one."""
        if self.failure is not None or self._claim is not None:
            return None
        first = self._first_grounded()
        if first is not None:
            at, batch = first
            held = batch.not_before > now or (batch.standing is Standing.BEHIND and at > 0)
            return None if held or self._full() else self._fly(batch)
        if len(self._window) < self._width() and self._due(now):
            return self._fly(self._cut())
        if not self._window and not self._pending and self._closing is not None:
            return self._fly(self._cut_closing(*self._closing))
        return None

    def wake_at(self, now: float) -> float | None:
        """When `take` is worth another look, if nothing happens before."""
        if self.failure is not None or self._claim is not None or self._full():
            return None
        first = self._first_grounded()
        if first is not None:
            at, batch = first
            return None if batch.standing is Standing.BEHIND and at > 0 else batch.not_before
        if self._pending and len(self._window) < self._width():
            return now if self._flushing else self._oldest_at + self.options.linger_ms / 1000
        return None

    def _first_grounded(self) -> tuple[int, Batch[W]] | None:
        """The first batch that is not under way. What follows it has to wait: it would only be refused as a gap."""
        for at, batch in enumerate(self._window):
            if batch.standing is not Standing.FLYING:
                return at, batch
        return None

    def _full(self) -> bool:
        return sum(batch.standing is Standing.FLYING for batch in self._window) >= self._width()

    def request(self, batch: Batch[W]) -> Request:
        headers = {
            "Producer-Id": self.options.id,
            "Producer-Epoch": str(batch.epoch),
            "Producer-Seq": str(batch.seq),
        }
        if batch.pieces:
            headers["Content-Type"] = self.content_type
        if batch.closing:
            headers["Stream-Closed"] = "true"
        if self.incarnation is not None:
            headers[INCARNATION] = self.incarnation
        body = bodies.join(batch.pieces, self.content_type) if batch.pieces else b""
        return Request("POST", self.url, headers, body=body)

    def _width(self) -> int:
        return self.options.in_flight_max if self._proven or not self.options.auto_claim else 1

    def _due(self, now: float) -> bool:
        if not self._pending:
            return False
        full = self._pending_bytes >= self.options.batch_bytes_max
        return self._flushing or full or now >= self._oldest_at + self.options.linger_ms / 1000

    def _fly(self, batch: Batch[W]) -> Batch[W]:
        batch.standing = Standing.FLYING
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

    # -- What came back ------------------------------------------------------------------------------------------------

    def settle(self, batch: Batch[W], outcome: Response | TransportFailed, now: float) -> Resolved[W]:
        """Take note of what became of a batch that was sent; the answer is who is to be told what."""
        batch.standing = Standing.READY
        resolved = self._judge(batch, outcome, now)
        flying = any(other.standing is Standing.FLYING for other in self._window)
        if self.failure is not None:
            resolved += self._drop()
        elif self._claim is not None and not flying:
            resolved += self._take_over(self._claim)
        return resolved

    def _judge(self, batch: Batch[W], outcome: Response | TransportFailed, now: float) -> Resolved[W]:
        if isinstance(outcome, TransportFailed):
            batch.in_doubt = batch.in_doubt or outcome.sent
            return self._again(batch, outcome, None, now)
        if outcome.ok:
            return self._accept(batch, outcome)
        request = self.request(batch)
        error = refusal(request, outcome)
        if outcome.status in RETRIED_STATUSES:
            # A 503 without a code may come from something in between, after the server has acted.
            untouched = outcome.status == 429 or (outcome.status == 503 and error.code is not None)
            batch.in_doubt = batch.in_doubt or not untouched
            return self._again(batch, error, seconds(outcome.headers.get(RETRY_AFTER)), now)
        if isinstance(error, ProducerFenced) and self.options.auto_claim and self._claims < self.policy.attempts_max:
            known = self.epoch if error.current_epoch is None else error.current_epoch
            self._claim = max(self._claim or 0, known + 1)
            return []
        if isinstance(error, SequenceConflict) and error.expected_seq is not None and not batch.sent_as_first:
            batch.standing = Standing.BEHIND
            return []
        return self._fail(error)

    def _accept(self, batch: Batch[W], response: Response) -> Resolved[W]:
        # A close that happened says so; without that it was taken for something that was there before.
        ignored = batch.closing and not response.flag(STREAM_CLOSED)
        duplicate = ignored or (response.status == 204 and bool(batch.pieces))
        if ignored and not self.options.auto_claim:
            return self._fail(Conflict(self.request(batch), response.saying(409, IGNORED)))
        if duplicate and self.options.auto_claim and not (batch.in_doubt and self._proven):
            self._claim = max(self._claim or 0, self.epoch + 1)
            return []
        self._window.remove(batch)
        self._proven, self._claims = True, 0
        self.incarnation = self.incarnation or response.headers.get(INCARNATION)
        appended = Appended(
            next_offset=response.headers.get(NEXT_OFFSET, ""),
            duplicate=duplicate,
            record_start=number(response.headers.get(RECORD_START)),
            record_next=number(response.headers.get(RECORD_NEXT)),
        )
        told = shares(batch.pieces, appended) if batch.pieces else [appended]
        return list(zip(batch.waiters, told, strict=True))

    def _again(self, batch: Batch[W], error: ClientError, retry_after_seconds: float | None, now: float) -> Resolved[W]:
        delay = batch.failures.next_delay(retry_after_seconds)
        if delay is None:
            return self._fail(error)
        batch.not_before = now + delay
        return []

    def _take_over(self, epoch: int) -> Resolved[W]:
        if any(batch.in_doubt for batch in self._window):
            return self._fail(self._unknown("lost its epoch before a write was settled")) + self._drop()
        self._claim, self._proven = None, False
        self._claims += 1
        self.epoch, self.next_seq = epoch, len(self._window)
        for seq, batch in enumerate(self._window):
            batch.epoch, batch.seq, batch.standing, batch.not_before = epoch, seq, Standing.READY, 0.0
        return []

    def _fail(self, error: ClientError) -> Resolved[W]:
        self.failure = self.failure or error
        return []

    def _drop(self) -> Resolved[W]:
        """Tell everybody whose write is not under way that it has failed; the others hear when theirs is settled."""
        assert self.failure is not None
        dropped = [batch for batch in self._window if batch.standing is not Standing.FLYING]
        self._window = [batch for batch in self._window if batch.standing is Standing.FLYING]
        waiters: Iterable[W] = [waiter for _, waiter in self._pending]
        resolved: Resolved[W] = [(waiter, self._said(batch)) for batch in dropped for waiter in batch.waiters]
        resolved += [(waiter, self.failure) for waiter in waiters]
        if self._closing is not None:
            resolved.append((self._closing[1], self.failure))
        self._pending.clear()
        self._pending_bytes, self._closing = 0, None
        return resolved

    def _said(self, batch: Batch[W]) -> ClientError:
        assert self.failure is not None
        if not batch.in_doubt or isinstance(self.failure, OutcomeUnknown):
            return self.failure
        error = self._unknown("ended before a write was settled")
        error.__cause__ = self.failure
        return error

    def _unknown(self, what: str) -> OutcomeUnknown:
        return OutcomeUnknown(f"The producer {self.options.id!r} {what}; it may have happened, or not.", sent=True)
