"""Which segments to rewrite next: a pure plan over the segments of a lake, for the local chore and for the Spark job.

A *group* consists of all segments whose position ranges overlap: those of one flush, or of flushes that failed
half-way. Only whole neighbouring groups are merged, so a stream's rows in them are one contiguous range of its bytes.
In this order:

    dead      segments without a live row are dropped; nothing is read
    crowded   groups that split a stream into too many extents are merged, whatever their size
    sparse    a segment that is mostly dead is rewritten alone
    overdue   a segment with rows that died long ago is rewritten alone, however few they are
    small     neighbours are merged where none is more than a third of the whole; every merge thus puts a byte into a
              group at least three times as large, so that the same byte is not moved often
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from headwater.protocol.limits import KIB, MIB, STREAMS_PER_SEGMENT_MAX
from headwater.streams.segments import Segment

FAN_IN = 4
"""The fewest groups that are merged. No group may be more than a third of the whole, so it takes at least three."""
REWRITE_BYTES_MAX = 256 * MIB
"""The payload of one rewrite: limited by a few seconds of work and, for a single large stream, by memory."""
SMALL_BYTES = 64 * KIB
"""Smaller groups count as this large: below it the requests cost more than the bytes."""
SOURCES_MAX = 64
"""Segments read side by side in one rewrite; one row group of each is in memory."""
LIVES_MAX = 4 * STREAMS_PER_SEGMENT_MAX
"""The lives in all sources together, counted once for each source. One command swaps them all; applying it takes 3 to 4
microseconds for each distinct life."""
DEAD_AT_ONCE_MAX = 1_000

NOTHING: frozenset[int] = frozenset()


class RewriteLimits(NamedTuple):
    """How large one rewrite may be."""

    bytes_max: int = REWRITE_BYTES_MAX
    small_bytes: int = SMALL_BYTES
    sources_max: int = SOURCES_MAX
    lives_max: int = LIVES_MAX


REWRITE_LIMITS = RewriteLimits()


class Candidate(NamedTuple):
    """A segment of the lake: its number in the state, and how many of its rows are live."""

    number: int
    segment: Segment
    live_rows: int

    @property
    def lives_max(self) -> int:
        """The most lives that it can have rows of."""
        return min(self.segment.rows, STREAMS_PER_SEGMENT_MAX)


class Rewrite(NamedTuple):
    """Segments to replace by the rows of them that are kept."""

    why: str
    candidates: tuple[Candidate, ...]

    @property
    def numbers(self) -> tuple[int, ...]:
        return tuple(candidate.number for candidate in self.candidates)

    @property
    def segments(self) -> tuple[Segment, ...]:
        return tuple(candidate.segment for candidate in self.candidates)

    @property
    def payload_bytes(self) -> int:
        return sum(candidate.segment.payload_bytes for candidate in self.candidates)

    @property
    def is_drop(self) -> bool:
        """Whether no row is kept: the segments need not be read, and all their positions count as dropped."""
        return self.why == "dead"


class Group:
    """Segments whose position ranges overlap."""

    __slots__ = ("bytes", "candidates", "last_position", "lives_max", "weight")

    def __init__(self, candidates: list[Candidate], last_position: int, small_bytes: int) -> None:
        self.candidates = candidates
        self.last_position = last_position
        self.bytes = sum(candidate.segment.payload_bytes for candidate in candidates)
        self.weight = max(self.bytes, small_bytes)
        self.lives_max = sum(candidate.lives_max for candidate in candidates)

    def holds(self, numbers: AbstractSet[int]) -> bool:
        return any(candidate.number in numbers for candidate in self.candidates)


class _Window(NamedTuple):
    """Neighbouring groups."""

    groups: Sequence[Group]
    weight: int


def plan(
    candidates: Iterable[Candidate],
    lowest_consumer: int,
    limits: RewriteLimits = REWRITE_LIMITS,
    crowded: AbstractSet[int] = NOTHING,
    avoid: AbstractSet[int] = NOTHING,
    *,
    overdue: AbstractSet[int] = NOTHING,
) -> Rewrite | None:
    """The most useful rewrite, or None if there is nothing to do.

    `crowded` are the segments with the extents of a stream that has too many; `avoid` are segments to leave alone;
    `overdue` are those whose dead rows must go now.
    """
    known = list(candidates)
    usable = [candidate for candidate in known if candidate.number not in avoid]
    dead = [one for one in usable if not one.live_rows and one.segment.last_position <= lowest_consumer]
    if dead:
        return Rewrite("dead", tuple(sorted(dead)[:DEAD_AT_ONCE_MAX]))
    groups = groups_of(known, limits.small_bytes)
    if len(crowded) > 1 and (window := _crowded(groups, limits, crowded, avoid)):
        return _merge("crowded", window)
    sparse = [one for one in usable if _is_sparse(one, lowest_consumer, limits)]
    if sparse:
        return Rewrite("sparse", (max(sparse, key=lambda one: (one.segment.rows - one.live_rows, -one.number)),))
    late = [one for one in usable if one.number in overdue and _has_dead_rows(one, lowest_consumer, limits)]
    if late:
        return Rewrite("overdue", (min(late),))
    window = _small(groups, limits, avoid)
    return _merge("small", window) if window else None


def groups_of(candidates: Iterable[Candidate], small_bytes: int = SMALL_BYTES) -> list[Group]:
    """Segments grouped by overlapping positions, in order of position."""
    found: list[tuple[list[Candidate], int]] = []
    for candidate in sorted(candidates, key=lambda one: (one.segment.first_position, one.number)):
        first, last = candidate.segment.first_position, candidate.segment.last_position
        if found and first <= found[-1][1]:
            members, reached = found[-1]
            members.append(candidate)
            found[-1] = members, max(reached, last)
        else:
            found.append(([candidate], last))
    return [Group(members, last, small_bytes) for members, last in found]


def _is_sparse(candidate: Candidate, lowest_consumer: int, limits: RewriteLimits) -> bool:
    return 2 * candidate.live_rows < candidate.segment.rows and _has_dead_rows(candidate, lowest_consumer, limits)


def _has_dead_rows(candidate: Candidate, lowest_consumer: int, limits: RewriteLimits) -> bool:
    """Whether a rewrite alone may drop rows of a segment: every consumer has passed it."""
    segment = candidate.segment
    readable = segment.last_position <= lowest_consumer and segment.payload_bytes <= limits.bytes_max
    return readable and candidate.live_rows < segment.rows


def _crowded(
    groups: list[Group], limits: RewriteLimits, crowded: AbstractSet[int], avoid: AbstractSet[int]
) -> _Window | None:
    """The window that saves the crowded stream the most extents; of several, the one with the fewest bytes."""
    best: tuple[tuple[int, int], _Window] | None = None
    for run in _runs(groups, lambda group: not group.holds(avoid)):
        crowds = [group.holds(crowded) for group in run]
        for start, stop, weight in _windows(run, limits):
            # Groups without the stream at either end of a window add bytes and save nothing.
            if stop - start > 1 and crowds[start] and crowds[stop - 1]:
                value = sum(crowds[start:stop]), -weight
                if best is None or value > best[0]:
                    best = value, _Window(run[start:stop], weight)
    return best[1] if best else None


def _small(groups: list[Group], limits: RewriteLimits, avoid: AbstractSet[int]) -> _Window | None:
    """The window that merges the most groups for the bytes moved; of several, the longest."""
    best: tuple[tuple[float, int], _Window] | None = None
    for run in _runs(groups, lambda group: 3 * group.weight <= limits.bytes_max and not group.holds(avoid)):
        largest = 0
        for start, stop, weight in _windows(run, limits):
            count = stop - start
            largest = max(largest, run[stop - 1].weight) if count > 1 else run[start].weight
            if count >= FAN_IN and 3 * largest <= weight:
                value = count / weight, count
                if best is None or value > best[0]:
                    best = value, _Window(run[start:stop], weight)
    return best[1] if best else None


def _runs(groups: list[Group], fits: Callable[[Group], bool]) -> Iterator[list[Group]]:
    """Runs of neighbouring groups that may be merged."""
    run: list[Group] = []
    for group in groups:
        if fits(group):
            run.append(group)
        elif run:
            yield run
            run = []
    if run:
        yield run


def _windows(run: list[Group], limits: RewriteLimits) -> Iterator[tuple[int, int, int]]:
    """Every part of a run within the limits: (start, stop, weight), for each start in order of length."""
    for start in range(len(run)):
        weight = payload = sources = lives = 0
        for stop in range(start + 1, len(run) + 1):
            group = run[stop - 1]
            weight, payload = weight + group.weight, payload + group.bytes
            sources, lives = sources + len(group.candidates), lives + group.lives_max
            if payload > limits.bytes_max or sources > limits.sources_max or lives > limits.lives_max:
                break
            yield start, stop, weight


def _merge(why: str, window: _Window) -> Rewrite:
    return Rewrite(why, tuple(candidate for group in window.groups for candidate in group.candidates))
