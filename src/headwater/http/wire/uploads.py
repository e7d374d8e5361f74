"""Uploads: the body of a snapshot is written to its blob as it arrives, in a thread, and is never whole in memory.

Nothing is written before the request has been judged: by its head if the body is large, else when it is complete.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from errno import EMFILE
from typing import TypeVar

from headwater.http.wire.budgets import Budget
from headwater.http.wire.intakes import Refuse
from headwater.storage.blobs import Blob, BlobWriter

T = TypeVar("T")

PENDING_BYTES_MAX = 1024 * 1024
"""How much may wait for the disk before reading from the client pauses."""


class Abandoned(Exception):
    """The client is gone or its request was refused, so nothing is kept."""


class Upload:
    """One body on its way to a blob: the intake of a body that is not kept in memory."""

    def __init__(
        self,
        create: Callable[[], BlobWriter],
        threads: ThreadPoolExecutor,
        files: Budget,
        balance: Callable[[], None],
    ) -> None:
        self._create, self._threads, self._files, self._balance = create, threads, files, balance
        self.received_bytes = 0
        self._pieces: list[bytes] = []
        self._pending_bytes = 0
        self._arrived = asyncio.Event()
        self._whole = self._abandoned = False
        self._task: asyncio.Task[Blob | OSError] | None = None

    @property
    def full(self) -> bool:
        return self._pending_bytes > PENDING_BYTES_MAX

    def begin(self, size: int | None, refuse: Refuse) -> None:
        self._start()

    def _start(self) -> "asyncio.Task[Blob | OSError]":
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
        return self._task

    def extend(self, size: int) -> bool:
        return True

    def write(self, data: bytes) -> None:
        """Take the next piece of the body."""
        self.received_bytes += len(data)
        if not (self._abandoned or (self._task is not None and self._task.done())):
            self._pieces.append(data)
            self._pending_bytes += len(data)
            self._arrived.set()
            if self.full:
                self._balance()

    def finish(self, finished: Callable[[Blob | OSError], None]) -> None:
        """The body is complete: make it durable, then call back."""
        self._whole = True
        self._arrived.set()
        self._start().add_done_callback(lambda task: finished(task.result()))

    def abandon(self) -> None:
        """Discard the blob."""
        self._abandoned = True
        self._arrived.set()
        if self._task is None:
            self._pieces, self._pending_bytes = [], 0

    def release(self) -> None:
        """Nothing: a body that is complete is published, even if the client has disconnected."""

    async def _run(self) -> Blob | OSError:
        """Store the body. A failure is a result: an exception would keep this upload alive, and it its own task."""
        if not self._files.take(1):
            self._pieces, self._pending_bytes = [], 0
            return OSError(EMFILE, "too many snapshots are being sent or received")
        try:
            return await self._store()
        except OSError as error:
            # A copy without the traceback, and without the path, which is not for the client.
            return OSError(error.errno, error.strerror)
        except Abandoned:
            return OSError("abandoned")
        finally:
            self._files.give_back(1)

    async def _store(self) -> Blob:
        writer: BlobWriter = await self._in_thread(self._create)
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
            self._abandoned = True
            self._pieces, self._pending_bytes = [], 0
            self._balance()
            await self._in_thread(writer.abandon)
            raise

    async def _in_thread(self, work: Callable[..., T], *arguments: bytes) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)
