"""Requests as the asynchronous client sends them, and what it reads as it arrives: followers and bootstraps."""

import codecs
from collections.abc import AsyncIterator, Mapping
from typing import Any, TypeVar

import httpx2

from headwater.client.asynchronous.runtime import AsyncFlow, clock, current
from headwater.client.errors import ProtocolViolation, RequestRefused, TransportFailed
from headwater.client.extensions import BootstrapHead
from headwater.client.nodes import Aim, Nodes
from headwater.client.reading import Reader
from headwater.client.settings import CONNECTIONS_MAX, KEPT_CONNECTIONS_MAX, ClientSettings, bearer
from headwater.client.tailing import ManyReader
from headwater.client.transport import OWN, UNAUTHORIZED, Opened, broken, failed, is_renewable, not_followed
from headwater.client.values import Chunk, Snapshot
from headwater.client.wire import Program, Request, Response, Route
from headwater.protocol.headers import AUTHORIZATION

T = TypeVar("T")


class AsyncCarrier:
    """Sends requests to the client's URLs over one `httpx2.AsyncClient`, which tasks may share."""

    def __init__(self, settings: ClientSettings, http: httpx2.AsyncClient | None) -> None:
        self.settings = settings
        self._nodes = Nodes(settings.root_urls)
        self._owned = http is None
        limits = httpx2.Limits(max_connections=CONNECTIONS_MAX, max_keepalive_connections=KEPT_CONNECTIONS_MAX)
        self._http = http or httpx2.AsyncClient(limits=limits)

    async def aclose(self) -> None:
        if self._owned:
            await self._http.aclose()

    async def send(self, request: Request, timeout_seconds: float | None = None) -> Response:
        """Send a request, and read the whole response."""
        opened = await self.open(request, timeout_seconds)
        try:
            body = await opened.http.aread()
        except httpx2.HTTPError as error:
            raise self._failed(request, opened.aim, error, timeout_seconds) from error
        finally:
            await opened.http.aclose()
        return opened.response(body)

    async def open(self, request: Request, timeout_seconds: float | None = None) -> Opened:
        """Send a request, and wait for the head of the response.

        If the token is refused, its function is called again. The refused request did nothing, so a new token repeats
        it once.
        """
        aim = self._nodes.aim(request.url, clock())
        sent = await self._authorization(aim)
        response = await self._open(request, aim, sent, timeout_seconds)
        if response.status_code == UNAUTHORIZED and sent is not None and not isinstance(self.settings.token, str):
            try:
                body = await response.aread()
            except httpx2.HTTPError as error:
                raise self._failed(request, aim, error, timeout_seconds) from error
            renewed = await self._authorization(aim) if is_renewable(body) else sent
            if renewed != sent:
                response = await self._open(request, aim, renewed, timeout_seconds)
        return Opened(response, aim, self._nodes.answered(aim, response.status_code, clock()))

    def broken(self, opened: Opened, error: httpx2.HTTPError) -> TransportFailed:
        """The error for a response that broke off; the next request goes to another node, if there is one."""
        return broken(error, self._nodes.failed(opened.aim, clock()))

    def _failed(
        self, request: Request, aim: Aim, error: httpx2.HTTPError, timeout_seconds: float | None
    ) -> TransportFailed:
        # A node is not to blame for a caller that has no more time.
        hurried = timeout_seconds is not None and timeout_seconds < self._longest_seconds(request)
        excused = isinstance(error, OWN) or (hurried and isinstance(error, httpx2.TimeoutException))
        return failed(request, error, Route(aim.url) if excused else self._nodes.failed(aim, clock()))

    def _longest_seconds(self, request: Request) -> float:
        return self.settings.wait_timeout_seconds if request.waits else self.settings.timeout_seconds

    async def _authorization(self, aim: Aim) -> str | None:
        token = self.settings.token
        return None if token is None or not self.settings.is_ours(aim.url) else bearer(await current(token))

    async def _open(
        self, request: Request, aim: Aim, authorization: str | None, timeout_seconds: float | None
    ) -> httpx2.Response:
        longest = self._longest_seconds(request)
        read_seconds = longest if timeout_seconds is None else min(longest, timeout_seconds)
        headers = {name: await current(value) for name, value in self.settings.headers.items()}
        if authorization is not None:
            headers[AUTHORIZATION.name] = authorization
        params = {name: await current(value) for name, value in self.settings.params.items()}
        try:
            built = self._http.build_request(
                request.method,
                aim.url,
                headers=headers | dict(request.headers),
                params=params | dict(request.params) or None,
                content=request.body,
                timeout=httpx2.Timeout(self.settings.timeout_seconds, read=read_seconds),
            )
            return await self._http.send(built, stream=True, follow_redirects=not not_followed(request))
        except httpx2.InvalidURL as error:
            raise ValueError(f"{aim.url} is not a valid URL: {error}.") from error
        except httpx2.HTTPError as error:
            raise self._failed(request, aim, error, timeout_seconds) from error

    async def run(self, program: Program[T]) -> T:
        """Carry out a program that emits nothing, and return its result."""
        flow: AsyncFlow[Any] = AsyncFlow(self, program)
        async with flow:
            async for _ in flow:
                raise AssertionError("A program that was run emitted a value.")
        result: T = flow.result
        return result


