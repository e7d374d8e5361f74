"""One rewrite, as a task on an executor: merge, store, swap.

A task that dies or is refused leaves at most objects that nothing refers to; the server sweeps them after their
deadline. Objects of a requested swap are never deleted here: the swap may have happened even if the answer was lost.
"""

import secrets
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from headwater.lake.compaction.planning import Rewrite
from headwater.lake.compaction.rewriting import Cuts, Keep, rewrite
from headwater.lake.format import new_segment_id, segment_key
from headwater.lake.segments.reader import Read, SegmentDamaged
from headwater.lake.segments.writer import Written
from headwater.protocol.limits import MINUTE_US
from headwater.spark.failures import LinkFailed, LinkRefused
from headwater.storage.store import KeyExists, KeyMissing, Store, StoreFailed
from headwater.streams.segments import Segment

DEADLINE_US = 30 * MINUTE_US
"""Time from the start of a rewrite to its swap, with a margin for clock skew between two machines."""
CONFLICT = 409

Swap = Callable[[Sequence[int], Sequence[str], int, int], None]
"""Takes the numbers of the old segments, the keys of the new ones, the highest dropped position, the deadline."""


class Outcome(NamedTuple):
    """The outcome of a rewrite.

    `swapped`; `refused`: the segments have changed; `dense`: there was nothing to drop; `failed`: `detail` says why.
    """

    what: str
    rewrite: Rewrite
    keys: tuple[str, ...] = ()
    rows_dropped: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    detail: str = ""


def carry_out(planned: Rewrite, store: Store, keep: Keep, cuts: Cuts, swap: Swap) -> Outcome:
    """Do a rewrite. A failure is an outcome and not an exception, since other rewrites are not affected."""
    task = _Task(planned, store, keep, cuts)
    try:
        return task.run(swap)
    except LinkRefused as refused:
        return task.outcome("refused" if refused.status == CONFLICT else "failed", str(refused))
    except KeyMissing as missing:
        # Only segments that have been replaced are deleted.
        return task.outcome("refused", str(missing))
    except (SegmentDamaged, StoreFailed, KeyExists, LinkFailed) as error:
        return task.outcome("failed", str(error))


class _Task:
    """A rewrite in progress."""

    def __init__(self, planned: Rewrite, store: Store, keep: Keep, cuts: Cuts) -> None:
        self._planned, self._store, self._keep, self._cuts = planned, store, keep, cuts
        self._deadline = time.time_ns() // 1000 + DEADLINE_US
        self._keys: list[str] = []
        self._rows_dropped = self._bytes_read = self._bytes_written = 0

    def run(self, swap: Swap) -> Outcome:
        planned = self._planned
        dropped = self._drop() if planned.is_drop else self._merge()
        if planned.why == "sparse" and not self._rows_dropped:
            for key in self._keys:
                self._store.delete(key)
            self._keys.clear()
            return self.outcome("dense")
        swap(planned.numbers, self._keys, dropped, self._deadline)
        return self.outcome("swapped")

    def outcome(self, what: str, detail: str = "") -> Outcome:
        sizes = self._rows_dropped, self._bytes_read, self._bytes_written
        return Outcome(what, self._planned, tuple(self._keys), *sizes, detail)

    def _drop(self) -> int:
        """Drop all rows without reading them; return their highest position."""
        self._rows_dropped = sum(segment.rows for segment in self._planned.segments)
        return max(segment.last_position for segment in self._planned.segments)

    def _merge(self) -> int:
        """Write the new segments; return the highest position of the dropped rows."""
        rewritten = rewrite(
            self._read_of,
            self._planned.segments,
            self._keep,
            self._cuts,
            new_id=lambda: new_segment_id(self._deadline, secrets.token_hex(6)),
            put=self._put,
        )
        self._rows_dropped = rewritten.rows_dropped
        return rewritten.dropped

    def _put(self, written: Written) -> None:
        key = _key(written.segment)
        self._keys.append(key)
        self._store.create(key, written.data)
        if not self._is_stored(key, written.data):
            raise StoreFailed(f"The store does not return the bytes that were stored under {key}.")
        self._bytes_written += len(written.data)

    def _is_stored(self, key: str, data: bytes) -> bool:
        """Read the new object back: the old ones will be deleted."""
        try:
            return self._store.read(key) == data
        except KeyMissing:
            return False

    def _read_of(self, segment: Segment) -> Read:
        return partial(self._read, _key(segment))

    def _read(self, key: str, start: int, size: int) -> bytes:
        self._bytes_read += size
        return self._store.read(key, start, size)


def _key(segment: Segment) -> str:
    return segment_key(0, segment.first_position, segment.last_position, segment.id)
