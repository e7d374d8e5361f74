"""Downloads: responses that are larger than a page, sent as fast as the client reads and never whole in memory."""

import asyncio
import hashlib
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Protocol

from headwater.http.exchange import Exchange
from headwater.http.wire import rendering
from headwater.node.node import Node
from headwater.storage.blobs import BlobReader

READ_BYTES = 256 * 1024

log = logging.getLogger(__name__)

Parts = AsyncGenerator[bytes, None]


class Held(Protocol):
    """What a response needs until it is over."""

    def close(self) -> None: ...


class Download:
    """A streamed response: parts that are fetched when their turn comes, one task for all of them."""

    def __init__(self, exchange: Exchange, lines: str, parts: Parts, length: int | None, held: Held | None) -> None:
        self._exchange, self._connection = exchange, exchange.connection
        self._lines = lines + exchange.origin_lines()
        self._parts, self._length, self._held = parts, length, held
        self._chunked = length is None and exchange.request.takes_chunks
        self._room = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._over = False

    def begin(self) -> None:
        """Send the head; a body of unknown length that cannot be chunked ends with the connection."""
        if self._length is None and not self._chunked:
            self._exchange.close = True
        head = rendering.download_head(self._lines, self._length, chunked=self._chunked, close=self._exchange.close)
        self._connection.write(head)
        self._task = asyncio.get_running_loop().create_task(self._send())

    async def _send(self) -> None:
        try:
            async with aclosing(self._parts) as parts:
                async for part in parts:
                    await self._has_room()
                    if self._over:
                        return
                    assert part, "an empty chunk would end the response"
                    self._connection.write(rendering.chunk(part) if self._chunked else part)
        except OSError as error:
            # The head is out: all that can be said now is that the response is not whole.
            log.error("a response had to be cut short: %s", error)
            self._connection.abort()
            return
        except Exception:
            # Once the client is gone, or the server stops, nothing depends on it any more.
            if not self._over:
                log.exception("a response had to be cut short")
                self._connection.abort()
            return
        finally:
            self._let_go()
        self._over = True
        self._exchange.response = [rendering.LAST_CHUNK] if self._chunked else []
        self._connection.finished()

    async def _has_room(self) -> None:
        while self._connection.write_paused and not self._over:
            self._room.clear()
            await self._room.wait()

    def resume(self) -> None:
        self._room.set()

    def tick(self, now: float) -> None:
        pass

    def finish(self) -> None:
        """The server shuts down: what was begun is finished."""

    def abandon(self) -> None:
        """The client is gone; what is being read at the moment is read to its end first."""
        self._over = True
        self._room.set()
        if self._task is None:
            self._let_go()

    def _let_go(self) -> None:
        if self._held is not None:
            self._held.close()


async def blob_parts(node: Node, blob: BlobReader, size: int, digest: str) -> Parts:
    """The bytes of a blob, read in a thread; the last of them are given only if all are what was stored."""
    seen = hashlib.sha256()

    def read(at: int) -> bytes:
        data = blob.read(at, min(size - at, READ_BYTES))
        seen.update(data)
        return data

    for at in range(0, size, READ_BYTES):
        data = await asyncio.get_running_loop().run_in_executor(node.threads, read, at)
        if at + READ_BYTES >= size and seen.hexdigest() != digest:
            raise OSError("a snapshot's file is damaged")
        yield data
