"""The lake of a shard: the reads that need it, and the housekeeping that one node does."""

import asyncio
import logging
from collections.abc import Callable

from headwater.log.seam import CommandLog
from headwater.node.committer import Now, Submit, ask
from headwater.node.lake.compactor import Purged
from headwater.node.lake.flusher import FlushFailed
from headwater.node.lake.housekeeping import ENDED, Counts, Housekeeping
from headwater.node.lake.parts import LakeLimits, LakeParts
from headwater.node.lake.swaps import Swaps
from headwater.node.reads.cold import ColdReads
from headwater.storage.store import Store
from headwater.streams.commands.cluster import AskFlush, AskTables, Cataloged
from headwater.streams.commands.command import ROWS
from headwater.streams.fetched import Fetched
from headwater.streams.queries import Query
from headwater.streams.replies import Done, Reply
from headwater.streams.state import State

ASKED_SECONDS_MAX = 120.0
"""How long a flush may take that another node was asked for."""

log = logging.getLogger(__name__)


class Lake:
    """Cold reads and swaps of one shard, which every node has, and its housekeeping, which one node does."""

    def __init__(
        self,
        shard: int,
        state: State,
        store: Store,
        *,
        answer: Callable[[Query, Fetched], Reply],
        submit: Submit,
        now: Now,
        command_log: CommandLog,
        limits: LakeLimits,
        node: str = "",
    ) -> None:
        self._state, self._submit, self._log, self._limits = state, submit, command_log, limits
        self._node = node
        self.store = store
        retry_seconds = limits.intervals.read_retry_seconds
        self.reads = ColdReads(shard, state, store, answer, barrier=command_log.barrier, retry_seconds=retry_seconds)
        self._parts = LakeParts(shard, state, store, submit, now, self.reads.in_use, command_log, limits)
        self.swaps = Swaps(self._parts)
        self.housekeeping: Housekeeping | None = None
        self._counted = Counts()
        self._asked: asyncio.Task[None] | None = None
        self._cataloged: list[tuple[int, asyncio.Future[None]]] = []
        """Requests for a flush by another node: the position that each waits for."""

    # -- Housekeeping -------------------------------------------------------------------------------------------------

    def begin_housekeeping(self, epoch: int | None = None) -> None:
        """Do the chores from now on; on a shared log, since the position at which this node took them over."""
        self.housekeeping = Housekeeping(self._parts, epoch)
        self.housekeeping.start()

    async def end_housekeeping(self) -> None:
        """Stop the chores; another node may do them now."""
        housekeeping, self.housekeeping = self.housekeeping, None
        if housekeeping is not None:
            if self._asked is not None:
                self._asked.cancel()
                await asyncio.gather(self._asked, return_exceptions=True)
            await housekeeping.stop()
            self._counted = self._counted.plus(housekeeping.counts)

    @property
    def counts(self) -> Counts:
        """What this process has done for the lake."""
        return self._counted if self.housekeeping is None else self._counted.plus(self.housekeeping.counts)

    @property
    def unflushed_seconds(self) -> int:
        """For how long something has been waiting to be flushed; 0 if nothing is, or if another node sees to it."""
        return 0 if self.housekeeping is None else self.housekeeping.flusher.unflushed_seconds

    async def flush_before_stop(self) -> None:
        """Flush once more, if that is wanted and this node does the chores."""
        if self._limits.flush_at_stop and self.housekeeping is not None:
            await asyncio.gather(self.flush(), return_exceptions=True)

    async def stop(self) -> None:
        await self.swaps.stop()
        await self.reads.stop()

    def after_batch(self) -> None:
        if self.housekeeping is not None:
            self.housekeeping.flusher.after_batch()
        if self._log.shared:
            self._look_at_requests()

    async def purge(self, purged: Purged) -> None:
        """Remove every byte of these lives from the store, read by consumers or not; only while doing the chores."""
        if self.housekeeping is None:
            raise FlushFailed(ENDED)
        await self.housekeeping.purger.purge(purged)

    # -- Flushes on request -------------------------------------------------------------------------------------------

    async def flush(self, all_tables: bool = False) -> int:
        """Wait until everything applied so far is in the lake and in a catalog; the position up to which it is.

        Optionally also in the tables that are otherwise written at intervals.
        """
        if self.housekeeping is not None:
            return await self.housekeeping.flush(all_tables)
        cluster = self._state.cluster
        # The workers of one server are no members: all of them have the same version.
        if all_tables and cluster.members and cluster.level < ROWS[AskTables].level:
            raise FlushFailed("a node of an older version may do the chores")
        reply = await ask(self._submit, AskTables(self._node) if all_tables else AskFlush(self._node))
        if not isinstance(reply, Done):
            raise FlushFailed(f"no node could be asked for a flush: {reply}")
        asked = self._state.cluster.flush_asked
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._cataloged.append((asked, waiting))
        try:
            await asyncio.wait_for(waiting, ASKED_SECONDS_MAX)
        except TimeoutError:
            raise FlushFailed("the node that does the chores did not flush in time") from None
        finally:
            self._cataloged.remove((asked, waiting))
        return self._state.cluster.cataloged

    def _look_at_requests(self) -> None:
        """Flush what another node asked for, if this one does the chores; answer what was asked for here."""
        cluster, housekeeping = self._state.cluster, self.housekeeping
        if cluster.flush_asked > cluster.cataloged and housekeeping is not None and self._asked is None:
            self._asked = asyncio.get_running_loop().create_task(self._flush_as_asked(housekeeping))
            self._asked.add_done_callback(self._flushed_as_asked)
        for asked, waiting in self._cataloged:
            if cluster.cataloged >= asked and not waiting.done():
                waiting.set_result(None)

    async def _flush_as_asked(self, housekeeping: Housekeeping) -> None:
        assert housekeeping.epoch is not None, "only on a shared log does a node ask another"
        while self._state.cluster.flush_asked > self._state.cluster.cataloged:
            all_tables = self._tables_are_due
            try:
                position = await housekeeping.flush(all_tables)
            except FlushFailed:
                await asyncio.sleep(self._limits.intervals.flush_retry_seconds)
                continue
            if self._tables_are_due and not all_tables:
                continue  # They were asked for meanwhile, perhaps before the position that has been reached.
            reply = await ask(self._submit, Cataloged(position, housekeeping.epoch))
            if not isinstance(reply, Done):
                return

    @property
    def _tables_are_due(self) -> bool:
        return self._state.cluster.tables_asked > self._state.cluster.cataloged

    def _flushed_as_asked(self, task: "asyncio.Task[None]") -> None:
        self._asked = None
        if not task.cancelled() and task.exception() is not None:
            log.error("a flush that another node asked for failed", exc_info=task.exception())
