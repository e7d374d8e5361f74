"""What writes together, for the blocking client: appends that share requests, and producers."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from headwater.client import bodies, operations
from headwater.client.batches import Batch, ProducerOptions
from headwater.client.blocking.io import Carrier
from headwater.client.errors import ClientError, TransportFailed
from headwater.client.gathering import Gathering, Waiting, shares
from headwater.client.operations import Conditions, Target
from headwater.client.producing import Producing, Resolved
from headwater.client.values import Appended
from headwater.client.wire import Response
from headwater.protocol import content_types

Sharing = list[Waiting["Future[Any]"]]


class Appender:
    """Sends appends; those that come while a request is under way go together in the next one."""

    def __init__(self, carrier: Carrier, target: Target) -> None:
        self._carrier = carrier
        self._target = target
        self._lock = threading.Lock()
        self._gathering: Gathering[Future[Any]] = Gathering()

    def append(
        self, piece: bodies.Piece, content_type: str, conditions: Conditions, *, closed: bool = False
    ) -> Appended:
        mine: Future[Any] = Future()
        with self._lock:
            batch = self._gathering.add(Waiting(piece, content_type, conditions, closed, mine))
        # A waiter is given its result, or the next request to send, which begins with its own append.
        told = batch or mine.result()
        if isinstance(told, Appended):
            return told
        return self._lead(told)

    def _lead(self, batch: Sharing) -> Appended:
        told: list[Appended] = []
        failure: BaseException | None = None
        first = batch[0]
        pieces = [waiting.piece for waiting in batch]
        body = bodies.join(pieces, first.content_type)
        try:
            program = operations.append(self._target, first.content_type, body, first.conditions, closed=first.closed)
            told = shares(pieces, self._carrier.run(program))
        except BaseException as error:
            failure = error
            raise
        finally:
            with self._lock:
                following = self._gathering.next()
            if following:
                following[0].waiter.set_result(following)
            for at, waiting in enumerate(batch[1:], 1):
                if failure is None:
                    waiting.waiter.set_result(told[at])
                else:
                    waiting.waiter.set_exception(failure)
        return told[0]


class Producer:
    """Writes each thing once and in order. Use it as a context manager; threads may share it.

    `append` returns at once with a future, and waits only while too much is pending. Leaving the block, or `close`,
    waits until everything is written; it does not close the stream, which is what `close_stream` is for.
    """

    def __init__(
        self, carrier: Carrier, target: Target, options: ProducerOptions, content_type: Callable[[], str]
    ) -> None:
        self._carrier = carrier
        self._target = target
        self._options = options
        self._ask_type = content_type
        self._core: Producing[Future[Appended]] | None = None
        lock = threading.RLock()
        self._ready = threading.Condition(lock)
        self._settled = threading.Condition(lock)
        self._stopping = False
        self._workers: list[threading.Thread] = []
        self._closed_with: Future[Appended] | None = None

    @property
    def epoch(self) -> int:
        return self._options.epoch if self._core is None else self._core.epoch

    def append(self, data: bytes | str) -> "Future[Appended]":
        """Write bytes or text as they are; on a JSON stream they are JSON, and an array is several messages."""
        return self._add(bodies.raw_piece(data, self._started().content_type))

    def append_json(self, *values: Any) -> "Future[Appended]":
        """Write each value as one message."""
        return self._add(bodies.values_piece(values), content_types.JSON)

    def flush(self) -> None:
        """Wait until everything is written; what went wrong is raised."""
        core = self._started()
        with self._settled:
            core.flush()
            self._ready.notify_all()
            self._settled.wait_for(lambda: core.idle)
            if core.failure is not None:
                raise core.failure

    def close_stream(self, last: bytes | str | None = None) -> Appended:
        """Close the stream behind everything that was given; a second time gives the same answer."""
        core = self._started()
        piece = None if last is None else bodies.raw_piece(last, core.content_type)
        with self._ready:
            if self._closed_with is None:
                future: Future[Appended] = Future()
                core.close_stream(piece, future)
                self._closed_with = future
                self._ready.notify_all()
        return self._closed_with.result()

    def close(self) -> None:
        """Write everything, then end; what went wrong is raised."""
        core = self._core
        if core is None:
            return
        with self._ready:
            core.end()
            self._stopping = True
            self._ready.notify_all()
        for worker in self._workers:
            worker.join()
        if core.failure is not None:
            raise core.failure

    def __enter__(self) -> "Producer":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            self.close()
        except ClientError:
            # An error that is on its way already says more than the one that follows from it.
            if kind is None:
                raise

    def _add(self, piece: bodies.Piece, content_type: str | None = None) -> "Future[Appended]":
        core = self._started(content_type)
        if content_type is not None and not content_types.is_json(core.content_type):
            raise ValueError(f"{self._target.url} holds {core.content_type}; its messages are no JSON values.")
        future: Future[Appended] = Future()
        with self._settled:
            self._settled.wait_for(lambda: core.room or core.failure is not None)
            if core.add(piece, future, time.monotonic()):
                self._ready.notify()
        return future

    def _started(self, content_type: str | None = None) -> "Producing[Future[Appended]]":
        if self._core is not None:
            return self._core
        found = content_type or self._ask_type()
        with self._ready:
            if self._core is None:
                policy = self._carrier.settings.follow_retry
                self._core = Producing(self._target.url, found, self._options, policy, self._target.incarnation)
                for _ in range(self._options.max_in_flight):
                    worker = threading.Thread(target=self._work, args=(self._core,), daemon=True)
                    self._workers.append(worker)
                    worker.start()
        return self._core

    def _work(self, core: "Producing[Future[Appended]]") -> None:
        while (batch := self._wait_for_batch(core)) is not None:
            outcome: Response | TransportFailed
            try:
                outcome = self._carrier.send(core.request(batch))
            except TransportFailed as error:
                outcome = error
            except Exception as error:
                # A function for a header failed, say. Nothing was sent; it may work later.
                outcome = TransportFailed(f"The request could not be made: {error!r}.", sent=False)
                outcome.__cause__ = error
            with self._settled:
                resolved = core.settle(batch, outcome, time.monotonic())
                # Futures first: whoever waits for the producer to be idle finds them all told.
                _tell(resolved)
                self._ready.notify_all()
                self._settled.notify_all()

    def _wait_for_batch(self, core: "Producing[Future[Appended]]") -> "Batch[Future[Appended]] | None":
        with self._ready:
            while not (self._stopping and core.idle):
                now = time.monotonic()
                batch = core.take(now)
                if batch is not None:
                    # It leaves room for whoever waits to add something.
                    self._settled.notify_all()
                    return batch
                wake_at = core.wake_at(now)
                self._ready.wait(None if wake_at is None else max(0.0, wake_at - now))
            return None


def _tell(resolved: "Resolved[Future[Appended]]") -> None:
    for future, told in resolved:
        if isinstance(told, Appended):
            future.set_result(told)
        else:
            future.set_exception(told)
