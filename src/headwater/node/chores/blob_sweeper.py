"""The blob sweeper: deletes snapshots that are no longer needed and, at startup, uploads that were never published."""

import asyncio
import logging
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from itertools import takewhile
from typing import Any

from headwater.node.committer import Done, Submit
from headwater.protocol.refusals import Code, Refusal
from headwater.storage.blobs import BlobStore
from headwater.streams.commands import Discarded
from headwater.streams.replies import Reply
from headwater.streams.state import State

log = logging.getLogger(__name__)


class BlobSweeper:
    """Deletes a blob first and forgets it by a command after, so a crash in between only repeats the deletion."""

    def __init__(
        self,
        state: State,
        blobs: BlobStore,
        submit: Submit,
        threads: ThreadPoolExecutor,
    ) -> None:
        self._state, self._blobs, self._submit, self._threads = state, blobs, submit, threads
        self._sweeping: set[str] = set()
        self._tasks: set[asyncio.Task[object]] = set()

    def start(self) -> None:
        """Delete the blobs of uploads that were never published; none can be in progress yet."""
        needed = {stream.snapshot.blob for stream in self._state.streams.values() if stream.snapshot is not None}
        for stream in self._state.streams.values():
            needed.update(hold.blob for hold in (stream.pins or {}).values() if hold.blob is not None)
        for blob in self._blobs.names():
            if blob not in needed and blob not in self._state.discarded:
                self._blobs.delete(blob)
        self.sweep()

    async def stop(self) -> None:
        await asyncio.gather(*self._tasks)

    def watch(self, blob: str, done: Done) -> Done:
        """Delete the blob of a snapshot for which there is no room, now or while its command waits for the log."""

        def answered(reply: Reply) -> None:
            if isinstance(reply, Refusal) and reply.code is Code.OVERLOADED:
                self.delete(blob)
            done(reply)

        return answered

    def sweep(self) -> None:
        """Called after a batch that discarded something."""
        # New ones come after all others, so those that are being deleted need not be looked at.
        for blob in takewhile(lambda blob: blob not in self._sweeping, reversed(self._state.discarded)):
            self._sweeping.add(blob)
            self._run(self._sweep(blob))

    def delete(self, blob: str) -> None:
        """Delete a blob that no command in the log has named: an upload whose command was refused at once."""
        self._run(self._delete(blob))

    def _run(self, work: Coroutine[Any, Any, object]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _sweep(self, blob: str) -> None:
        if await self._delete(blob):
            self._submit(Discarded(blob), lambda _: self._sweeping.discard(blob))

    async def _delete(self, blob: str) -> bool:
        try:
            await asyncio.get_running_loop().run_in_executor(self._threads, self._blobs.delete, blob)
        except OSError as error:
            log.error("blob %s cannot be deleted; the next start tries again: %s", blob, error)
            return False
        return True
