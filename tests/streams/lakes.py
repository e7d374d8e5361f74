"""A lake in memory for tests: rows in lists, one for each segment that was ever made, published or not."""

from array import array
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby, pairwise
from operator import attrgetter
from typing import NamedTuple

from headwater.protocol import message_ends
from headwater.streams.commands.lake import Publication, SwapSegments
from headwater.streams.fetched import NotFetched, Run
from headwater.streams.hot import Hot
from headwater.streams.segments import Extent, Rows, Segment
from headwater.streams.state import State, Stream

LATE = 2**62
"""A deadline that no test reaches."""


class Row(NamedTuple):
    """A message in the lake; they sort by life and offset."""

    name: str
    incarnation: int
    offset: int
    payload: bytes
    record: int
    append: int
    position: int

    @property
    def end(self) -> int:
        return self.offset + len(self.payload)


class Lake:
    """The objects of one shard, by segment id; nothing is ever deleted, so that a late query can be checked too."""

    def __init__(self) -> None:
        self.objects: dict[str, list[Row]] = {}
        self.placed: set[str] = set()
        """The ids that some state is known to have listed."""
        self.appends_per_run = 2
        """How many appends a run holds, as a row group would."""

    def put(self, rows: Iterable[Row], first: int, last: int) -> Publication:
        """Make a segment; its publication has yet to be submitted."""
        ordered = sorted(rows)
        segment_id = f"segment-{len(self.objects) + 1}"
        self.objects[segment_id] = ordered
        size = sum(len(row.payload) for row in ordered)
        names = [row.name for row in ordered] or [""]
        segment = Segment(segment_id, first, last, 0, 0, names[0], names[-1], len(ordered), size, size, 0, 0)
        return Publication(segment, tuple(_rows_of(ordered)))

    def of(self, state: State, number: int) -> list[Row]:
        """The rows of a segment that a catalog lists."""
        return self.objects[state.cold.segments[number].segment.id]

    def covered(self, state: State, extent: Extent) -> list[Row]:
        return self.of(state, extent.segment)[extent.row : extent.row + extent.rows]

    # -- Reading ------------------------------------------------------------------------------------------------------

    def runs(self, state: State, need: NotFetched) -> list[Run]:
        """The runs that a query needs, from the current segments."""
        return [run for extent in need.stream.extents for run in self._cut(state, extent) if _is_needed(run, need)]

    def _cut(self, state: State, extent: Extent) -> Iterator[Run]:
        appends = [list(rows) for _, rows in groupby(self.covered(state, extent), attrgetter("append"))]
        for at in range(0, len(appends), self.appends_per_run):
            yield run_of([row for rows in appends[at : at + self.appends_per_run] for row in rows])


def run_of(rows: Sequence[Row]) -> Run:
    """Neighbouring rows of one life as a run."""
    start = rows[0].offset
    return Run(
        start,
        b"".join(row.payload for row in rows),
        message_ends.pack(row.end - start for row in rows),
        rows[0].record,
        array("q", [row.append for row in rows]).tobytes(),
    )


def _is_needed(run: Run, need: NotFetched) -> bool:
    if need.record is not None:
        return run.record <= need.record < run.record + run.messages
    return run.end > need.start and run.offset < need.end


def _rows_of(ordered: Sequence[Row]) -> Iterator[Rows]:
    at = 0
    for (name, incarnation), found in groupby(ordered, lambda row: (row.name, row.incarnation)):
        rows = list(found)
        assert all(row.end == after.offset for row, after in pairwise(rows)), "a segment has a gap within a life"
        yield Rows(name, incarnation, at, len(rows), rows[0].offset, rows[-1].end, rows[0].record)
        at += len(rows)


# -- What goes into segments ------------------------------------------------------------------------------------------


def rows_of(stream: Stream, appends: Iterable[Hot]) -> Iterator[Row]:
    """A row for each message of hot appends."""
    for hot in appends:
        for index, (start, end) in enumerate(pairwise((0, *hot.message_ends))):
            yield Row(
                stream.name,
                stream.incarnation,
                hot.offset + start,
                hot.payload[start:end],
                hot.record + index,
                hot.offset,
                hot.position,
            )


