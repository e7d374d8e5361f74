"""What holds for the lake in every state that any log can lead to.

Also, what an engine finds that reads only files: the segments, tombstones and forks that a catalog lists. It finds
every live row once, under the name of its stream or of a fork.
"""

from collections import Counter
from collections.abc import Iterator

from headwater.streams import reading
from headwater.streams.state import State, Stream

from ..streams.lakes import Fork, Row, forks_of, readable
from ..streams.shards import Shard, Shards


def check_lakes(shards: Shards) -> None:
    for shard in shards.all:
        state = shard.state
        assert set(state.warm) == {name for name, stream in state.streams.items() if stream.hot}
        assert set(state.forks) == {name for name, stream in state.streams.items() if stream.origin}
        for stream in state.streams.values():
            assert all(hot.position > state.cold.flushed for hot in stream.hot or ()), "a row is not in the lake yet"
            _check_extents(stream, shard)
        _check_live_rows(state)
        _check_tombstones(shard)
        _check_dropped(shard)
    if any(shard.state.cold.segments for shard in shards.all):
        _check_reader(shards)


def _check_extents(stream: Stream, shard: Shard) -> None:
    """Extents follow each other without a gap up to the hot appends, and cover rows of their stream only."""
    extents = stream.extents
    if not extents:
        return
    assert [*(extent.start for extent in extents[1:]), stream.hot_start] == [extent.end for extent in extents]
    assert extents[0].end > stream.floor, "rows are kept that nothing needs"
    record_next = stream.hot[0].record if stream.hot else stream.record_next
    records = [extent.record + extent.rows for extent in extents]
    assert [*(extent.record for extent in extents[1:]), record_next] == records
    for extent in extents:
        rows = shard.lake.covered(shard.state, extent)
        assert len(rows) == extent.rows > 0
        assert {(row.name, row.incarnation) for row in rows} == {(stream.name, stream.incarnation)}
        assert [extent.start, *(row.end for row in rows)] == [*(row.offset for row in rows), extent.end]
        assert [row.record for row in rows] == list(range(extent.record, extent.record + extent.rows))


def _check_live_rows(state: State) -> None:
    rows: Counter[int] = Counter()
    for stream in state.streams.values():
        for extent in stream.extents:
            rows[extent.segment] += extent.rows
    assert {number: held.live_rows for number, held in state.cold.segments.items()} == {
        number: rows[number] for number in state.cold.segments
    }
    assert rows.keys() <= state.cold.segments.keys(), "a stream has rows in a segment that is gone"
    assert state.cold.next_number > max(state.cold.segments, default=0)
    ids = {held.segment.id for held in state.cold.segments.values()}
    assert len(ids) == len(state.cold.segments)
    assert state.cold.ids == ids
    held = state.cold.segments.values()
    assert state.cold.rows == sum(one.segment.rows for one in held)
    assert state.cold.live_rows == sum(one.live_rows for one in held)
    assert state.cold.bytes == sum(one.segment.size for one in held)
    assert not ids & state.cold.retired.keys(), "an object that is still listed is about to be deleted"


def _check_tombstones(shard: Shard) -> None:
    """Tombstones hide exactly the rows that must not be read under the name of their stream."""
    state, cold = shard.state, shard.state.cold
    dead_in: dict[int, set[int]] = {}
    for number in cold.segments:
        for row in shard.lake.of(state, number):
            stream = state.streams.get(row.name)
            alive = stream is not None and stream.incarnation == row.incarnation and not stream.deleted
            dead = stream is None or not alive or row.offset < stream.start
            tombstone = cold.tombstones.get(row.incarnation)
            assert dead == (tombstone is not None and row.offset < tombstone.below)
            if tombstone is not None and dead:
                assert tombstone.name == row.name
                dead_in.setdefault(number, set()).add(row.incarnation)
    assert cold.dead_in == dead_in
    tombstones = {
        incarnation: sorted(rows.segment for rows in tombstone.dead)
        for incarnation, tombstone in cold.tombstones.items()
    }
    lives = {incarnation for lives in dead_in.values() for incarnation in lives}
    assert tombstones == {life: [number for number in sorted(dead_in) if life in dead_in[number]] for life in lives}, (
        "a tombstone is in segments without dead rows, or not in one that has some"
    )


