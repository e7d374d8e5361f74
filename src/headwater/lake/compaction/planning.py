"""Which segments to rewrite next: a pure plan over what the lake holds, for the local chore and for the Spark job.

A *group* is all segments whose position ranges overlap: those of one flush, and those of flushes that failed half-way.
Segments are merged by whole groups that are neighbours, so what a stream has in them is one stretch of its bytes. In
this order:

    dead      segments without a live row go; nothing is read
    crowded   groups that cut a stream into too many extents are merged, however large they are
    sparse    a segment that is mostly dead is rewritten alone
    small     neighbours are merged where none is more than a third of the whole: so whatever is rewritten comes to lie
              in a group at least three times as large, and the same byte is not moved often
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from headwater.protocol.limits import KIB, MIB, STREAMS_PER_SEGMENT_MAX
from headwater.streams.segments import Segment

FAN_IN = 4
"""Fewer groups than this are not merged; one is never more than a third of the whole, so it takes three at least."""
REWRITE_BYTES_MAX = 256 * MIB
"""Payload of one rewrite: what a few seconds of work and, for a single large stream, memory allow."""
SMALL_BYTES = 64 * KIB
"""What a smaller group counts as: below this the requests cost, not the bytes."""
SOURCES_MAX = 64
"""Segments read side by side in one rewrite; of each a row group is in memory."""
LIVES_MAX = 4 * STREAMS_PER_SEGMENT_MAX
"""Lives that the sources may have rows of, each counted anew: a swap names them all and is applied in one go, at 3 to 4
microseconds for each that is left when those of one name have been put together."""
DEAD_AT_ONCE_MAX = 1_000

NOTHING: frozenset[int] = frozenset()


class RewriteLimits(NamedTuple):
    """How much one rewrite may take on."""

    bytes_max: int = REWRITE_BYTES_MAX
    small_bytes: int = SMALL_BYTES
    sources_max: int = SOURCES_MAX
    lives_max: int = LIVES_MAX


REWRITE_LIMITS = RewriteLimits()


class Candidate(NamedTuple):
    """A segment of the lake, by its number in the state, and how many of its rows are live."""

    number: int
    segment: Segment
    live_rows: int

    @property
    def lives_max(self) -> int:
        """How many lives it can have rows of."""
        return min(self.segment.rows, STREAMS_PER_SEGMENT_MAX)


class Rewrite(NamedTuple):
    """Segments to replace by what is to be kept of them."""

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
        """Whether nothing is to be kept: the segments need not be read, and all their positions count as dropped."""
        return self.why == "dead"


class Group:
    """Segments that overlap in positions."""

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
    lowest_reader: int,
    limits: RewriteLimits = REWRITE_LIMITS,
    crowded: AbstractSet[int] = NOTHING,
    avoid: AbstractSet[int] = NOTHING,
) -> Rewrite | None:
    """The most useful rewrite, or None if the lake is well as it is.

    `crowded` are the segments that a stream with too many extents is spread over; `avoid` those to leave alone.
    """
    known = list(candidates)
    usable = [candidate for candidate in known if candidate.number not in avoid]
    dead = [one for one in usable if not one.live_rows and one.segment.last_position <= lowest_reader]
    if dead:
        return Rewrite("dead", tuple(sorted(dead)[:DEAD_AT_ONCE_MAX]))
    groups = groups_of(known, limits.small_bytes)
    if len(crowded) > 1 and (window := _crowded(groups, limits, crowded, avoid)):
        return _merge("crowded", window)
    sparse = [one for one in usable if _is_sparse(one, lowest_reader, limits)]
    if sparse:
        return Rewrite("sparse", (max(sparse, key=lambda one: (one.segment.rows - one.live_rows, -one.number)),))
    window = _small(groups, limits, avoid)
    return _merge("small", window) if window else None


def groups_of(candidates: Iterable[Candidate], small_bytes: int = SMALL_BYTES) -> list[Group]:
    """Segments by the positions they cover, in order; those that overlap are one group."""
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


def _is_sparse(candidate: Candidate, lowest_reader: int, limits: RewriteLimits) -> bool:
    segment = candidate.segment
    readable = segment.last_position <= lowest_reader and segment.payload_bytes <= limits.bytes_max
    return readable and 2 * candidate.live_rows < segment.rows


def _crowded(
    groups: list[Group], limits: RewriteLimits, crowded: AbstractSet[int], avoid: AbstractSet[int]
) -> _Window | None:
    """The window that takes the most extents off the crowded stream, and then the lightest such."""
    best: tuple[tuple[int, int], _Window] | None = None
    for run in _runs(groups, lambda group: not group.holds(avoid)):
        crowds = [group.holds(crowded) for group in run]
        for start, stop, weight in _windows(run, limits):
            # A window that begins or ends with a group that the stream is not in does the same with less.
            if stop - start > 1 and crowds[start] and crowds[stop - 1]:
                value = sum(crowds[start:stop]), -weight
                if best is None or value > best[0]:
                    best = value, _Window(run[start:stop], weight)
    return best[1] if best else None


def _small(groups: list[Group], limits: RewriteLimits, avoid: AbstractSet[int]) -> _Window | None:
    """The window that makes the lake have the fewest groups for the bytes that are moved, and then the longest such."""
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
    """Stretches of neighbouring groups that may be merged."""
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
    """Every stretch within a run that one rewrite can take on: (start, stop, weight), from each start ever longer."""
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
