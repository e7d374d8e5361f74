"""What the chores of one shard's lake have in common."""

from collections import Counter
from typing import NamedTuple

from headwater.node.committer import Now, Submit
from headwater.node.lake.intervals import LAKE_INTERVALS, LakeIntervals
from headwater.storage.store import Store
from headwater.streams.state import State


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
