"""The administrative surface of a Headwater server, for the asynchronous client."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import httpx2

from headwater.client import admin, extensions
from headwater.client.admin import ConsumerInfo, PurgeBegun, PurgeInfo, ScanRange
from headwater.client.asynchronous.carrier import AsyncCarrier
from headwater.client.asynchronous.runtime import AsyncFlow
from headwater.client.operations import RequestTarget
from headwater.client.retrying import RetryPolicy
from headwater.client.settings import AsyncRequestValue, ClientSettings, quoted
from headwater.client.urls import ServerUrls
from headwater.client.values import BucketInfo, ListedStream


class AsyncAdmin:
    """A Headwater server as an operator or a job sees it: its status, its lake, and many streams at once.

    `url` is the server's root, such as `http://127.0.0.1:4437`, or several for the nodes of one cluster. Rows are bytes
    in Arrow's stream format, which `pyarrow.ipc` reads and writes. Use it as an asynchronous context manager, or
    close it; tasks may share it.
    """

    def __init__(
        self,
        url: ServerUrls,
        *,
        headers: Mapping[str, AsyncRequestValue] | None = None,
        retry: RetryPolicy | None = None,
        timeout_seconds: float = 30.0,
        token: AsyncRequestValue | None = None,
        http: httpx2.AsyncClient | None = None,
    ) -> None:
        policy = retry or RetryPolicy()
        settings = ClientSettings(url, headers or {}, retry=policy, timeout_seconds=timeout_seconds, token=token)
        self.url = settings.root_url
        self._carrier = AsyncCarrier(settings, http)
        self._target = RequestTarget(self.url + admin.SURFACE, policy)

    def __repr__(self) -> str:
        return f"AsyncAdmin({self.url!r})"

    async def aclose(self) -> None:
        await self._carrier.aclose()

    async def __aenter__(self) -> "AsyncAdmin":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    # -- The server and its lake ---------------------------------------------------------------------------------------

    async def status(self) -> dict[str, Any]:
        """The server's version, health and usage."""
        return await self._carrier.run(admin.members_of(self._target, "GET", "/status"))

    async def cluster(self) -> dict[str, Any]:
        """The cluster as this node sees it."""
        return await self._carrier.run(admin.members_of(self._target, "GET", "/cluster"))

    async def checkpoint(self) -> str:
        """Have every node hash its state at one position; the id under which each shows its hash."""
        return await self._carrier.run(admin.checkpoint(self._target))

    async def image(self) -> dict[str, Any]:
        """Have this node store an image of its state: its `log_id`, `position` and `sequence`."""
        return await self._carrier.run(admin.members_of(self._target, "POST", "/cluster/image"))

    async def drain(self) -> None:
        """Have this node finish its requests, leave the cluster and end."""
        await self._carrier.run(admin.tell(self._target, "POST", "/cluster/drain"))

    async def whoami(self) -> dict[str, Any]:
        """Whom the server takes this client for: its `name`, its `kind`, and the server's `mode`."""
        return await self._carrier.run(admin.members_of(self._target, "GET", "/whoami"))

    async def describe_log(self) -> dict[str, Any]:
        """The log's `log_id`, its `positions`, and its `lake`, whose `url` is None for those who may not read it."""
        return await self._carrier.run(admin.members_of(self._target, "GET", "/log"))

    async def flush(self, *, all_tables: bool = False) -> dict[str, int]:
        """Write everything acknowledged so far to the lake, and return the position it reaches on each shard.

        With `all_tables` the table of the streams is up to date as well; otherwise it is written every few minutes.
        """
        return await self._carrier.run(admin.flush(self._target, all_tables))

    async def swap(self, replaced: Sequence[int], keys: Sequence[str], dropped: int, deadline_us: int) -> None:
        """Replace segments of the lake, by number, with rewritten ones, by key."""
        await self._carrier.run(admin.swap(self._target, replaced, keys, dropped, deadline_us))

    async def purge(
        self, stream: str | None = None, *, prefix: str | None = None, with_forks: bool = False
    ) -> PurgeBegun:
        """Begin to remove every byte of a stream, or of all whose whole names begin with a prefix."""
        return await self._carrier.run(admin.purge(self._target, stream, prefix, with_forks))

    async def purge_info(self, purge_id: str) -> PurgeInfo:
        """How far a purge is; it is done when nothing is left, or when a stream was forked meanwhile."""
        return await self._carrier.run(admin.read_purge(self._target, purge_id))

    # -- Buckets and streams -------------------------------------------------------------------------------------------

    def buckets(self, *, prefix: str | None = None, page_buckets_max: int | None = None) -> AsyncFlow[BucketInfo]:
        """All buckets that were created or hold streams, sorted by name, fetched page by page."""
        return AsyncFlow(self._carrier, extensions.list_buckets(self._target, prefix, page_buckets_max))

    def streams(self, *, prefix: str | None = None, page_streams_max: int | None = None) -> AsyncFlow[ListedStream]:
        """All streams, named `bucket/stream` and sorted by that, fetched page by page."""
        return AsyncFlow(self._carrier, extensions.list_streams(self._target, prefix, page_streams_max))

    # -- Consumers of the lake -----------------------------------------------------------------------------------------

    async def register_consumer(
        self, name: str, positions: Mapping[str, int], *, renew: bool = False, silence_seconds: int | None = None
    ) -> None:
        """Record how far a consumer has read each shard; the lake keeps what it has not read yet.

        With `renew` it is refused, as `consumer_lapsed`, unless the consumer has been registered without a break. It
        lapses when it has been silent for `silence_seconds`; for seven days if that is None.
        """
        await self._carrier.run(admin.register_consumer(self._target, name, positions, renew, silence_seconds))

    async def lease(self, name: str, seconds: int, *, renew: bool = False) -> None:
        """Keep the objects that the lake has now for some seconds; with `renew`, keep those of the beginning longer.

        A lease that has lapsed cannot be renewed; the refusal is `consumer_lapsed`. `forget_consumer` ends a lease.
        """
        await self._carrier.run(admin.lease(self._target, name, seconds, renew))

    async def consumers(self) -> list[ConsumerInfo]:
        return await self._carrier.run(admin.read_consumers(self._target))

    async def consumer(self, name: str) -> ConsumerInfo | None:
        """A consumer; None if it is not registered."""
        return await self._carrier.run(admin.read_consumer(self._target, name))

    async def forget_consumer(self, name: str) -> None:
        """Remove a consumer; the lake no longer keeps anything for it."""
        await self._carrier.run(admin.tell(self._target, "DELETE", admin.consumer_path(name)))

    # -- Many streams at once ------------------------------------------------------------------------------------------

    async def describe(self, streams: Iterable[str]) -> bytes:
        """One row for each of these streams, named `bucket/stream`; missing streams are left out."""
        return await self._carrier.run(admin.describe(self._target, streams))

    async def describe_prefix(
        self, prefix: str, *, after: str | None = None, page_streams_max: int | None = None
    ) -> bytes:
        """One row for each stream whose name begins with a prefix, sorted by name, from the one after `after`."""
        return await self._carrier.run(admin.describe_prefix(self._target, prefix, after, page_streams_max))

    async def locate(self, records: Sequence[tuple[str, int, int]]) -> list[int | None]:
        """The offset at which each record begins; a record is named by stream, incarnation and number."""
        return await self._carrier.run(admin.locate(self._target, records))

    def scan(
        self,
        ranges: Sequence[ScanRange],
        *,
        columns: Sequence[str] | None = None,
        since_us: int | None = None,
        until_us: int | None = None,
    ) -> AsyncFlow[bytes]:
        """The rows of ranges, as they arrive; `TransportFailed` if the answer ends too early."""
        return AsyncFlow(self._carrier, admin.scan(self._target, ranges, columns, since_us, until_us))

    async def append(self, rows: bytes) -> bytes:
        """Append to many streams, and return one row with the outcome of each append.

        The request may be sent twice, so every row needs a producer.
        """
        return await self._carrier.run(admin.append(self._target, rows))

    async def finish_producer(self, producer: str) -> None:
        """Fence a producer off from all streams, which then need not remember it."""
        await self._carrier.run(admin.tell(self._target, "DELETE", f"/producers/{quoted(producer)}"))
