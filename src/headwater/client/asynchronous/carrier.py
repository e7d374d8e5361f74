"""Requests as the asynchronous client sends them."""

from typing import Any, TypeVar

import httpx2

from headwater.client.asynchronous.runtime import AsyncFlow, current
from headwater.client.settings import CONNECTIONS_MAX, KEPT_CONNECTIONS_MAX, ClientSettings, bearer
from headwater.client.transport import UNAUTHORIZED, failed, is_renewable, not_followed, plain_headers
from headwater.client.wire import Program, Request, Response
from headwater.protocol.headers import AUTHORIZATION

T = TypeVar("T")


class AsyncCarrier:
    """Sends requests over one `httpx2.AsyncClient`, which tasks may share."""

    def __init__(self, settings: ClientSettings, http: httpx2.AsyncClient | None) -> None:
        self.settings = settings
        self._owned = http is None
        limits = httpx2.Limits(max_connections=CONNECTIONS_MAX, max_keepalive_connections=KEPT_CONNECTIONS_MAX)
        self._http = http or httpx2.AsyncClient(limits=limits)

    async def aclose(self) -> None:
        if self._owned:
            await self._http.aclose()

    async def send(self, request: Request, timeout_seconds: float | None = None) -> Response:
        """Send a request, and read the whole response."""
        response = await self.open(request, timeout_seconds)
        try:
            body = await response.aread()
        except httpx2.HTTPError as error:
            raise failed(request, error) from error
        finally:
            await response.aclose()
        return Response(response.status_code, plain_headers(response.headers), body)

    async def open(self, request: Request, timeout_seconds: float | None = None) -> httpx2.Response:
        """Send a request, and wait for the head of the response.

        If the token is refused, its function is called again. The refused request did nothing, so a new token repeats
        it once.
        """
        sent = await self._authorization(request)
        response = await self._open(request, sent, timeout_seconds)
        if response.status_code != UNAUTHORIZED or sent is None or isinstance(self.settings.token, str):
            return response
        try:
            body = await response.aread()
        except httpx2.HTTPError as error:
            raise failed(request, error) from error
        if not is_renewable(body):
            return response
        renewed = await self._authorization(request)
        if renewed == sent:
            return response
        return await self._open(request, renewed, timeout_seconds)

    async def _authorization(self, request: Request) -> str | None:
        token = self.settings.token
        return None if token is None or not self.settings.is_ours(request.url) else bearer(await current(token))

    async def _open(
        self, request: Request, authorization: str | None, timeout_seconds: float | None
    ) -> httpx2.Response:
        longest = self.settings.wait_timeout_seconds if request.waits else self.settings.timeout_seconds
        read_seconds = longest if timeout_seconds is None else min(longest, timeout_seconds)
        headers = {name: await current(value) for name, value in self.settings.headers.items()}
        if authorization is not None:
            headers[AUTHORIZATION.name] = authorization
        params = {name: await current(value) for name, value in self.settings.params.items()}
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
            raise ValueError(f"{request.url} is not a valid URL: {error}.") from error
        except httpx2.HTTPError as error:
            raise failed(request, error) from error

    async def run(self, program: Program[T]) -> T:
        """Carry out a program that emits nothing, and return its result."""
        flow: AsyncFlow[Any] = AsyncFlow(self, program)
        async with flow:
            async for _ in flow:
                raise AssertionError("A program that was run emitted a value.")
        result: T = flow.result
        return result
