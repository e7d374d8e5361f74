"""The blob sweeper: deletes snapshots that are no longer needed, and uploads that were never published.

Several processes may use the same blobs. So an upload is not deleted because it looks unfinished, but because the log's
own time is past its deadline: from then on every node refuses to publish it. And where the log is shared, a discarded
snapshot is kept for a while, because another node may be sending it.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from itertools import islice, takewhile
from typing import Any, NamedTuple

from headwater.log.seam import Barriers, reach
from headwater.node.committer import Done, Now, Submit
from headwater.node.periodic import Periodic
from headwater.node.threads import in_thread
from headwater.protocol.limits import MINUTE_US, SECOND_US, SNAPSHOT_UPLOAD_US_MAX
from headwater.protocol.refusals import Code, Refusal
from headwater.storage.blobs import BlobStore, deadline_of, upload_of
from headwater.streams.commands.snapshots import Discarded
from headwater.streams.replies import Reply
from headwater.streams.state import State

MARGIN_US = MINUTE_US
"""How long after its deadline an upload is deleted."""
PURGE_POLL_SECONDS = 0.02
"""How often a purge checks whether blobs are gone."""
DELETED_PER_TURN = 500
STREAMS_PER_TURN = 1_000
"""How many blobs a purge deletes, and how many streams are asked for their snapshots, before the loop gets a turn."""

log = logging.getLogger(__name__)


class SweepIntervals(NamedTuple):
    """How often the sweeper looks for work that no batch brings to mind."""

    discarded_check_seconds: float = 5.0
    uploads_check_seconds: float = 600.0


SWEEP_INTERVALS = SweepIntervals()


class BlobSweeper:
    """Deletes a blob first and forgets it by a command after, so a crash in between only repeats the deletion.

    It sweeps between `start` and `stop`, any number of times: where several nodes share the log, one of them does.
    """

    def __init__(
        self,
        state: State,
        blobs: BlobStore,
        submit: Submit,
        threads: ThreadPoolExecutor,
        command_log: Barriers,
        *,
        now: Now,
        grace_seconds: float,
        intervals: SweepIntervals = SWEEP_INTERVALS,
    ) -> None:
        self._state, self._blobs, self._submit, self._threads = state, blobs, submit, threads
        self._barrier = command_log.barrier
        # What this process sends, it holds open.
        self._grace_us = int(grace_seconds * SECOND_US) if command_log.shared else 0
        self._shared, self._started_us = command_log.shared, now()
        self._discarded: dict[str, int] = {}
        """The discarded blobs that we know of, and when we learned of each, by the shard's time."""
        self._deleting: set[str] = set()
        self._periodic = [
            Periodic(work, seconds, "blobs cannot be swept and will be tried again")
            for work, seconds in (
                (self._sweep_discarded, intervals.discarded_check_seconds),
                (self.sweep_uploads, intervals.uploads_check_seconds),
            )
        ]
        self._sweeps = False
        self._tasks: set[asyncio.Task[object]] = set()

    def start(self) -> None:
        self._discarded.clear()
        self._sweeps = True
        for periodic in self._periodic:
            periodic.start()
        self.sweep()

    async def stop(self) -> None:
        self._sweeps = False
        for periodic in self._periodic:
            await periodic.stop()
        await asyncio.gather(*self._tasks)

    def watch(self, blob: str, done: Done) -> Done:
        """Delete the blob of a snapshot for which there is no room, now or while its command waits for the log."""

        def answered(reply: Reply) -> None:
            if isinstance(reply, Refusal) and reply.code is Code.OVERLOADED:
                self.delete(blob)
            done(reply)

        return answered

    def delete(self, blob: str) -> None:
        """Delete a blob that no command in the log has named: an upload whose command was refused at once."""
        self._run(self._delete(self._blobs.delete, blob))

    # -- Discarded blobs ------------------------------------------------------------------------------------------

    def sweep(self) -> None:
        """Called after a batch that discarded something."""
        if not self._sweeps:
            return
        # New ones come after all others, so those that are known need not be looked at.
        for blob in takewhile(lambda blob: blob not in self._discarded, reversed(self._state.discarded)):
            self._discarded[blob] = self._state.now
            if not self._grace_us:
                self._begin(blob)

    async def _sweep_discarded(self) -> None:
        """Delete the blobs whose grace is over, and again those that could not be deleted."""
        for blob, since in list(self._discarded.items()):
            if blob not in self._state.discarded:
                del self._discarded[blob]
            elif blob not in self._deleting and self._state.now >= since + self._grace_us:
                self._begin(blob)

    def _begin(self, blob: str) -> None:
        self._deleting.add(blob)
        self._run(self._forget(blob))

    async def _forget(self, blob: str) -> None:
        if await self._delete(self._blobs.delete, blob):
            self._submit(Discarded(blob), lambda _: self._deleting.discard(blob))
        else:
            self._deleting.discard(blob)

    # -- Uploads --------------------------------------------------------------------------------------------------

    async def sweep_uploads(self) -> None:
        """Delete what no state refers to and none ever will: its deadline is past by the shard's own time."""
        try:
            names = await in_thread(self._threads, self._blobs.names)
        except OSError as error:
            log.error("uploads that were never published cannot be listed; they will be later: %s", error)
            return
        if not names or not await reach(self._barrier):
            return
        now = self._state.now
        late = [name for name in names if (deadline := deadline_of(name)) is not None and deadline + MARGIN_US < now]
        needed = await self._needed() if late else set()
        for name in late:
            if upload_of(name) not in needed:
                log.info("deleting %s, which was never published", name)
                await self._delete(self._blobs.remove, name)

    async def _needed(self) -> set[str]:
        """The uploads of all snapshots, gathered some per turn.

        An upload whose deadline is past is never published later. A stream that has it keeps it, for itself or for its
        forks, until it discards it.
        """
        needed: set[str] = set()
        names = iter(list(self._state.streams))
        while turn := list(islice(names, STREAMS_PER_TURN)):
            for stream in (self._state.streams.get(name) for name in turn):
                if stream is None:
                    continue
                if stream.snapshot is not None:
                    needed.add(upload_of(stream.snapshot.blob))
                if stream.pins:
                    needed.update(upload_of(hold.blob) for hold in stream.pins.values() if hold.blob is not None)
            await asyncio.sleep(0)
        return needed.union(map(upload_of, self._state.discarded))

    # -- Purges ---------------------------------------------------------------------------------------------------

    async def purge(self) -> None:
        """Delete every discarded blob now, even one that is being sent, and wait for uploads that have begun.

        An upload does not say which stream it is for. One of a process that has ended is deleted; of others, the client
        publishes them, which is refused for streams that are gone, or their deadline passes.
        """
        begun_us, discarded = self._state.now, iter(list(self._state.discarded))
        while turn := list(islice(discarded, DELETED_PER_TURN)):
            while left := [blob for blob in turn if blob in self._state.discarded]:
                for blob in left:
                    if blob not in self._deleting:
                        self._begin(blob)
                await asyncio.sleep(PURGE_POLL_SECONDS)
        while await self._is_uploading(begun_us):
            await asyncio.sleep(10 * PURGE_POLL_SECONDS)

    async def _is_uploading(self, begun_us: int) -> bool:
        """Whether an upload that began by then is neither published nor deleted; deletes those that never will be."""
        names = await in_thread(self._threads, self._blobs.names)
        uploads = {
            name: deadline - SNAPSHOT_UPLOAD_US_MAX for name in names if (deadline := deadline_of(name)) is not None
        }
        uploads = {name: begun for name, begun in uploads.items() if begun <= begun_us}
        needed = await self._needed() if uploads else set()
        left = {name: begun for name, begun in uploads.items() if upload_of(name) not in needed}
        for name, begun in left.items():
            abandoned = not self._shared and begun < self._started_us
            if abandoned or begun + SNAPSHOT_UPLOAD_US_MAX + MARGIN_US < self._state.now:
                await self._delete(self._blobs.remove, name)
        return bool(left)

    # -- Deleting -------------------------------------------------------------------------------------------------

    def _run(self, work: Coroutine[Any, Any, object]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _delete(self, delete: Callable[[str], None], name: str) -> bool:
        try:
            await in_thread(self._threads, delete, name)
        except OSError as error:
            log.error("blob %s cannot be deleted and will be tried again: %s", name, error)
            return False
        return True
