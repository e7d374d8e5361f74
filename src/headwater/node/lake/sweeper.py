"""The lake's sweeper: deletes segments that no snapshot of its tables lists, and orphans that no state ever named.

It works behind a barrier and by the shard's own time. A node that is cut off from the log, but not from the store, must
not delete what others have published or kept meanwhile, however late its clock says it is.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

from headwater.lake.format import deadline_us_of, parse_segment_key, segment_key
from headwater.log.seam import reach
from headwater.node.committer import ask
from headwater.node.lake.parts import STORE_TROUBLE, LakeParts
from headwater.node.periodic import Periodic
from headwater.node.threads import in_thread
from headwater.protocol.limits import SECOND_US
from headwater.streams.commands.lake import ForgetSegments
from headwater.streams.segments import Segment

FORGET_AT_ONCE_MAX = 1_000
READERS_SECONDS = 10.0
"""How long a purge waits for reads of this process to end, before it deletes what they read."""
SEGMENTS_PER_TURN = 1_000
"""How many segments are looked at before the loop gets a turn."""

log = logging.getLogger(__name__)


class LakeSweeper:
    """Deletes an object first and forgets it by a command after, so a crash in between only repeats the deletion."""

    def __init__(self, parts: LakeParts, needs: Callable[[Segment, int], bool]) -> None:
        self._shard, self._state, self._store, self._submit, _, self._in_use = parts[:6]
        self._barrier, intervals = parts.command_log.barrier, parts.limits.intervals
        self._needs, self._grace_us = needs, int(parts.limits.grace_seconds * SECOND_US)
        self._thread = ThreadPoolExecutor(1, "lake-sweep")
        self._periodic = [
            Periodic(work, seconds, "the lake cannot be swept and will be tried again", expected=STORE_TROUBLE)
            for work, seconds in (
                (self.sweep_retired, intervals.sweep_check_seconds),
                (self.sweep_orphans, intervals.orphans_check_seconds),
            )
        ]
        self.deleted = 0

    def start(self) -> None:
        for periodic in self._periodic:
            periodic.start()

    async def stop(self) -> None:
        for periodic in self._periodic:
            await periodic.stop()
        self._thread.shutdown()

    async def sweep_retired(self) -> None:
        """Delete replaced segments that no reader needs, neither in this process nor by a snapshot."""
        due = await self._due()
        if due:
            await self._forget(due)

    async def _due(self) -> list[Segment]:
        """As many as may be deleted at once; they are looked for some per turn, in the order in which they retired."""
        if not self._state.cold.retired or not await reach(self._barrier):
            return []
        lowest = self._state.cold.lowest_consumer(self._state.now)
        retired = iter(list(self._state.cold.retired.values()))
        due: list[Segment] = []
        while turn := list(islice(retired, SEGMENTS_PER_TURN)):
            for segment, position in ((one.segment, one.position) for one in turn):
                if len(due) == FORGET_AT_ONCE_MAX:
                    return due
                is_read = segment.last_position > lowest or self._in_use[segment.id]
                if not is_read and not self._needs(segment, position):
                    due.append(segment)
            await asyncio.sleep(0)
        return due

    async def sweep_all(self, position: int) -> None:
        """Delete every segment replaced up to a position, even one that others need; reads here may finish."""
        until = time.monotonic() + READERS_SECONDS
        retired = self._state.cold.retired
        while due := [one.segment for one in islice(retired.values(), FORGET_AT_ONCE_MAX) if one.position <= position]:
            while any(self._in_use[segment.id] for segment in due) and time.monotonic() < until:
                await asyncio.sleep(0.01)
            await self._forget(due)

    async def _forget(self, due: list[Segment]) -> None:
        for segment in due:
            await self._delete(segment_key(self._shard, segment.first_position, segment.last_position, segment.id))
        await ask(self._submit, ForgetSegments(tuple(segment.id for segment in due)))

    async def sweep_orphans(self) -> None:
        """Delete segments that no state names and that can no longer be published: their deadline is long past."""
        items = self._store.items(f"segments/shard={self._shard}/")
        while page := await in_thread(self._thread, lambda: list(islice(items, SEGMENTS_PER_TURN))):
            if not await reach(self._barrier):
                return
            for item in page:
                parsed = parse_segment_key(item.key)
                if parsed is None or self._state.cold.names(parsed.id):
                    continue
                if deadline_us_of(parsed.id) + self._grace_us < self._state.now:
                    log.info("deleting %s, which was never published", item.key)
                    await self._delete(item.key)

    async def _delete(self, key: str) -> None:
        await in_thread(self._thread, self._store.delete, key)
        self.deleted += 1
