"""The asynchronous client: the way to streams and buckets."""

from collections.abc import Mapping

import httpx2

from headwater.client import extensions, operations, tailing
from headwater.client.asynchronous.carrier import AsyncCarrier, AsyncManyFollower
from headwater.client.asynchronous.runtime import AsyncFlow
from headwater.client.asynchronous.stream import AsyncStream
from headwater.client.operations import RequestTarget
from headwater.client.retrying import RetryPolicy
from headwater.client.settings import FOLLOW_RETRY, AsyncRequestValue, ClientSettings, segment
from headwater.client.urls import ServerUrls
from headwater.client.values import BucketInfo, ListedStream, OnRefused


class AsyncClient:
    """The streams of a server. Use it as an asynchronous context manager, or close it; tasks may share it.

    `base_url` is the server's root, such as `http://127.0.0.1:4437`: its streams are below `/v1/stream`, its buckets
    below the root. A URL with a path is that of the streams, on any server of the protocol. Several URLs are the nodes
    of one cluster, any of which answers any request: if one fails, the next one is used.
    `headers` and `params` are sent with every request. A value may also be a function that returns it, which is
    called for each request. So may `token`, which is sent as a bearer token, and only to the servers of `base_url`: if
    the server refuses it and the function returns another one, the request is repeated.
    """

    def __init__(
        self,
        base_url: ServerUrls,
        *,
        headers: Mapping[str, AsyncRequestValue] | None = None,
        params: Mapping[str, AsyncRequestValue] | None = None,
        retry: RetryPolicy | None = None,
        follow_retry: RetryPolicy | None = None,
        timeout_seconds: float = 30.0,
        wait_timeout_seconds: float = 75.0,
        token: AsyncRequestValue | None = None,
        http: httpx2.AsyncClient | None = None,
    ) -> None:
        self._settings = ClientSettings(
            base_url,
            headers or {},
            params or {},
            retry or RetryPolicy(),
            follow_retry or FOLLOW_RETRY,
            timeout_seconds,
            wait_timeout_seconds,
            token,
        )
        self._carrier = AsyncCarrier(self._settings, http)

    def stream(self, path: str, *, content_type: str | None = None, incarnation: str | None = None) -> AsyncStream:
        """The stream of this name, or at a complete URL; this sends nothing.

        If no content type is given, the client asks the server for it when it is first needed. An incarnation ties the
        handle to one life of the stream.
        """
        return AsyncStream(self._carrier, self._settings.stream_url(path), content_type, incarnation)

    def bucket(self, name: str) -> "AsyncBucket":
        """A bucket, for servers that have them; its streams have snapshots, batches and attributes."""
        return AsyncBucket(self._carrier, self._settings.bucket_url(name))

    def follow_many(
        self,
        offsets: Mapping[str, str | None],
        *,
        on_refused: OnRefused = "raise",
        timeout_seconds: float | None = None,
    ) -> AsyncManyFollower:
        """The data of many streams of a Headwater server on one connection: from an offset each, None for the start.

        It ends when all streams are closed, or the time is up. A stream that is missing, deleted or trimmed past its
        offset raises the error that a read of it would raise; with `on_refused="drop"` the others go on, and the error
        is in `refused`.
        """
        policy = self._settings.follow_retry
        streams = tailing.followed(self._settings, offsets)
        reader = tailing.ManyReader(self._settings.root_url + tailing.PATH, policy, streams, on_refused)
        return AsyncManyFollower(self._carrier, reader, timeout_seconds)

    def __repr__(self) -> str:
        return f"AsyncClient({', '.join(self._settings.base_urls)!r})"

    async def aclose(self) -> None:
        await self._carrier.aclose()

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class AsyncBucket:
    """A bucket, which holds streams and is created before them."""

    def __init__(self, carrier: AsyncCarrier, url: str) -> None:
        self.url = url
        self._carrier = carrier
        self._target = RequestTarget(url, carrier.settings.retry)

    async def create(self, *, exist_ok: bool = False) -> bool:
        """Create the bucket, and return whether it is new; an existing one is a `Conflict` unless `exist_ok`."""
        return await self._carrier.run(extensions.create_bucket(self._target, exist_ok=exist_ok))

    async def info(self) -> BucketInfo:
        return await self._carrier.run(extensions.describe_bucket(self._target))

    async def delete(self) -> None:
        """Delete the bucket, which must be empty."""
        await self._carrier.run(operations.delete(self._target))

    def streams(self, *, prefix: str | None = None, page_streams_max: int | None = None) -> AsyncFlow[ListedStream]:
        """All streams of the bucket, sorted by name, fetched page by page."""
        return AsyncFlow(self._carrier, extensions.list_streams(self._target, prefix, page_streams_max))

    def stream(self, name: str, *, content_type: str | None = None, incarnation: str | None = None) -> AsyncStream:
        return AsyncStream(self._carrier, f"{self.url}/{segment(name)}", content_type, incarnation)

    def __repr__(self) -> str:
        return f"AsyncBucket({self.url!r})"
