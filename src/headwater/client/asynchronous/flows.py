"""What the asynchronous client reads as it arrives: followers and bootstraps."""

import codecs
from collections.abc import AsyncIterator, Mapping
from typing import Any

from headwater.client.asynchronous.carrier import AsyncCarrier
from headwater.client.asynchronous.runtime import AsyncFlow
from headwater.client.errors import ProtocolViolation, RequestRefused
from headwater.client.extensions import BootstrapHead
from headwater.client.reading import Reader
from headwater.client.tailing import ManyReader
from headwater.client.values import Chunk, Snapshot
from headwater.client.wire import Program


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
