"""Programs carried out with asyncio."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Generic, TypeVar

import httpx2

from headwater.client.errors import TransportFailed
from headwater.client.settings import CONNECTIONS_MAX, KEPT_CONNECTIONS_MAX, AsyncValue, ClientSettings
from headwater.client.transport import failed, not_followed, plain_headers
from headwater.client.wire import Emit, More, Now, Open, Pause, Program, Request, Response, Send, Shut

T = TypeVar("T")
E = TypeVar("E")


class AsyncCarrier:
    """Sends requests by one `httpx2.AsyncClient`."""

    def __init__(self, settings: ClientSettings, http: httpx2.AsyncClient | None) -> None:
        self.settings = settings
        self._owned = http is None
        limits = httpx2.Limits(max_connections=CONNECTIONS_MAX, max_keepalive_connections=KEPT_CONNECTIONS_MAX)
        self._http = http or httpx2.AsyncClient(limits=limits)

    async def close(self) -> None:
        if self._owned:
            await self._http.aclose()

    async def send(self, request: Request) -> Response:
        """Send, and read the whole answer."""
        response = await self.open(request)
        try:
            body = await response.aread()
        except httpx2.HTTPError as error:
            raise failed(request, error) from error
        finally:
            await response.aclose()
        return Response(response.status_code, plain_headers(response.headers), body)

    async def open(self, request: Request) -> httpx2.Response:
        """Send, and wait for the head of the answer."""
        read_seconds = self.settings.wait_timeout_seconds if request.waits else self.settings.timeout_seconds
        headers = {name: await _value(value) for name, value in self.settings.headers.items()}
        params = {name: await _value(value) for name, value in self.settings.params.items()}
        try:
            built = self._http.build_request(
                request.method,
                request.url,
                headers=headers | dict(request.headers),
                params=params | dict(request.params) or None,
                content=request.body,
                timeout=httpx2.Timeout(self.settings.timeout_seconds, read=read_seconds),
            )
            return await self._http.send(built, stream=True, follow_redirects=not not_followed(request))
        except httpx2.InvalidURL as error:
            raise ValueError(f"{request.url} is no URL: {error}.") from error
        except httpx2.HTTPError as error:
            raise failed(request, error) from error

    async def run(self, program: Program[T]) -> T:
        """Carry a program out that emits nothing, and return what it returns."""
        flow: AsyncFlow[Any] = AsyncFlow(self, program)
        async with flow:
            async for _ in flow:
                raise AssertionError("A program that was run emitted something.")
        result: T = flow.result
        return result


class AsyncFlow(Generic[E]):
    """What a program emits, as an asynchronous iterator; iterate it in an `async with` block."""

    def __init__(self, carrier: AsyncCarrier, program: Program[Any], timeout_seconds: float | None = None) -> None:
        self._carrier = carrier
        self._program = program
        self._opened: httpx2.Response | None = None
        self._bytes: AsyncIterator[bytes] | None = None
        self._timeout_seconds = timeout_seconds
        self._deadline: float | None = None
        self._ended = False
        self._outcome: Any = None
        self._failure: TransportFailed | None = None
        self.result: Any = None

    def __aiter__(self) -> "AsyncFlow[E]":
        return self

    async def __anext__(self) -> E:
        if self._ended:
            raise StopAsyncIteration
        if self._deadline is None and self._timeout_seconds is not None:
            self._deadline = asyncio.get_running_loop().time() + self._timeout_seconds
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
                return asyncio.get_running_loop().time()
        raise AssertionError(f"No program may ask for {effect}.")

    async def _open(self, request: Request) -> Response:
        self._opened = await self._carrier.open(request)
        self._bytes = self._opened.aiter_bytes()
        return Response(self._opened.status_code, plain_headers(self._opened.headers))

    async def _more(self) -> bytes:
        assert self._bytes is not None, "nothing was opened"
        try:
            return await anext(self._bytes, b"")
        except httpx2.HTTPError as error:
            raise TransportFailed(f"The connection broke while it was read: {error!r}.", sent=True) from error

    async def _shut(self) -> None:
        opened, self._opened, self._bytes = self._opened, None, None
        if opened is not None:
            await opened.aclose()

    async def aclose(self) -> None:
        self._ended = True
        self._program.close()
        await self._shut()

    async def __aenter__(self) -> "AsyncFlow[E]":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


async def _value(value: AsyncValue) -> str:
    if isinstance(value, str):
        return value
    found = value()
    return found if isinstance(found, str) else await found
