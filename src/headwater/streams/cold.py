"""What a shard knows of its lake: live segments, what is dead in them, who reads them, and what may be deleted.

A row is *live* while an extent of a life (also of a ghost, for its forks) covers it. A *tombstone* says which rows of a
life must not be read under its own name any more: all of a life that ended, those before its start of one that was
trimmed. A tombstone stays as long as a segment holds such rows, so that a reader of the files alone can leave them out.
"""

from collections.abc import Iterable

import msgspec

from headwater.protocol.limits import CONSUMER_IDLE_US
from headwater.streams.segments import Extent, Segment

ALL = 2**63 - 1
"""Above every offset and every position."""


class Held(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A segment that catalogs list."""

    segment: Segment
    live_rows: int


class Tombstone(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Rows of a life that are dead, and in which segments there are any."""

    name: str
    below: int
    segments: tuple[int, ...]


class Retired(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A segment that was replaced: its object goes when nobody can be reading it any more."""

    segment: Segment
    at: int


class Consumer(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """How far somebody has read the lake, and when they said so."""

    position: int
    at: int


class Cold:
    """The part of a shard's state that is about the lake."""

    __slots__ = (
        "changed_at",
        "consumers",
        "dead_in",
        "dropped",
        "flushed",
        "next_number",
        "retired",
        "segments",
        "tombstones",
    )

    def __init__(self) -> None:
        self.flushed = 0
        """Every live row up to this position is in the lake."""
        self.dropped = 0
        """The highest position of a row that was ever dropped from the lake."""
        self.changed_at = 0
        """The position of the last command that changed what a catalog says."""
        self.next_number = 1
        self.segments: dict[int, Held] = {}
        self.tombstones: dict[int, Tombstone] = {}
        self.retired: dict[str, Retired] = {}
        self.consumers: dict[str, Consumer] = {}
        self.dead_in: dict[int, set[int]] = {}
        """The incarnations with a tombstone in each segment; follows from the tombstones."""

    def hold(self, segment: Segment, live_rows: int) -> int:
        """Enter a segment under a number of its own."""
        number = self.next_number
        self.next_number += 1
        self.segments[number] = Held(segment, live_rows)
        return number

    def release(self, extents: Iterable[Extent]) -> None:
        """These rows are no longer needed by anybody here."""
        for extent in extents:
            held = self.segments[extent.segment]
            self.segments[extent.segment] = Held(held.segment, held.live_rows - extent.rows)

    def hide(self, name: str, incarnation: int, below: int, segments: Iterable[int]) -> None:
        """Rows of this life below an offset are dead, in these segments and where they were dead before."""
        tombstone = self.tombstones.get(incarnation)
        numbers = dict.fromkeys((*(() if tombstone is None else tombstone.segments), *segments))
        if numbers:
            self.tombstones[incarnation] = Tombstone(name, below, tuple(numbers))
            for number in numbers:
                self.dead_in.setdefault(number, set()).add(incarnation)

    def take_out(self, number: int, now: int) -> None:
        """Retire a segment, and every tombstone that only it needed."""
        held = self.segments.pop(number)
        self.retired[held.segment.id] = Retired(held.segment, now)
        for incarnation in sorted(self.dead_in.pop(number, ())):
            tombstone = self.tombstones[incarnation]
            left = tuple(other for other in tombstone.segments if other != number)
            if left:
                self.tombstones[incarnation] = Tombstone(tombstone.name, tombstone.below, left)
            else:
                del self.tombstones[incarnation]

    def lowest_reader(self, now: int) -> int:
        """The position that every registered reader has reached."""
        positions = (consumer.position for consumer in self.consumers.values() if now - consumer.at < CONSUMER_IDLE_US)
        return min(positions, default=ALL)
