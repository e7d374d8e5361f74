"""Streams of the asynchronous client."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from headwater.client import bodies, extensions, operations
from headwater.client.asynchronous.carrier import AsyncBootstrap, AsyncCarrier, AsyncFollower
from headwater.client.asynchronous.runtime import AsyncFlow
from headwater.client.asynchronous.writing import AsyncAppender, AsyncProducer
from headwater.client.extensions import StreamPosition
from headwater.client.operations import Conditions, Fork, IfExists, RequestTarget
from headwater.client.producing import ProducerOptions
from headwater.client.reading import Reader, ReadOptions
from headwater.client.retrying import RetryPolicy
from headwater.client.values import (
    START,
    Appended,
    BatchAck,
    Chunk,
    Created,
    Live,
    OnDuplicate,
    OnTrimmed,
    Record,
    Snapshot,
    StreamInfo,
)
from headwater.protocol import content_types
from headwater.protocol.producers import Producer as Numbered


class AsyncStream:
    """One stream. Making the object sends nothing; its methods do. Tasks may share it."""

    def __init__(self, carrier: AsyncCarrier, url: str, content_type: str | None, incarnation: str | None) -> None:
        self.url = url
        self.content_type = content_type
        self._carrier = carrier
        self._target = RequestTarget(url, carrier.settings.retry, incarnation)
        self._appender = AsyncAppender(carrier, self._target)

    def __repr__(self) -> str:
        return f"AsyncStream({self.url!r})"

    # -- Lifecycle -----------------------------------------------------------------------------------------------------

    async def create(
        self,
        content_type: str | None = None,
        *,
        body: bytes | str | None = None,
        ttl_seconds: int | None = None,
        expires_at: str | None = None,
        closed: bool = False,
        fork: Fork | None = None,
        attrs: Mapping[str, Any] | None = None,
        if_exists: IfExists = "accept",
    ) -> Created:
        """Create the stream, or accept an existing one with the same options; one with others is a `Conflict`."""
        wanted = content_type or self.content_type
        program = operations.create(
            self._target,
            wanted or (content_types.DEFAULT if fork is None else None),
            body=body.encode() if isinstance(body, str) else body,
            ttl_seconds=ttl_seconds,
            expires_at=expires_at,
            closed=closed,
            fork=fork,
            attrs=attrs,
            if_exists=if_exists,
        )
        created = await self._carrier.run(program)
        self.content_type = wanted or (content_types.DEFAULT if fork is None else None)
        return created

    async def head(self) -> StreamInfo:
        """The stream's metadata."""
        found = await self._carrier.run(operations.head(self._target))
        assert found is not None, "only a request with an ETag is answered with 304"
        self.content_type = found.content_type
        return found

    async def head_if_changed(self, etag: str) -> StreamInfo | None:
        """The stream's metadata; None if the stream has not changed since it returned `etag`."""
        return await self._carrier.run(operations.head(self._target, etag))

    async def delete(self) -> None:
        await self._carrier.run(operations.delete(self._target))

    # -- Writing -------------------------------------------------------------------------------------------------------

    async def append(
        self,
        data: bytes | str,
        *,
        seq: str | None = None,
        if_match: str | None = None,
        record_match: int | None = None,
    ) -> Appended:
        """Append bytes or text unchanged; a JSON stream takes JSON, and each element of an array is one message.

        Concurrent appends of several tasks share requests. A write without an answer raises `OutcomeUnknown`; with a
        `producer` that cannot happen.
        """
        piece = bodies.encode_raw(data, await self._type())
        return await self._appender.append(piece, await self._type(), Conditions(seq, if_match, record_match))

    async def append_json(
        self, *values: Any, seq: str | None = None, if_match: str | None = None, record_match: int | None = None
    ) -> Appended:
        """Append each value as one message, arrays too."""
        conditions = Conditions(seq, if_match, record_match)
        return await self._appender.append(bodies.encode_values(values), content_types.JSON, conditions)

    async def append_batch(self, messages: Sequence[bytes], *, record_match: int | None = None) -> list[BatchAck]:
        """Append several messages that stay apart, and return an acknowledgement for each."""
        conditions = Conditions(record_match=record_match)
        return await self._carrier.run(extensions.append_batch(self._target, await self._type(), messages, conditions))

    async def append_once(
        self, data: bytes | str, *, producer_id: str, epoch: int, seq: int, closed: bool = False
    ) -> Appended:
        """Append as request `seq` of a producer, for writers that number their requests and repeat them unchanged."""
        content_type = await self._type()
        body = bodies.join([bodies.encode_raw(data, content_type)], content_type)
        numbered = Numbered(producer_id, epoch, seq)
        return await self._carrier.run(
            operations.append_once(self._target, content_type, body, numbered, closed=closed)
        )

    async def close_stream(self, last: bytes | str | None = None) -> Appended:
        """Close the stream on the server, with or without a last message; nothing can be appended afterwards."""
        if last is None:
            return await self._carrier.run(operations.close(self._target))
        return await self._appender.append(
            bodies.encode_raw(last, await self._type()), await self._type(), Conditions(), closed=True
        )

    def producer(
        self,
        id: str,
        *,
        epoch: int = 0,
        auto_claim: bool = False,
        on_duplicate: OnDuplicate = "raise",
        batch_bytes_max: int = 1024 * 1024,
        batch_messages_max: int = 10_000,
        linger_ms: float = 5.0,
        in_flight_max: int = 5,
        pending_bytes_max: int = 16 * 1024 * 1024,
    ) -> AsyncProducer:
        """A producer, which writes each message exactly once and in order.

        Each run of a program needs an epoch of its own: pass a higher one, or `auto_claim`, which takes the next one. A
        run that uses an epoch again raises `ProducerEpochUsed`. Only a program that repeats the same messages in the
        same requests may continue its epoch, with `on_duplicate="accept"`.
        """
        options = ProducerOptions(
            id=id,
            epoch=epoch,
            auto_claim=auto_claim,
            on_duplicate=on_duplicate,
            batch_bytes_max=batch_bytes_max,
            batch_messages_max=batch_messages_max,
            linger_ms=linger_ms,
            in_flight_max=in_flight_max,
            pending_bytes_max=pending_bytes_max,
        )
        return AsyncProducer(self._carrier, self._target, options, self._type_for_producer)

    # -- Reading -------------------------------------------------------------------------------------------------------

    def chunks(
        self, offset: str = START, *, page_bytes_max: int | None = None, on_trimmed: OnTrimmed = "raise"
    ) -> AsyncFollower:
        """The data from `offset` to the current end, page by page."""
        return self._reader(self._carrier.settings.retry, offset, ReadOptions(None, on_trimmed, page_bytes_max))

    def follow(
        self,
        offset: str = START,
        *,
        live: Live = "auto",
        on_trimmed: OnTrimmed = "raise",
        page_bytes_max: int | None = None,
        poll_timeout_ms: int | None = None,
        timeout_seconds: float | None = None,
    ) -> AsyncFollower:
        """The data from `offset` on, then new data as it arrives, until the stream is closed or the time is up."""
        options = ReadOptions(live, on_trimmed, page_bytes_max, poll_timeout_ms)
        return self._reader(self._carrier.settings.follow_retry, offset, options, timeout_seconds)

    def _reader(
        self, policy: RetryPolicy, offset: str, options: ReadOptions, timeout_seconds: float | None = None
    ) -> AsyncFollower:
        reader = Reader(self.url, policy, options, offset, self._target.incarnation)
        return AsyncFollower(self._carrier, reader, timeout_seconds)

    async def page(
        self, offset: str = START, *, page_bytes_max: int | None = None, etag: str | None = None
    ) -> Chunk | None:
        """The data of one response; None if it has not changed since it returned `etag`."""
        return await self._carrier.run(operations.read_page(self._target, offset, page_bytes_max, etag))

    async def read(self, offset: str = START) -> bytes:
        """All bytes from `offset` on; one array if the stream is JSON."""
        async with self.chunks(offset) as chunks:
            pages = [chunk.data async for chunk in chunks]
        return bodies.merge(pages, chunks.content_type) if pages else b""

    async def read_text(self, offset: str = START) -> str:
        data = await self.read(offset)
        return data.decode()

    async def read_json(self, offset: str = START) -> list[Any]:
        """All messages of a JSON stream from `offset` on."""
        async with self.chunks(offset) as chunks:
            return [message async for chunk in chunks for message in chunk.json()]

    def records(self, first: int = 0, *, page_records_max: int | None = None) -> AsyncFlow[Record]:
        """The messages of a JSON stream with their record numbers, from number `first` on."""
        program = extensions.read_records(self._target, first=first, last=None, page_records_max=page_records_max)
        return AsyncFlow(self._carrier, program)

    def last_records(self, count: int, *, page_records_max: int | None = None) -> AsyncFlow[Record]:
        """The last `count` messages of a JSON stream with their record numbers."""
        program = extensions.read_records(self._target, first=None, last=count, page_records_max=page_records_max)
        return AsyncFlow(self._carrier, program)

    # -- Snapshots, retention, attributes ------------------------------------------------------------------------------

    async def publish_snapshot(
        self,
        data: bytes,
        *,
        offset: str | None = None,
        record: int | None = None,
        content_type: str = content_types.DEFAULT,
    ) -> str | None:
        """Publish the state of the stream just before an offset or record, and return the snapshot's offset."""
        position = StreamPosition(offset, record)
        return await self._carrier.run(extensions.publish_snapshot(self._target, data, position, content_type))

    async def snapshot(self, offset: str | None = None) -> Snapshot:
        """The latest snapshot, or the one at `offset`."""
        return await self._carrier.run(extensions.read_snapshot(self._target, offset))

    def bootstrap(self) -> AsyncBootstrap:
        """The latest snapshot and every message after it, as they arrive."""
        return AsyncBootstrap(self._carrier, extensions.bootstrap(self._target))

    async def retain_from(self, *, offset: str | None = None, record: int | None = None) -> None:
        """Trim the stream: drop what is before an offset or record."""
        await self._carrier.run(extensions.retain_from(self._target, StreamPosition(offset, record)))

    async def attrs(self) -> dict[str, Any]:
        return await self._carrier.run(extensions.read_attrs(self._target))

    async def set_attrs(self, *, title: str | None = None, metadata: Mapping[str, Any] | None = None) -> None:
        """Replace the stream's title and metadata."""
        given = {"title": title, "metadata": metadata}
        attrs = {name: value for name, value in given.items() if value is not None}
        await self._carrier.run(extensions.write_attrs(self._target, attrs))

    async def _type(self) -> str:
        """The stream's content type; the server is asked once if it is not known."""
        if self.content_type is None:
            await self.head()
        assert self.content_type is not None, "the answer to HEAD has set it"
        return self.content_type

    async def _type_for_producer(self) -> str:
        """The same, with the patience of a producer."""
        if self.content_type is None:
            target = replace(self._target, policy=self._carrier.settings.follow_retry)
            found = await self._carrier.run(operations.head(target))
            assert found is not None, "only a request with an ETag is answered with 304"
            self.content_type = found.content_type
        return self.content_type
