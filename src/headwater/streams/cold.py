"""What a shard knows about its lake: live segments, dead rows in them, consumers, and what may be deleted.

A row is *live* while an extent of a life (or of a ghost, for its forks) covers it. A *tombstone* says which rows of a
life must no longer be read under its own name: all rows of a life that ended, the rows before the start of one that was
trimmed. A tombstone stays as long as a segment contains such rows, so that engines that read only files can skip them.
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
    """The dead rows of a life, and which segments contain any."""

    name: str
    below: int
    segments: tuple[int, ...]


class Retired(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A segment that was replaced; its object is deleted once no reader can need it."""

    segment: Segment
    at: int


class Consumer(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """How far a consumer has read the lake, and when it last reported."""

    position: int
    at: int


class Cold:
    """The part of a shard's state that concerns the lake."""

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
        """The incarnations with a tombstone in each segment; derived from the tombstones."""

    def hold(self, segment: Segment, live_rows: int) -> int:
        """Add a segment under a new number."""
        number = self.next_number
        self.next_number += 1
        self.segments[number] = Held(segment, live_rows)
        return number

    def release(self, extents: Iterable[Extent]) -> None:
        """Count these rows as no longer live."""
        for extent in extents:
            held = self.segments[extent.segment]
            self.segments[extent.segment] = Held(held.segment, held.live_rows - extent.rows)

    def hide(self, name: str, incarnation: int, below: int, segments: Iterable[int]) -> None:
        """Mark the rows of a life below an offset as dead, in these segments and those marked before."""
        tombstone = self.tombstones.get(incarnation)
        numbers = dict.fromkeys((*(() if tombstone is None else tombstone.segments), *segments))
        if numbers:
            self.tombstones[incarnation] = Tombstone(name, below, tuple(numbers))
            for number in numbers:
                self.dead_in.setdefault(number, set()).add(incarnation)

    def take_out(self, number: int, now: int) -> None:
        """Retire a segment, and drop every tombstone that only it needed."""
        held = self.segments.pop(number)
        self.retired[held.segment.id] = Retired(held.segment, now)
        for incarnation in sorted(self.dead_in.pop(number, ())):
            tombstone = self.tombstones[incarnation]
            left = tuple(other for other in tombstone.segments if other != number)
            if left:
                self.tombstones[incarnation] = Tombstone(tombstone.name, tombstone.below, left)
            else:
                del self.tombstones[incarnation]

    def lowest_consumer(self, now: int) -> int:
        """The position that every active consumer has reached."""
        positions = (consumer.position for consumer in self.consumers.values() if now - consumer.at < CONSUMER_IDLE_US)
        return min(positions, default=ALL)
