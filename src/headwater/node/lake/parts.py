"""What the chores of one shard's lake have in common."""

from collections import Counter
from typing import NamedTuple

from headwater.lake.damage import LakeDamaged
from headwater.node.committer import Now, Submit
from headwater.node.lake.intervals import LAKE_INTERVALS, LakeIntervals
from headwater.storage.store import KeyExists, KeyMissing, Store, StoreFailed
from headwater.streams.state import State

STORE_TROUBLE = (StoreFailed, KeyExists, KeyMissing, LakeDamaged)
"""What a chore of the lake may run into; anything else is a bug, whose traceback belongs into the log."""


class LakeParts(NamedTuple):
    """The shard that a chore works for, its store, and how it changes the state."""

    shard: int
    state: State
    store: Store
    submit: Submit
    now: Now
    in_use: Counter[str]
    """How many reads use each segment; one that is in use is not deleted."""
    intervals: LakeIntervals = LAKE_INTERVALS

    def now_ms(self) -> int:
        """Return the time of the shard in the unit of Iceberg's snapshots."""
        return self.now() // 1000
