"""One rewrite, as a task on an executor: merge, store, hand in.

Whoever dies in between, or is refused, leaves at most objects that no state names; the server sweeps them up when their
deadline has passed. What was handed in is never deleted here: an answer may be lost, and the swap done all the same.
"""

import secrets
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from headwater.lake.compaction.planning import Rewrite
from headwater.lake.compaction.rewriting import Cuts, Keep, rewrite
from headwater.lake.format import new_segment_id, segment_key
from headwater.lake.reader import Read, SegmentDamaged
from headwater.lake.writer import Written
from headwater.protocol.limits import MINUTE_US
from headwater.spark.link import LinkFailed, LinkRefused
from headwater.storage.store import KeyExists, KeyMissing, Store, StoreFailed
from headwater.streams.segments import Segment

DEADLINE_US = 30 * MINUTE_US
"""How long after its beginning a rewrite may be handed in, with what the clocks of two machines differ by."""
REFUSED = 409

HandIn = Callable[[Sequence[int], Sequence[str], int, int], None]
"""Numbers of the old segments, keys of the new ones, highest position of a dropped row, deadline."""


class Outcome(NamedTuple):
    """What became of a rewrite.

    `refused`: something else came first. `dense`: there was nothing to drop after all. `failed`: `detail` says why.
    """

    what: str
    rewrite: Rewrite
    keys: tuple[str, ...] = ()
    rows_dropped: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    detail: str = ""


def carry_out(planned: Rewrite, store: Store, keep: Keep, cuts: Cuts, hand_in: HandIn) -> Outcome:
    """Do a rewrite; what can go wrong with one is an outcome, for the others are as good as before."""
    task = _Task(planned, store, keep, cuts)
    try:
        return task.run(hand_in)
    except LinkRefused as refused:
        return task.outcome("refused" if refused.status == REFUSED else "failed", str(refused))
    except KeyMissing as missing:
        # Only what was replaced is deleted.
        return task.outcome("refused", str(missing))
    except (SegmentDamaged, StoreFailed, KeyExists, LinkFailed) as error:
        return task.outcome("failed", str(error))


class _Task:
    """A rewrite under way."""

    def __init__(self, planned: Rewrite, store: Store, keep: Keep, cuts: Cuts) -> None:
        self._planned, self._store, self._keep, self._cuts = planned, store, keep, cuts
        self._deadline = time.time_ns() // 1000 + DEADLINE_US
        self._keys: list[str] = []
        self._rows_dropped = self._bytes_read = self._bytes_written = 0

    def run(self, hand_in: HandIn) -> Outcome:
        planned = self._planned
        dropped = self._drop() if planned.is_drop else self._merge()
        if planned.why == "sparse" and not self._rows_dropped:
            for key in self._keys:
                self._store.delete(key)
            self._keys.clear()
            return self.outcome("dense")
        hand_in(planned.numbers, self._keys, dropped, self._deadline)
        return self.outcome("swapped")

    def outcome(self, what: str, detail: str = "") -> Outcome:
        sizes = self._rows_dropped, self._bytes_read, self._bytes_written
        return Outcome(what, self._planned, tuple(self._keys), *sizes, detail)

    def _drop(self) -> int:
        """Nothing is read: all that the old segments have goes."""
        self._rows_dropped = sum(segment.rows for segment in self._planned.segments)
        return max(segment.last_position for segment in self._planned.segments)

    def _merge(self) -> int:
        """Write the new segments; the highest position of a row that is in none of them."""
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
        if not self._is_there(key, written.data):
            raise StoreFailed(f"The store does not return what was stored under {key}.")
        self._bytes_written += len(written.data)

    def _is_there(self, key: str, data: bytes) -> bool:
        """What is about to be deleted elsewhere must really be here."""
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
