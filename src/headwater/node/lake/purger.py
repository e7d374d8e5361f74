"""The lake's purger: removes every byte of some dead lives from the lake's store now, read by consumers or not.

    settle     wait for a flush that has taken rows of them from memory
    rewrite    every segment that tombstones say has rows of them; consumers that have not read these are removed
    history    drop all earlier snapshots of all tables, and the leases that kept them
    sweep      delete all segments that were replaced
    withdraw   objects with such rows that were never published, so that they can be deleted at once, and the parts of
               objects that processes which were killed have left behind

Every step can be repeated; after a crash all of them are.
"""

import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice

from headwater.lake.format import deadline_us_of, parse_segment_key
from headwater.lake.segments.reader import SegmentDamaged
from headwater.lake.verify.inspecting import inspect
from headwater.node.committer import ask
from headwater.node.lake.cataloger import Cataloger
from headwater.node.lake.compactor import Compactor, Purged
from headwater.node.lake.flusher import Flusher
from headwater.node.lake.lister import Lister
from headwater.node.lake.parts import LakeParts
from headwater.node.lake.sweeper import SEGMENTS_PER_TURN, LakeSweeper
from headwater.node.threads import in_thread
from headwater.storage.store import Item, KeyMissing
from headwater.streams.cold import Tombstone
from headwater.streams.commands.consumers import DropConsumer
from headwater.streams.commands.purges import WithdrawSegments

log = logging.getLogger(__name__)


class LakePurger:
    """Does the lake's part of a purge, with the help of the other chores."""

    def __init__(
        self,
        parts: LakeParts,
        *,
        flusher: Flusher,
        compactor: Compactor,
        cataloger: Cataloger,
        lister: Lister,
        sweeper: LakeSweeper,
    ) -> None:
        self._parts, self._state, self._store = parts, parts.state, parts.store
        self._flusher, self._compactor, self._cataloger, self._sweeper = flusher, compactor, cataloger, sweeper
        self._lister = lister
        self._thread = ThreadPoolExecutor(1, "lake-purge")

    async def stop(self) -> None:
        self._thread.shutdown(cancel_futures=True)

    async def purge(self, purged: Purged) -> None:
        """Return when no object of the store has a byte of these lives, all of which have ended."""
        while True:
            await self._flusher.settle()
            while numbers := await self._holders(purged):
                for number in numbers:
                    await self._compactor.purge(number, purged)
            await self._drop_leases()
            await self._lister.forget_history()
            await self._sweeper.sweep_all(await self._cataloger.forget_history())
            await in_thread(self._thread, self._store.remove_leftovers)
            if await self._withdraw(purged):
                return

    async def _holders(self, purged: Purged) -> list[int]:
        """The segments with rows of these lives, in the order of their numbers."""
        frozen = self._state.cold.tombstones.freeze()
        return await in_thread(self._thread, _holders, frozen, purged)

    async def _drop_leases(self) -> None:
        for name, consumer in list(self._state.cold.consumers.items()):
            if consumer.is_lease:
                log.warning("the lease %s ends, because a purge drops the snapshots that it kept", name)
                await ask(self._parts.submit, DropConsumer(name))

    # -- Objects that were never published ----------------------------------------------------------------------------

    async def _withdraw(self, purged: Purged) -> bool:
        """Delete objects that no state names and that have such rows; False if one of them was published meanwhile."""
        items = self._store.items(f"segments/shard={self._parts.shard}/")
        settled = True
        while page := await in_thread(self._thread, lambda: list(islice(items, SEGMENTS_PER_TURN))):
            unnamed = [
                (item, key.id)
                for item in page
                if (key := parse_segment_key(item.key)) is not None and not self._state.cold.names(key.id)
            ]
            holders = [one for one in unnamed if await in_thread(self._thread, self._holds, one[0], purged)]
            if holders:
                deadlines = {segment_id: deadline_us_of(segment_id) for _, segment_id in holders}
                await ask(self._parts.submit, WithdrawSegments(deadlines))
            for item, segment_id in holders:
                if self._state.cold.names(segment_id):
                    settled = False
                else:
                    log.info("deleting %s, which was never published", item.key)
                    await in_thread(self._thread, self._store.delete, item.key)
        return settled

    def _holds(self, item: Item, purged: Purged) -> bool:
        """Whether an object has rows of these lives, or is damaged, so that it may have some."""
        key = parse_segment_key(item.key)
        assert key is not None
        try:
            found = inspect(partial(self._store.read, item.key), item.size, key)
        except KeyMissing:
            return False
        except SegmentDamaged:
            return True
        return any(purged(rows.name, rows.incarnation) for rows in found.rows)


def _holders(tombstones: Iterator[tuple[int, Tombstone]], purged: Purged) -> list[int]:
    return sorted(
        {
            dead.segment
            for incarnation, tombstone in tombstones
            if purged(tombstone.name, incarnation)
            for dead in tombstone.dead
        }
    )
