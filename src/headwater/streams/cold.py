"""What a shard knows about its lake: live segments, dead rows in them, consumers, and what may be deleted.

A row is *live* while an extent of a life (or of a ghost, for its forks) covers it. A *tombstone* says which rows of a
life must no longer be read under its own name: all rows of a life that ended, the rows before the start of one that was
trimmed. A tombstone stays as long as a segment contains such rows, so that engines that read only files can skip them.
"""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from headwater.protocol.limits import CONSUMER_IDLE_US
from headwater.streams.commands.purges import Purge
from headwater.streams.parted import Parted
from headwater.streams.segments import DeadRows, Extent, Segment

ALL = 2**63 - 1
"""Above every offset and every position."""


class Held(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A segment that catalogs list."""

    segment: Segment
    live_rows: int


class Tombstone(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The dead rows of a life: those below an offset, and where they are; each segment occurs once."""

    name: str
    below: int
    dead: tuple[DeadRows, ...]


class Retired(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A segment that was replaced at a position; its object is deleted once no reader can need it."""

    segment: Segment
    position: int


class Consumer(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """How far a consumer has read the lake, when it last reported, and how long it may be silent."""

    position: int
    at: int
    life_us: int = CONSUMER_IDLE_US
    is_lease: bool = False
    """Whether it keeps the objects that the lake had at its position, not the rows above it."""

    def has_lapsed(self, now: int) -> bool:
        return now - self.at >= self.life_us


class ConsumerWatch(NamedTuple):
    """The consumers for which rows are kept: how many, how far the slowest is behind, and the longest silence."""

    active: int
    lag: int
    """In positions of the log, up to the last row in the lake."""
    silent_us: int


class Unlisted:
    """What has changed since it was last taken from here: what the next catalog has to list anew, or no longer."""

    __slots__ = ("forks", "segments", "tombstones")

    def __init__(self) -> None:
        self.segments: dict[int, None] = {}
        self.tombstones: dict[int, None] = {}
        """Incarnations."""
        self.forks: dict[int, str] = {}
        """Names by incarnation."""

    def __len__(self) -> int:
        return len(self.segments) + len(self.tombstones) + len(self.forks)


class Cold:
    """The part of a shard's state that concerns the lake."""

    __slots__ = (
        "bytes",
        "changed_at",
        "consumers",
        "dead_in",
        "dropped",
        "flushed",
        "ids",
        "last_row",
        "live_rows",
        "next_number",
        "purges",
        "retired",
        "rows",
        "segments",
        "tombstones",
        "unlisted",
        "withdrawn",
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
        """Changed by `keep`, `release` and `take_out` only."""
        self.tombstones: Parted[Tombstone] = Parted()
        self.retired: dict[str, Retired] = {}
        self.consumers: dict[str, Consumer] = {}
        self.purges: dict[str, Purge] = {}
        """By id, in the order in which they were asked for."""
        self.withdrawn: dict[str, int] = {}
        """Objects that can no longer be published: until when that would be, by id."""
        self.dead_in: dict[int, set[int]] = {}
        """The incarnations with a tombstone in each segment; derived from the tombstones."""
        self.ids: set[str] = set()
        """The ids of the segments; derived from them, like the three sums."""
        self.rows = self.live_rows = self.bytes = 0
        self.last_row = 0
        """The highest position of a row that was seen in a segment; derived from them, for measuring only."""
        self.unlisted: Unlisted | None = None
        """None unless catalogs are written: only then are changes recorded."""

    def record_unlisted(self, forks: dict[int, str]) -> Unlisted:
        """Record from now on what a catalog has to list; to begin with, everything."""
        self.unlisted = Unlisted()
        self.unlisted.segments = dict.fromkeys(self.segments)
        self.unlisted.tombstones = dict.fromkeys(self.tombstones)
        self.unlisted.forks = forks
        return self.unlisted

    def hold(self, segment: Segment, live_rows: int) -> int:
        """Add a segment under a new number."""
        number = self.next_number
        self.next_number += 1
        self.keep(number, Held(segment, live_rows))
        return number

    def keep(self, number: int, held: Held) -> None:
        """Record a segment under its number, be it new or changed."""
        self._discount(number)
        self.segments[number] = held
        self.ids.add(held.segment.id)
        self.last_row = max(self.last_row, held.segment.last_position)
        self._count(held, 1)
        if self.unlisted is not None:
            self.unlisted.segments[number] = None

    def _discount(self, number: int) -> None:
        before = self.segments.get(number)
        if before is not None:
            self.ids.discard(before.segment.id)
            self._count(before, -1)

    def _count(self, held: Held, sign: int) -> None:
        self.rows += sign * held.segment.rows
        self.live_rows += sign * held.live_rows
        self.bytes += sign * held.segment.size

    def names(self, segment_id: str) -> bool:
        """Whether a segment of this id is live or retired."""
        return segment_id in self.ids or segment_id in self.retired

    def release(self, extents: Iterable[Extent]) -> None:
        """Count these rows as no longer live."""
        for extent in extents:
            held = self.segments[extent.segment]
            self.segments[extent.segment] = Held(held.segment, held.live_rows - extent.rows)
            self.live_rows -= extent.rows
            if self.unlisted is not None:
                self.unlisted.segments[extent.segment] = None

    def hide(self, name: str, incarnation: int, below: int, dead: Iterable[DeadRows]) -> None:
        """Mark the rows of a life below an offset as dead: these, and those marked before."""
        tombstone = self.tombstones.get(incarnation)
        marked = () if tombstone is None else tombstone.dead
        added = []
        for rows in dead:
            lives = self.dead_in.setdefault(rows.segment, set())
            if incarnation not in lives:
                lives.add(incarnation)
                added.append(rows)
            else:
                marked = _grown(marked, rows)
        if marked or added:
            self._mark(incarnation, Tombstone(name, below, (*marked, *added)))

    def _mark(self, incarnation: int, tombstone: Tombstone | None) -> None:
        if tombstone is None:
            del self.tombstones[incarnation]
        else:
            self.tombstones[incarnation] = tombstone
        if self.unlisted is not None:
            self.unlisted.tombstones[incarnation] = None

    def list_fork(self, incarnation: int, name: str, position: int) -> None:
        """Have the next catalog list a fork as it is after the command at this position."""
        self.changed_at = position
        if self.unlisted is not None:
            self.unlisted.forks[incarnation] = name

    def take_out(self, number: int, position: int) -> None:
        """Retire a segment at a position, and drop every tombstone that only it needed."""
        self._discount(number)
        held = self.segments.pop(number)
        if self.unlisted is not None:
            self.unlisted.segments[number] = None
        self.retired[held.segment.id] = Retired(held.segment, position)
        for incarnation in sorted(self.dead_in.pop(number, ())):
            tombstone = self.tombstones[incarnation]
            left = tuple(rows for rows in tombstone.dead if rows.segment != number)
            self._mark(incarnation, Tombstone(tombstone.name, tombstone.below, left) if left else None)

    def lowest_consumer(self, now: int) -> int:
        """The position that every active consumer has reached."""
        return min(self._positions(now, is_lease=False), default=ALL)

    def watch(self, now: int) -> "ConsumerWatch":
        """How the active consumers are doing; as many are looked at as may be registered."""
        active = [one for one in self.consumers.values() if not one.is_lease and not one.has_lapsed(now)]
        lag = max((self.last_row - one.position for one in active), default=0)
        silent_us = max((now - one.at for one in active), default=0)
        return ConsumerWatch(len(active), max(lag, 0), max(silent_us, 0))

    def leased(self, now: int) -> set[int]:
        """The positions at which the leases in force began."""
        return self._positions(now, is_lease=True)

    def _positions(self, now: int, *, is_lease: bool) -> set[int]:
        alike = (one for one in self.consumers.values() if one.is_lease == is_lease and not one.has_lapsed(now))
        return {one.position for one in alike}


def _grown(marked: tuple[DeadRows, ...], rows: DeadRows) -> tuple[DeadRows, ...]:
    """Dead rows of a life with more in one of their segments, which is usually among the last."""
    at = next(at for at in range(len(marked) - 1, -1, -1) if marked[at].segment == rows.segment)
    joined = marked[at].joined(rows)
    return marked if joined == marked[at] else (*marked[:at], joined, *marked[at + 1 :])
