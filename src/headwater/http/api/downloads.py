"""Downloads: responses larger than a page, sent as fast as the client reads and never whole in memory."""

import asyncio
import hashlib
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from errno import EREMOTEIO
from functools import partial
from typing import Protocol

from headwater.http.exchange.exchange import Exchange
from headwater.http.wire import rendering
from headwater.http.wire.budgets import Budget
from headwater.log.seam import reach
from headwater.node.cluster.shared_shard import STALE
from headwater.node.node import Node
from headwater.protocol.refusals import Code, Refusal
from headwater.storage.blobs import BlobReader
from headwater.storage.disk import shortage_of

READ_BYTES = 256 * 1024

log = logging.getLogger(__name__)

Parts = AsyncGenerator[bytes, None]


class Held(Protocol):
    """What a response holds until it is over: a file, or a scan."""

    def close(self) -> None:
        """Release it."""


class Download:
    """A streamed response: one task fetches its parts one after the other."""

    endless = False

    def __init__(
        self,
        exchange: Exchange,
        lines: str,
        parts: Parts,
        length: int | None,
        held: Held | None,
        *,
        is_shared: bool = False,
    ) -> None:
        self._exchange, self._connection = exchange, exchange.connection
        self._lines = exchange.with_own_lines(lines, is_shared=is_shared)
        self._parts, self._length, self._held = parts, length, held
        self._chunked = length is None and exchange.request.takes_chunks
        self._has_room = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._over = False

    def begin(self) -> None:
        """Send the head; closing the connection ends a body of unknown length that cannot be chunked."""
        if self._length is None and not self._chunked:
            self._exchange.close = True
        render = self._exchange.context.renderer.download_head
        self._connection.write(render(self._lines, self._length, chunked=self._chunked, close=self._exchange.close))
        self._task = asyncio.get_running_loop().create_task(self._send())

    async def _send(self) -> None:
        try:
            async with aclosing(self._parts) as parts:
                async for part in parts:
                    await self._wait_for_room()
                    if self._over:
                        return
                    assert part, "an empty chunk would end the response"
                    self._connection.write(rendering.chunk(part) if self._chunked else part)
                    self._exchange.charge_read(len(part))
        except OSError as error:
            # The head has been sent, so the only way left to report the failure is an incomplete response.
            log.error("response cut short: %s", error)
            self._connection.abort()
            return
        except Exception:
            # A failure no longer matters once the client is gone or the server stops.
            if not self._over:
                log.exception("response cut short")
                self._connection.abort()
            return
        finally:
            self._release()
        self._over = True
        self._exchange.response = [rendering.LAST_CHUNK] if self._chunked else []
        self._connection.finished()

    async def _wait_for_room(self) -> None:
        while self._connection.write_paused and not self._over:
            self._has_room.clear()
            await self._has_room.wait()

    def resume(self) -> None:
        self._has_room.set()

    def tick(self, now: float) -> None:
        pass

    def finish(self) -> None:
        """The server shuts down: a download that has begun runs to its end."""

    def abandon(self) -> None:
        """The client is gone: stop after the part that is being read."""
        self._over = True
        self._has_room.set()
        if self._task is None:
            self._release()

    def _release(self) -> None:
        if self._held is not None:
            self._held.close()


class OpenBlob:
    """A blob that is being sent, and the file descriptor that it takes."""

    def __init__(self, blob: BlobReader, budget: Budget) -> None:
        self._blob, self._budget = blob, budget
        self._open = True
        self.read = blob.read

    def close(self) -> None:
        """Release both. Idempotent."""
        if self._open:
            self._open = False
            self._blob.close()
            self._budget.give_back(1)


def send_blob(
    exchange: Exchange, name: str, blob: str, send: Callable[[OpenBlob], None], again: Callable[[], None]
) -> None:
    """Open the blob of a stream's snapshot in a thread and send it, if there are not too many open.

    If it is missing, the snapshot may have been replaced since the state was read, here or on another node. Then
    `again` has to read the state once more.
    """
    budget = exchange.context.blobs
    if not budget.take(1):
        exchange.refuse(Code.OVERLOADED, "Too many snapshots are being sent or received; try again in a second.")
        return
    # Writes after this request must not be visible to it.
    exchange.fetching = True
    task = asyncio.get_running_loop().create_task(_open(exchange.node, name, blob, budget))
    task.add_done_callback(partial(_opened, exchange, send, again))


async def _open(node: Node, name: str, blob: str, budget: Budget) -> OpenBlob | Refusal | None:
    """The blob; None if it is missing and the stream no longer has it."""
    shard = node.shard_of(name)
    found: OpenBlob | Refusal | None = None
    try:
        reader = await asyncio.get_running_loop().run_in_executor(node.threads, shard.blobs.open, blob)
        found = OpenBlob(reader, budget)
    except FileNotFoundError:
        if not await reach(shard.barrier):
            return Refusal(Code.LOG_UNAVAILABLE, shard.outage or STALE)
        stream = shard.state.streams.get(name)
        if stream is not None and stream.snapshot is not None and stream.snapshot.blob == blob:
            raise
    except OSError as error:
        if error.errno != EREMOTEIO:
            raise
        log.error("a snapshot cannot be read: %s", error)
        found = Refusal(Code.OVERLOADED, shortage_of(error))
    finally:
        if not isinstance(found, OpenBlob):
            budget.give_back(1)
    return found


def _opened(
    exchange: Exchange,
    send: Callable[[OpenBlob], None],
    again: Callable[[], None],
    task: "asyncio.Task[OpenBlob | Refusal | None]",
) -> None:
    exchange.fetching = False
    try:
        found = None if task.cancelled() else task.result()
        if task.cancelled() or exchange.connection.lost:
            if isinstance(found, OpenBlob):
                found.close()
        elif found is None:
            again()
        elif isinstance(found, Refusal):
            exchange.reply(found)
        else:
            send(found)
            # Requests that waited until it was open may start while it is sent.
            exchange.connection.finished()
    except Exception:
        exchange.fail()


async def blob_parts(node: Node, blob: OpenBlob, size: int, digest: str) -> Parts:
    """The bytes of a blob, read in a thread; the last part comes only if the digest of all of them is right."""
    seen = hashlib.sha256()

    def read(at: int) -> bytes:
        data = blob.read(at, min(size - at, READ_BYTES))
        seen.update(data)
        return data

    for at in range(0, size, READ_BYTES):
        data = await asyncio.get_running_loop().run_in_executor(node.threads, read, at)
        if at + READ_BYTES >= size and seen.hexdigest() != digest:
            raise OSError("the file of a snapshot is damaged")
        yield data
