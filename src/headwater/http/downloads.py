"""Downloads: responses that are larger than a page, sent as fast as the client reads and never whole in memory."""

import asyncio
import logging
from collections.abc import Iterator
from typing import NamedTuple

from headwater.http import rendering
from headwater.http.exchanges import Exchange
from headwater.node.blobs import BlobReader

READ_BYTES = 256 * 1024

log = logging.getLogger(__name__)


class BlobBytes(NamedTuple):
    """Some bytes of a blob, yet to be read."""

    blob: BlobReader
    at: int
    size: int


class Download:
    """A streamed response: parts that are bytes already, or are read from a blob in a thread when their turn comes."""

    def __init__(
        self,
        exchange: Exchange,
        lines: str,
        parts: Iterator[bytes | BlobBytes],
        length: int | None,
        blob: BlobReader | None,
    ) -> None:
        self._exchange, self._node, self._connection = exchange, exchange.node, exchange.connection
        self._lines, self._parts, self._length, self._blob = lines, parts, length, blob
        self._chunked = length is None and exchange.request.takes_chunks
        self._left: BlobBytes | None = None
        self._reading: asyncio.Task[None] | None = None
        self._over = False

    def begin(self) -> None:
        """Send the head; a body of unknown length that cannot be chunked ends with the connection."""
        if self._length is None and not self._chunked:
            self._exchange.close = True
        head = rendering.download_head(self._lines, self._length, chunked=self._chunked, close=self._exchange.close)
        self._connection.write(head)
        self._pump()

    def resume(self) -> None:
        self._pump()

    def _pump(self) -> None:
        while not (self._over or self._connection.write_paused or self._reading is not None):
            part = self._left or next(self._parts, None)
            if part is None:
                self._finish()
            elif isinstance(part, bytes):
                self._write(part)
            else:
                self._reading = asyncio.get_running_loop().create_task(self._read(part))

    async def _read(self, part: BlobBytes) -> None:
        size = min(part.size, READ_BYTES)
        try:
            data = await asyncio.get_running_loop().run_in_executor(self._node.threads, part.blob.read, part.at, size)
            if len(data) != size:
                raise OSError("it ends early")
        except OSError as error:
            # The head is out: all that can be said now is that the response is not whole.
            log.error("a snapshot cannot be read: %s", error)
            self._reading = None
            self._end()
            self._connection.abort()
            return
        self._left = BlobBytes(part.blob, part.at + size, part.size - size) if part.size > size else None
        self._reading = None
        if self._over:
            self._end()
        else:
            self._write(data)
            self._pump()

    def _write(self, data: bytes) -> None:
        if data:
            self._connection.write(rendering.chunk(data) if self._chunked else data)

    def _end(self) -> None:
        """Nothing more is sent; the blob is let go of, but not under a read."""
        self._over = True
        if self._blob is not None and self._reading is None:
            self._blob.close()

    def _finish(self) -> None:
        self._end()
        self._exchange.response = [rendering.LAST_CHUNK] if self._chunked else []
        self._connection.finished()

    def tick(self, now: float) -> None:
        pass

    def finish(self) -> None:
        """The server shuts down: what was begun is finished."""

    def abandon(self) -> None:
        self._end()
