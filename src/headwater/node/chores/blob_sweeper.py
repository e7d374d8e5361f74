"""The blob sweeper: deletes snapshots that are no longer needed and, at startup, uploads that were never published."""

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor

from headwater.node.committer import Submit
from headwater.storage.blobs import BlobStore
from headwater.streams.commands import Discarded
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
        self._tasks: set[asyncio.Task[None]] = set()

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

    def sweep(self) -> None:
        """Called after a batch that discarded something."""
        for blob in self._state.discarded:
            if blob not in self._sweeping:
                self._sweeping.add(blob)
                task = asyncio.get_running_loop().create_task(self._delete(blob))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _delete(self, blob: str) -> None:
        try:
            await asyncio.get_running_loop().run_in_executor(self._threads, self._blobs.delete, blob)
        except OSError as error:
            log.error("blob %s cannot be deleted; the next start tries again: %s", blob, error)
            return
        self._submit(Discarded(blob), lambda _: self._sweeping.discard(blob))