# -- Followers and bootstraps ------------------------------------------------------------------------------------------


class AsyncFollower(AsyncFlow[Chunk]):
    """The chunks of a stream as they arrive. Iterate it in an `async with` block.

    `offset` is the position after the last chunk returned; another follower can resume there.
    """

    def __init__(self, carrier: AsyncCarrier, reader: Reader, timeout_seconds: float | None = None) -> None:
        super().__init__(carrier, reader.run(), timeout_seconds)
        self._reader = reader

    @property
    def offset(self) -> str:
        return self._reader.offset

    @property
    def content_type(self) -> str:
        """The stream's content type, once a chunk has arrived."""
        return self._reader.content_type

    @property
    def up_to_date(self) -> bool:
        return self._reader.reported_up_to_date

    @property
    def closed(self) -> bool:
        """Whether the stream is closed and all of it has been returned."""
        return self._reader.closed

    async def messages(self) -> AsyncIterator[Any]:
        """The messages of a JSON stream, one by one."""
        async for chunk in self:
            for message in chunk.json():
                yield message

    async def text(self) -> AsyncIterator[str]:
        """The text of a stream as it arrives; characters are never split."""
        decoder = codecs.getincrementaldecoder("utf-8")()
        async for chunk in self:
            if piece := decoder.decode(chunk.data):
                yield piece


class AsyncManyFollower(AsyncFlow[tuple[str, Chunk]]):
    """The chunks of many streams as they arrive, each with the name of its stream; in order for each of them.

    Iterate it in an `async with` block.
    """

    def __init__(self, carrier: AsyncCarrier, reader: ManyReader, timeout_seconds: float | None = None) -> None:
        super().__init__(carrier, reader.run(), timeout_seconds)
        self._reader = reader

    @property
    def offsets(self) -> Mapping[str, str]:
        """The position after the last chunk returned, by name; another follower can resume there."""
        return self._reader.offsets

    @property
    def refused(self) -> Mapping[str, RequestRefused]:
        """Why streams are not followed any more, by name."""
        return self._reader.refused


class AsyncBootstrap(AsyncFlow[bytes]):
    """In an `async with` block: a snapshot, and an iterator over the messages after it.

    `next_offset` is where the stream continues.
    """

    def __init__(self, carrier: AsyncCarrier, program: Program[None]) -> None:
        super().__init__(carrier, program)
        self._head: BootstrapHead | None = None

    async def __aenter__(self) -> "AsyncBootstrap":
        head: Any = await anext(self, None)
        if not isinstance(head, BootstrapHead):
            raise ProtocolViolation("The bootstrap has no first part.")
        self._head = head
        return self

    @property
    def snapshot(self) -> Snapshot | None:
        return self._opened_head().snapshot

    @property
    def next_offset(self) -> str:
        return self._opened_head().next_offset

    @property
    def up_to_date(self) -> bool:
        return self._opened_head().up_to_date

    @property
    def closed(self) -> bool:
        return self._opened_head().closed

    def _opened_head(self) -> BootstrapHead:
        if self._head is None:
            raise RuntimeError("A bootstrap is read in an `async with` block.")
        return self._head