def _check_dropped(shard: Shard) -> None:
    """No row above the highest position that was dropped has ever left the lake."""
    state, lake = shard.state, shard.lake
    here: set[Row] = set()
    for number, held in state.cold.segments.items():
        lake.placed.add(held.segment.id)
        here.update(lake.of(state, number))
    ever = {row for segment_id in lake.placed for row in lake.objects[segment_id]}
    assert all(row.position <= state.cold.dropped for row in ever - here), (
        "a row above the dropped position has left the lake"
    )


# -- What the files alone show ----------------------------------------------------------------------------------------


class CatalogReader:
    """Reads streams from segments, tombstones and forks alone."""

    def __init__(self, shards: Shards) -> None:
        self.rows: dict[tuple[str, int], list[Row]] = {}
        self.own: dict[tuple[str, int], list[Row]] = {}
        self.forks: dict[tuple[str, int], tuple[str, Fork]] = {}
        for shard in shards.all:
            state = shard.state
            for number in state.cold.segments:
                for row in shard.lake.of(state, number):
                    self.rows.setdefault((row.name, row.incarnation), []).append(row)
            for rows in readable(shard.lake, state).values():
                self.own[rows[0].name, rows[0].incarnation] = rows
            for name, fork in forks_of(state).items():
                origin = state.streams[name].origin
                assert origin is not None
                self.forks[name, fork.incarnation] = origin.name, fork

    def streams(self) -> set[tuple[str, int]]:
        """Lives that have something to read."""
        return self.own.keys() | {life for life, (_, fork) in self.forks.items() if not fork.deleted}

    def parts(self, life: tuple[str, int]) -> list[tuple[int, bytes]]:
        """The parts of a stream that are in the lake, by offset."""
        own = [(row.offset, row.payload) for row in self.own.get(life, [])]
        start = self.forks[life][1].start if life in self.forks else 0
        return sorted([*self._inherited(life, start, 2**63), *own])

    def _inherited(self, life: tuple[str, int], start: int, end: int) -> Iterator[tuple[int, bytes]]:
        """The bytes that a fork inherits; trimming the source does not affect them."""
        if life not in self.forks:
            return
        source, fork = self.forks[life]
        upper = min(end, fork.to)
        yield from self._inherited((source, fork.source), start, upper)
        for row in self.rows.get((source, fork.source), []):
            first, last = max(row.offset, start), min(row.end, upper)
            if first < last:
                yield first, row.payload[first - row.offset : last - row.offset]


def _check_reader(shards: Shards) -> None:
    reader = CatalogReader(shards)
    living = {(stream.name, stream.incarnation) for stream in shards.streams if not stream.deleted}
    assert reader.streams() <= living, "a stream that no longer exists can still be read"
    for stream in shards.streams:
        if not stream.deleted:
            parts = reader.parts((stream.name, stream.incarnation))
            content = [message for page in shards.messages(stream.name, stream.start) for message in page]
            body, cold = b"".join(content), _cold_ranges(stream, shards)
            assert b"".join(payload for _, payload in parts) == b"".join(
                body[start - stream.start : end - stream.start] for start, end in cold
            )
            offsets = [offset for start, payload in parts for offset in range(start, start + len(payload))]
            assert offsets == [offset for start, end in cold for offset in range(start, end)]


def _cold_ranges(stream: Stream, shards: Shards) -> list[tuple[int, int]]:
    """Which bytes of a stream are in the lake, its own and those of its sources."""
    ranges, start = [], stream.start
    for owner, limit in reading.owners(stream, stream.start, shards.source_of):
        if start < limit and owner.extents:
            ranges.append((start, max(min(limit, owner.hot_start), start)))
        start = max(start, limit)
    return ranges