def collect(state: State, names: Collection[str] | None = None, appends_max: int | None = None) -> list[Row]:
    """The rows of hot appends of all streams or some: all of them, or the first of each stream."""
    streams = [state.streams[name] for name in sorted(state.warm if names is None else names)]
    return [row for stream in streams for row in rows_of(stream, (stream.hot or [])[:appends_max])]


def is_needed(state: State, row: Row) -> bool:
    """Whether an extent covers a row."""
    stream = state.streams.get(row.name)
    if stream is None or stream.incarnation != row.incarnation or not stream.extents:
        return False
    return row.offset >= stream.extents[0].start


def rewrite(lake: Lake, state: State, numbers: Sequence[int], deadline: int = LATE, cuts: int = 1) -> SwapSegments:
    """Merge neighbouring segments, without the dead rows that every consumer has read.

    A life whose rows have a gap continues in another segment. With several cuts, each gets some of the lives.
    """
    segments = [state.cold.segments[number].segment for number in numbers]
    first, last = min(one.first_position for one in segments), max(one.last_position for one in segments)
    lowest = state.cold.lowest_consumer(state.now)
    rows = sorted(row for number in numbers for row in lake.of(state, number))
    gone = [row for row in rows if not is_needed(state, row) and row.position <= lowest]
    kept = sorted(set(rows) - set(gone))
    layers: dict[tuple[int, int], list[Row]] = {}
    lives = sorted({(row.name, row.incarnation) for row in kept})
    before: Row | None = None
    layer = 0
    for row in kept:
        if before is None or before.incarnation != row.incarnation:
            layer = 0
        elif before.end != row.offset:
            layer += 1
        layers.setdefault((lives.index((row.name, row.incarnation)) % cuts, layer), []).append(row)
        before = row
    publications = tuple(lake.put(layers[key], first, last) for key in sorted(layers))
    dropped = max((row.position for row in gone), default=0)
    return SwapSegments(tuple(numbers), publications, deadline, dropped)


def groups_of(state: State) -> list[list[int]]:
    """The numbers of segments whose position ranges overlap, in the order of positions."""
    groups: list[list[int]] = []
    reached = 0
    for number, held in sorted(state.cold.segments.items(), key=lambda item: (item[1].segment.first_position, item[0])):
        if groups and held.segment.first_position <= reached:
            groups[-1].append(number)
        else:
            groups.append([number])
        reached = max(reached, held.segment.last_position)
    return groups


# -- What the files alone show ----------------------------------------------------------------------------------------


class Fork(NamedTuple):
    """A row of the forks in a catalog."""

    incarnation: int
    deleted: bool
    source: int
    start: int
    to: int


def forks_of(state: State) -> dict[str, Fork]:
    """The forks that a catalog lists."""
    forks = {}
    for name in state.forks:
        stream = state.streams[name]
        origin = stream.origin
        assert origin is not None
        start = min(max(origin.start, stream.start), origin.to)
        forks[name] = Fork(stream.incarnation, stream.deleted, origin.incarnation, start, origin.to)
    return forks


def catalog_of(state: State) -> object:
    """What a catalog says, without positions and times."""
    cold = state.cold
    tombstones = {incarnation: (tombstone.name, tombstone.below) for incarnation, tombstone in cold.tombstones.items()}
    return dict(cold.segments), tombstones, forks_of(state), cold.flushed, cold.dropped


def readable(lake: Lake, state: State) -> dict[int, list[Row]]:
    """The rows of each life that no tombstone hides: all that may be read under its own name."""
    found: dict[int, list[Row]] = {}
    for number in state.cold.segments:
        for row in lake.of(state, number):
            tombstone = state.cold.tombstones.get(row.incarnation)
            if tombstone is None or row.offset >= tombstone.below:
                found.setdefault(row.incarnation, []).append(row)
    return {incarnation: sorted(rows) for incarnation, rows in found.items()}
