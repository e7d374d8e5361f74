"""Uploads: the body of a snapshot is written to its blob as it arrives, in a thread, and is never whole in memory."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from headwater.storage.blobs import Blob, BlobStore, BlobWriter

T = TypeVar("T")

PENDING_BYTES_MAX = 1024 * 1024
"""How much may wait for the disk before reading from the client pauses."""


class Abandoned(Exception):
    """The client is gone or its request was refused, so nothing is kept."""


class Upload:
    """One body on its way to a blob."""

    def __init__(self, blobs: BlobStore, threads: ThreadPoolExecutor, balance: Callable[[], None]) -> None:
        self._blobs, self._threads, self._balance = blobs, threads, balance
        self._pieces: list[bytes] = []
        self._pending_bytes = 0
        self._arrived = asyncio.Event()
        self._whole = self._abandoned = False
        self._task = asyncio.get_running_loop().create_task(self._run())

    @property
    def full(self) -> bool:
        return self._pending_bytes > PENDING_BYTES_MAX

    def write(self, data: bytes) -> None:
        """Take the next piece of the body."""
        if not self._task.done():
            self._pieces.append(data)
            self._pending_bytes += len(data)
            self._arrived.set()
            if self.full:
                self._balance()

    def finish(self, finished: Callable[[Blob | OSError], None]) -> None:
        """The body is complete: make it durable, then call back."""
        self._whole = True
        self._arrived.set()
        self._task.add_done_callback(lambda task: finished(_outcome(task)))

    def abandon(self) -> None:
        """Discard the blob."""
        self._abandoned = True
        self._arrived.set()
        self._task.add_done_callback(_outcome)

    async def _run(self) -> Blob:
        writer: BlobWriter = await self._in_thread(self._blobs.create)
        try:
            while True:
                await self._arrived.wait()
                self._arrived.clear()
                if self._abandoned:
                    raise Abandoned
                if self._pieces:
                    data, self._pieces = b"".join(self._pieces), []
                    await self._in_thread(writer.write, data)
                    self._pending_bytes -= len(data)
                    self._balance()
                    self._arrived.set()
                elif self._whole:
                    return await self._in_thread(writer.finish)
        except (OSError, Abandoned):
            # Further pieces are ignored, so reading continues until the request is complete.
            self._pieces, self._pending_bytes = [], 0
            self._balance()
            await self._in_thread(writer.abandon)
            raise

    async def _in_thread(self, work: Callable[..., T], *arguments: bytes) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)


def _outcome(task: "asyncio.Task[Blob]") -> Blob | OSError:
    error = task.exception()
    if error is None:
        return task.result()
    return error if isinstance(error, OSError) else OSError(str(error) or "abandoned")
