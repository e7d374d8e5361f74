"""Writing with the asynchronous client: appends that share requests, and producers."""

from asyncio import Future
from typing import Any

from headwater.client import bodies, operations
from headwater.client.asynchronous.carrier import AsyncCarrier
from headwater.client.asynchronous.runtime import AsyncCondition, AsyncLock, AsyncWorkers, clock, new_future, result_of
from headwater.client.errors import ClientError, OutcomeUnknown, TransportFailed
from headwater.client.gathering import Gathering, Waiting, shares
from headwater.client.operations import Conditions, RequestTarget
from headwater.client.producing import Batch, ProducerOptions, Producing
from headwater.client.settings import AsyncText
from headwater.client.values import Appended
from headwater.client.wire import Response
from headwater.protocol import content_types


class AsyncAppender:
    """Sends appends; those made while a request is in flight share the next request."""

    def __init__(self, carrier: AsyncCarrier, target: RequestTarget) -> None:
        self._carrier = carrier
        self._target = target
        self._lock = AsyncLock()
        self._gathering: Gathering[Future[Any]] = Gathering()

    async def append(
        self, piece: bodies.EncodedMessages, content_type: str, conditions: Conditions, *, closed: bool = False
    ) -> Appended:
        mine: Future[Any] = new_future()
        async with self._lock:
            batch = self._gathering.add(Waiting(piece, content_type, conditions, closed, mine))
        if batch:
            return await self._lead(batch)
        try:
            # A waiter receives its result, or the next request to send, which begins with its own append.
            received = await result_of(mine)
        except BaseException:
            await self._leave(mine)
            raise
        return received if isinstance(received, Appended) else await self._lead(received)

    async def _lead(self, batch: list[Waiting[Future[Any]]]) -> Appended:
        """Send one request for all of these appends, and give each its outcome."""
        results: list[Appended] = []
        failure: BaseException | None = None
        first = batch[0]
        pieces = [waiting.piece for waiting in batch]
        body = bodies.join(pieces, first.content_type)
        try:
            program = operations.append(self._target, first.content_type, body, first.conditions, closed=first.closed)
            results = shares(pieces, await self._carrier.run(program))
        except BaseException as error:
            failure = error
            raise
        finally:
            async with self._lock:
                self._pass_on(self._gathering.next())
                for at, waiting in enumerate(batch[1:], 1):
                    _settle(waiting.waiter, results[at] if failure is None else failure)
        return results[0]

    async def _leave(self, mine: "Future[Any]") -> None:
        """Stop waiting: the append failed, or the caller was cancelled and may have to send for others."""
        async with self._lock:
            if mine.cancel() or mine.cancelled() or mine.exception() is not None:
                return
            if not isinstance(mine.result(), Appended):
                self._pass_on(mine.result()[1:] or self._gathering.next())

    def _pass_on(self, batch: list[Waiting[Future[Any]]]) -> None:
        """Let the caller of the first append send the request; appends that were cancelled are left out."""
        while batch:
            left = [waiting for waiting in batch if not waiting.waiter.cancelled()]
            if left:
                left[0].waiter.set_result(left)
                return
            batch = self._gathering.next()


