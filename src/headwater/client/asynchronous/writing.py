"""What writes together, for the asynchronous client: appends that share requests, and producers."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from headwater.client import bodies, operations
from headwater.client.asynchronous.io import AsyncCarrier
from headwater.client.batches import Batch, ProducerOptions
from headwater.client.errors import ClientError, TransportFailed
from headwater.client.gathering import Gathering, Waiting, shares
from headwater.client.operations import Conditions, Target
from headwater.client.producing import Producing, Resolved
from headwater.client.values import Appended
from headwater.client.wire import Response
from headwater.protocol import content_types

Told = asyncio.Future[Any]


class AsyncAppender:
    """Sends appends; those that come while a request is under way go together in the next one."""

    def __init__(self, carrier: AsyncCarrier, target: Target) -> None:
        self._carrier = carrier
        self._target = target
        self._gathering: Gathering[Told] = Gathering()

    async def append(
        self, piece: bodies.Piece, content_type: str, conditions: Conditions, *, closed: bool = False
    ) -> Appended:
        mine: Told = asyncio.get_running_loop().create_future()
        batch = self._gathering.add(Waiting(piece, content_type, conditions, closed, mine))
        if batch:
            return await self._lead(batch)
        try:
            # A waiter is given its result, or the next request to send, which begins with its own append.
            told = await mine
        except asyncio.CancelledError:
            if mine.done() and not mine.cancelled() and isinstance(mine.result(), list):
                self._pass_on(mine.result()[1:])
            raise
        return told if isinstance(told, Appended) else await self._lead(told)

    async def _lead(self, batch: list[Waiting[Told]]) -> Appended:
        told: list[Appended] = []
        failure: BaseException | None = None
        first = batch[0]
        pieces = [waiting.piece for waiting in batch]
        body = bodies.join(pieces, first.content_type)
        try:
            program = operations.append(self._target, first.content_type, body, first.conditions, closed=first.closed)
            told = shares(pieces, await self._carrier.run(program))
        except BaseException as error:
            failure = error
            raise
        finally:
            self._pass_on(self._gathering.next())
            for at, waiting in enumerate(batch[1:], 1):
                _tell(waiting.waiter, told[at] if failure is None else failure)
        return told[0]

    def _pass_on(self, batch: list[Waiting[Told]]) -> None:
        """Let the first whose append it is send a request; whoever was cancelled takes no part in it."""
        while batch:
            left = [waiting for waiting in batch if not waiting.waiter.cancelled()]
            if left:
                left[0].waiter.set_result(left)
                return
            batch = self._gathering.next()


class AsyncProducer:
    """Writes each thing once and in order. Use it as an asynchronous context manager; tasks may share it.

    `append` returns at once with a future, and waits only while too much is pending. Leaving the block, or `aclose`,
    waits until everything is written; it does not close the stream, which is what `close_stream` is for.
    """

    def __init__(
        self,
        carrier: AsyncCarrier,
        target: Target,
        options: ProducerOptions,
        content_type: Callable[[], Awaitable[str]],
    ) -> None:
        self._carrier = carrier
        self._target = target
        self._options = options
        self._ask_type = content_type
        self._core: Producing[Told] | None = None
        self._changed = asyncio.Event()
        self._settled = asyncio.Condition()
        self._stopping = False
        self._runner: asyncio.Task[None] | None = None
        self._closed_with: Told | None = None

    @property
    def epoch(self) -> int:
        return self._options.epoch if self._core is None else self._core.epoch

    async def append(self, data: bytes | str) -> "asyncio.Future[Appended]":
        """Write bytes or text as they are; on a JSON stream they are JSON, and an array is several messages."""
        return await self._add(bodies.raw_piece(data, (await self._started()).content_type))

    async def append_json(self, *values: Any) -> "asyncio.Future[Appended]":
        """Write each value as one message."""
        return await self._add(bodies.values_piece(values), content_types.JSON)

    async def flush(self) -> None:
        """Wait until everything is written; what went wrong is raised."""
        core = await self._started()
        core.flush()
        self._changed.set()
        async with self._settled:
            await self._settled.wait_for(lambda: core.idle)
        if core.failure is not None:
            raise core.failure

    async def close_stream(self, last: bytes | str | None = None) -> Appended:
        """Close the stream behind everything that was given; a second time gives the same answer."""
        core = await self._started()
        piece = None if last is None else bodies.raw_piece(last, core.content_type)
        if self._closed_with is None:
            future = _future()
            core.close_stream(piece, future)
            self._closed_with = future
            self._changed.set()
        appended: Appended = await asyncio.shield(self._closed_with)
        return appended

    async def aclose(self) -> None:
        """Write everything, then end; what went wrong is raised."""
        if self._core is None or self._runner is None:
            return
        self._core.end()
        self._stopping = True
        self._changed.set()
        await self._runner
        if self._core.failure is not None:
            raise self._core.failure

    async def __aenter__(self) -> "AsyncProducer":
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        try:
            await self.aclose()
        except ClientError:
            # An error that is on its way already says more than the one that follows from it.
            if kind is None:
                raise

    async def _add(self, piece: bodies.Piece, content_type: str | None = None) -> Told:
        core = await self._started(content_type)
        if content_type is not None and not content_types.is_json(core.content_type):
            raise ValueError(f"{self._target.url} holds {core.content_type}; its messages are no JSON values.")
        if not core.room:
            async with self._settled:
                await self._settled.wait_for(lambda: core.room or core.failure is not None)
        future = _future()
        if core.add(piece, future, asyncio.get_running_loop().time()):
            self._changed.set()
        return future

    async def _started(self, content_type: str | None = None) -> Producing[Told]:
        if self._core is None:
            found = content_type or await self._ask_type()
            if self._core is None:
                policy = self._carrier.settings.follow_retry
                self._core = Producing(self._target.url, found, self._options, policy, self._target.incarnation)
                self._runner = asyncio.create_task(self._run(self._core))
        return self._core

    async def _run(self, core: Producing[Told]) -> None:
        try:
            await self._send_all(core)
        finally:
            if not core.idle:
                for future, told in core.abandon():
                    _tell(future, told)

    async def _send_all(self, core: Producing[Told]) -> None:
        now = asyncio.get_running_loop().time
        async with asyncio.TaskGroup() as flights:
            while not (self._stopping and core.idle):
                self._changed.clear()
                while (batch := core.take(now())) is not None:
                    flights.create_task(self._fly(core, batch))
                    await self._wake()
                try:
                    async with asyncio.timeout_at(core.wake_at(now())):
                        await self._changed.wait()
                except TimeoutError:
                    pass

    async def _fly(self, core: Producing[Told], batch: Batch[Told]) -> None:
        outcome: Response | TransportFailed
        try:
            outcome = await self._carrier.send(core.request(batch))
        except TransportFailed as error:
            outcome = error
        except Exception as error:
            # A function for a header failed, say. Nothing was sent; it may work later.
            outcome = TransportFailed(f"The request could not be made: {error!r}.", sent=False)
            outcome.__cause__ = error
        resolved: Resolved[Told] = core.settle(batch, outcome, asyncio.get_running_loop().time())
        for future, told in resolved:
            _tell(future, told)
        self._changed.set()
        await self._wake()

    async def _wake(self) -> None:
        """Let those who wait for room, or for everything to be written, look again."""
        async with self._settled:
            self._settled.notify_all()


def _future() -> Told:
    """A future that may be forgotten: that nobody looked at its error is no mistake."""
    future: Told = asyncio.get_running_loop().create_future()
    future.add_done_callback(lambda done: None if done.cancelled() else done.exception())
    return future


def _tell(future: Told, told: Appended | BaseException) -> None:
    if future.done():
        return
    if isinstance(told, asyncio.CancelledError):
        future.set_exception(
            ClientError("The append shared a request that was cancelled; it may have happened, or not.")
        )
    elif isinstance(told, BaseException):
        future.set_exception(told)
    else:
        future.set_result(told)
