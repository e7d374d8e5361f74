"""What tasks and threads cannot share: how programs are carried out, and how callers wait, with asyncio.

`blocking/runtime.py` has the same names without `Async`; the rest of that package is generated (`scripts/unasync`).
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import httpx2

from headwater.client.errors import TransportFailed
from headwater.client.settings import AsyncRequestValue
from headwater.client.transport import Opened
from headwater.client.wire import Emit, More, Now, Open, Pause, Program, Request, Response, Send, Shut

if TYPE_CHECKING:
    from headwater.client.asynchronous.carrier import AsyncCarrier

T = TypeVar("T")
E = TypeVar("E")

AsyncLock = asyncio.Lock


class AsyncFlow(Generic[E]):
    """The values that a program emits, as an asynchronous iterator; iterate it in an `async with` block."""

    def __init__(self, carrier: "AsyncCarrier", program: Program[Any], timeout_seconds: float | None = None) -> None:
        self._carrier = carrier
        self._program = program
        self._opened: Opened | None = None
        self._bytes: AsyncIterator[bytes] | None = None
        self._timeout_seconds = timeout_seconds
        self._deadline: float | None = None
        self._ended = False
        self._outcome: Any = None
        self._failure: TransportFailed | None = None
        self.result: Any = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> E:
        if self._ended:
            raise StopAsyncIteration
        if self._deadline is None and self._timeout_seconds is not None:
            self._deadline = clock() + self._timeout_seconds
        try:
            async with asyncio.timeout_at(self._deadline) as limit:
                return await self._next()
        except TimeoutError:
            await self.aclose()
            if limit.expired():
                raise StopAsyncIteration from None
            raise
        except BaseException:
            await self.aclose()
            raise

    async def _next(self) -> E:
        while True:
            outcome, failure, self._outcome, self._failure = self._outcome, self._failure, None, None
            try:
                effect = self._program.send(outcome) if failure is None else self._program.throw(failure)
            except StopIteration as end:
                self.result = end.value
                raise StopAsyncIteration from None
            if isinstance(effect, Emit):
                value: E = effect.value
                return value
            try:
                self._outcome = await self._perform(effect)
            except TransportFailed as error:
                await self._shut()
                self._failure = error

    async def _perform(self, effect: Any) -> Any:
        match effect:
            case Send(request):
                return await self._carrier.send(request)
            case Open(request):
                return await self._open(request)
            case More():
                return await self._more()
            case Shut():
                return await self._shut()
            case Pause(seconds):
                return await asyncio.sleep(seconds)
            case Now():
                return clock()
        raise AssertionError(f"Programs cannot ask for {effect}.")

    async def _open(self, request: Request) -> Response:
        self._opened = await self._carrier.open(request)
        self._bytes = self._opened.http.aiter_bytes()
        return self._opened.response()

    async def _more(self) -> bytes:
        assert self._opened is not None and self._bytes is not None, "nothing was opened"
        try:
            return await anext(self._bytes, b"")
        except httpx2.HTTPError as error:
            raise self._carrier.broken(self._opened, error) from error

    async def _shut(self) -> None:
        opened, self._opened, self._bytes = self._opened, None, None
        if opened is not None:
            await opened.http.aclose()

    async def aclose(self) -> None:
        """Stop, and release the connection. Idempotent."""
        self._ended = True
        self._program.close()
        await self._shut()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class AsyncCondition(asyncio.Condition):
    """A condition that can also be awaited up to a point in time."""

    async def wait_until(self, deadline: float | None) -> None:
        """Wait until notified, or until `clock()` reaches the deadline."""
        try:
            async with asyncio.timeout_at(deadline):
                await self.wait()
        except TimeoutError:
            pass


class AsyncWorkers:
    """Tasks that work in the background until they are done."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, count: int, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._tasks += [asyncio.create_task(work()) for _ in range(count)]

    async def join(self) -> None:
        """Wait for all of them; if this is cancelled, so are they."""
        await asyncio.gather(*self._tasks)


def clock() -> float:
    """Seconds since an arbitrary moment."""
    return asyncio.get_running_loop().time()


def new_future() -> "asyncio.Future[Any]":
    """A future whose error may be ignored: asyncio would otherwise log each one that was never retrieved."""
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    future.add_done_callback(lambda done: None if done.cancelled() else done.exception())
    return future


async def result_of(future: "asyncio.Future[T]") -> T:
    """Wait for a future. It outlives a cancelled caller: others may wait for it too."""
    return await asyncio.shield(future)


async def current(value: AsyncRequestValue) -> str:
    """The value of a header or parameter for this request."""
    if isinstance(value, str):
        return value
    found = value()
    return found if isinstance(found, str) else await found