class AsyncProducer:
    """Writes each message once and in order. Use it as an asynchronous context manager; tasks may share it.

    `append` returns a future at once, and waits only while too much is pending. Leaving the block, or `aclose`, waits
    until everything is written; it does not close the stream, which is what `close_stream` does.
    """

    def __init__(
        self, carrier: AsyncCarrier, target: RequestTarget, options: ProducerOptions, content_type: AsyncText
    ) -> None:
        self._carrier = carrier
        self._target = target
        self._options = options
        self._content_type = content_type
        self._core: Producing[Future[Any]] | None = None
        lock = AsyncLock()
        # Two conditions of one lock: workers wait for a batch to send, callers for room or for the last answer.
        self._ready = AsyncCondition(lock)
        self._settled = AsyncCondition(lock)
        self._workers = AsyncWorkers()
        self._stopping = False
        self._closed_with: Future[Any] | None = None

    @property
    def epoch(self) -> int:
        return self._options.epoch if self._core is None else self._core.epoch

    async def append(self, data: bytes | str) -> "Future[Appended]":
        """Write bytes or text unchanged; a JSON stream takes JSON, and each element of an array is one message."""
        core = await self._started()
        return await self._add(bodies.encode_raw(data, core.content_type))

    async def append_json(self, *values: Any) -> "Future[Appended]":
        """Write each value as one message."""
        return await self._add(bodies.encode_values(values), content_types.JSON)

    async def flush(self) -> None:
        """Wait until everything is written; raise what went wrong."""
        core = await self._started()
        async with self._settled:
            core.flush()
            self._ready.notify_all()
            await self._settled.wait_for(lambda: core.idle)
        if core.failure is not None:
            raise core.failure

    async def close_stream(self, last: bytes | str | None = None) -> Appended:
        """Close the stream after everything written before; calling it again returns the same answer."""
        core = await self._started()
        piece = None if last is None else bodies.encode_raw(last, core.content_type)
        async with self._ready:
            if self._closed_with is None:
                future = new_future()
                core.close_stream(piece, future)
                self._closed_with = future
                self._ready.notify_all()
        appended: Appended = await result_of(self._closed_with)
        return appended

    async def aclose(self) -> None:
        """Write everything, then end; raise what went wrong."""
        core = self._core
        if core is None:
            return
        async with self._ready:
            core.end()
            self._stopping = True
            self._ready.notify_all()
        await self._workers.join()
        if core.failure is not None:
            raise core.failure

    async def __aenter__(self) -> "AsyncProducer":
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        try:
            await self.aclose()
        except ClientError:
            # An error that is already on its way says more than the one that follows from it.
            if kind is None:
                raise

    async def _add(self, piece: bodies.EncodedMessages, content_type: str | None = None) -> "Future[Appended]":
        core = await self._started(content_type)
        if content_type is not None and not content_types.is_json(core.content_type):
            raise ValueError(f"{self._target.url} holds {core.content_type}; its messages are not JSON values.")
        future = new_future()
        async with self._settled:
            await self._settled.wait_for(lambda: core.room or core.failure is not None)
            if core.add(piece, future, clock()):
                self._ready.notify()
        return future

    async def _started(self, content_type: str | None = None) -> "Producing[Future[Any]]":
        if self._core is not None:
            return self._core
        found = content_type or await self._content_type()
        async with self._ready:
            if self._core is None:
                policy = self._carrier.settings.follow_retry
                self._core = Producing(self._target.url, found, self._options, policy, self._target.incarnation)
                self._workers.start(self._options.in_flight_max, self._work)
        return self._core

    async def _work(self) -> None:
        core = self._core
        assert core is not None, "workers start after the core"
        try:
            while (batch := await self._next_batch(core)) is not None:
                outcome = await self._send(core, batch)
                async with self._settled:
                    # Futures first: when `flush` returns, all of them are done.
                    _settle_all(core.settle(batch, outcome, clock()))
                    self._ready.notify_all()
                    self._settled.notify_all()
        except BaseException:
            async with self._settled:
                if not core.idle:
                    _settle_all(core.abandon())
                self._settled.notify_all()
            raise

    async def _next_batch(self, core: "Producing[Future[Any]]") -> "Batch[Future[Any]] | None":
        async with self._ready:
            while not (self._stopping and core.idle):
                batch = core.take(clock())
                if batch is not None:
                    # That makes room for callers of `append`.
                    self._settled.notify_all()
                    return batch
                await self._ready.wait_until(core.wake_at(clock()))
        return None

    async def _send(self, core: "Producing[Future[Any]]", batch: "Batch[Future[Any]]") -> Response | TransportFailed:
        try:
            return await self._carrier.send(core.request(batch))
        except TransportFailed as error:
            return error
        except Exception as error:
            # For example, a function for a header failed. Nothing was sent, and it may work later.
            failure = TransportFailed(f"The request could not be made: {error!r}.", sent=False)
            failure.__cause__ = error
            return failure


def _settle_all(outcomes: "list[tuple[Future[Any], Appended | ClientError]]") -> None:
    for future, outcome in outcomes:
        _settle(future, outcome)


def _settle(future: "Future[Any]", outcome: Appended | BaseException) -> None:
    if future.done():
        return
    if isinstance(outcome, Appended):
        future.set_result(outcome)
    elif isinstance(outcome, Exception):
        future.set_exception(outcome)
    else:
        # The caller that sent the request was cancelled or interrupted; that is not an error of the others.
        future.set_exception(
            OutcomeUnknown("The append shared a request that was cancelled; it may have been written.", sent=True)
        )
