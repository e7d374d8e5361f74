"""A small lake on a real state: commands make streams, flushes make segments, and a test says when to compact."""

import asyncio
from collections import Counter
from collections.abc import Callable
from itertools import count, pairwise
from random import Random
from typing import Any, NamedTuple

import pyarrow as pa

from headwater.lake.compaction.planning import RewriteLimits
from headwater.lake.format import new_segment_id, segment_key
from headwater.lake.segments.reader import read_all, read_footer, read_group
from headwater.lake.segments.writer import SegmentWriter
from headwater.log.memory import MemoryLog
from headwater.node.committer import Done
from headwater.node.lake.compactor import Compactor
from headwater.node.lake.parts import CompactLimits, FlushLimits, LakeIntervals, LakeLimits, LakeParts
from headwater.protocol import message_ends
from headwater.protocol.limits import SECOND_US
from headwater.streams.commands import Command
from headwater.streams.commands.consumers import DropConsumer, RegisterConsumer
from headwater.streams.commands.forks import Pin, Unpin
from headwater.streams.commands.lake import Publication, PublishSegment, SwapSegments
from headwater.streams.commands.snapshots import PublishSnapshot, Snapshot
from headwater.streams.commands.streams import Append, Create, Delete
from headwater.streams.hot import Hot
from headwater.streams.replies import Appended, Placed, Reply
from headwater.streams.segments import Segment
from headwater.streams.state import Stream

from ...doubles.faulty_store import Call, Fault, FaultyStore
from ...streams.shards import Shard

REWRITE = RewriteLimits(bytes_max=100_000, small_bytes=1)
LIMITS = CompactLimits(REWRITE, streams_max=3, time_share=1.0)
SHARD = 0
"""The number of the shard that this lake belongs to."""
START_US = 1_700_000_000 * SECOND_US


COLUMNS = ("offset", "next_offset", "record", "append", "position", "payload")


class Row(NamedTuple):
    """A message in the lake or in memory."""

    name: str
    offset: int
    end: int
    record: int
    append: int
    position: int
    payload: bytes


class CountingStore(FaultyStore):
    """Makes one call of a kind fail: the first, or the one after this many."""

    def __init__(self) -> None:
        super().__init__()
        self._fail: tuple[str, int, Fault] | None = None

    def fail_at(self, call: Call, index: int, fault: Fault) -> None:
        self._fail = call, index, fault

    def _choose(self, call: Call, key: str) -> Fault | None:
        if self._fail is not None and self._fail[0] == call:
            kind, left, fault = self._fail
            self._fail = (kind, left - 1, fault) if left else None
            if not left:
                return fault
        return super()._choose(call, key)


class Lake:
    """A shard, its store, and a compactor that runs when a test says so."""

    def __init__(self, limits: CompactLimits = LIMITS, intervals: LakeIntervals | None = None) -> None:
        self.shard = Shard()
        self.state = self.shard.state
        self.store = CountingStore()
        self.now = START_US
        self.in_use: Counter[str] = Counter()
        self.before_swap: Callable[[SwapSegments], None] = lambda swap: None
        self.replies: list[Reply] = []
        log = MemoryLog(self.state.log_id)
        bundle = LakeLimits(
            flush=FlushLimits(segment_bytes=60),
            history_seconds=900.0,
            intervals=intervals or LakeIntervals(),
            compact=limits,
        )
        self.parts = LakeParts(SHARD, self.state, self.store, self.submit, lambda: self.now, self.in_use, log, bundle)
        self.compactor = Compactor(self.parts)
        self._ids = count()

    def submit(self, command: Command, done: Done) -> None:
        assert isinstance(command, SwapSegments)
        self.before_swap(command)
        self.replies.append(self.do(command))
        done(self.replies[-1])

    def do(self, command: Command) -> Reply:
        return self.shard.submit([command], self.now)[0]

    def append(self, name: str, *messages: bytes) -> None:
        """Append to a stream, created if needed."""
        if name not in self.state.streams:
            self.do(Create(name, "text/plain"))
        reply = self.do(Append(name, b"".join(messages), message_ends.of(messages), "text/plain"))
        assert isinstance(reply, Appended), reply

    def trim(self, name: str, offset: int, record: int) -> None:
        stream = self.state.streams[name]
        snapshot = Snapshot(offset, record, f"blob{next(self._ids)}", "text/plain", 1, "digest")
        self.do(PublishSnapshot(name, stream.incarnation, snapshot, trims=True))

    def flush(self, appends_max: int = 1000, segments_max: int = 1000) -> None:
        """Flush hot appends into segments of this many appends each; a flush may stop after some segments."""
        first, last = self.state.cold.flushed + 1, self.state.position
        hot = [
            (stream.name, stream.incarnation, append)
            for stream in (self.state.streams[name] for name in sorted(self.state.warm))
            for append in stream.hot or []
        ]
        lots = [hot[at : at + appends_max] for at in range(0, len(hot), appends_max)]
        for index, lot in enumerate(lots[:segments_max]):
            writer = SegmentWriter(new_segment_id(self.now, f"a{next(self._ids)}"), first, last)
            for name, incarnation, append in lot:
                writer.add(name, incarnation, "text/plain", [append])
            written = writer.finish()
            self.store.store.create(key_of(written.segment), written.data)
            flushed = last if index == len(lots) - 1 else 0
            publication = Publication(written.segment, tuple(written.rows))
            assert self.do(PublishSegment(publication, self.now, flushed)) == Placed()

    def compact(self, steps: int = 100) -> int:
        """Rewrite until nothing is left to rewrite or something fails; the number of rewrites."""
        done = 0
        while done < steps and asyncio.run(self.compactor.compact_once()):
            done += 1
        return done

    # -- What readers see -- -----------------------------------------------------------------------------------------

    def rows(self, stream: Stream) -> list[Row]:
        """The messages that a stream or its forks can still read, from the lake and from memory."""
        found = []
        for extent in stream.extents:
            segment = self.state.cold.segments[extent.segment].segment
            footer = read_footer(self._read_of(segment), segment)
            groups = footer.groups_of(extent.row, extent.rows)
            table = pa.concat_tables(read_group(self._read_of(segment), footer, group) for group in groups)
            mine = _rows(table.slice(extent.row - footer.groups[groups[0]].row, extent.rows))
            assert {(incarnation, row.name) for incarnation, row in mine} == {(stream.incarnation, stream.name)}
            first, last = mine[0][1], mine[-1][1]
            assert (first.offset, first.record, last.end) == (extent.start, extent.record, extent.end)
            found += [row for _, row in mine]
        for hot in stream.hot or []:
            found += _messages(stream.name, hot)
        assert all(after.offset == before.end for before, after in pairwise(found))
        return [row for row in found if row.end > stream.floor]

    def seen(self) -> dict[int, list[Row]]:
        return {stream.incarnation: self.rows(stream) for stream in self.state.streams.values()}

    def in_files(self) -> list[tuple[int, Row]]:
        """Every row of every live segment, with its incarnation."""
        held = self.state.cold.segments.values()
        tables = (table for one in held for table in read_all(self._read_of(one.segment), one.segment))
        return sorted(row for table in tables for row in _rows(table))

    def check(self) -> None:
        """Check that the files alone give what the state says, and that the state counts right."""
        cold, streams = self.state.cold, self.state.streams.values()
        tombstones = {incarnation: tombstone.below for incarnation, tombstone in cold.tombstones.items()}
        live = [
            (incarnation, row) for incarnation, row in self.in_files() if row.offset >= tombstones.get(incarnation, 0)
        ]
        alive = [stream for stream in streams if not stream.deleted]
        assert live == sorted(
            (stream.incarnation, row)
            for stream in alive
            for row in self.rows(stream)
            if stream.start <= row.offset < stream.hot_start
        )
        counted = Counter[int]()
        for stream in streams:
            for extent in stream.extents:
                counted[extent.segment] += extent.rows
        assert {number: held.live_rows for number, held in cold.segments.items()} == {
            number: counted[number] for number in cold.segments
        }

    def _read_of(self, segment: Segment) -> Callable[[int, int], bytes]:
        return lambda start, size: self.store.store.read(key_of(segment), start, size)


def key_of(segment: Segment) -> str:
    return segment_key(SHARD, segment.first_position, segment.last_position, segment.id)


def _rows(table: pa.Table) -> list[tuple[int, Row]]:
    rows: list[dict[str, Any]] = table.to_pylist()
    return [
        (row["incarnation"], Row(f"{row['bucket']}/{row['stream']}", *(row[name] for name in COLUMNS))) for row in rows
    ]


def _messages(name: str, hot: Hot) -> list[Row]:
    boundaries = pairwise([0, *hot.message_ends])
    return [
        Row(
            name,
            hot.offset + start,
            hot.offset + end,
            hot.record + at,
            hot.offset,
            hot.position,
            hot.payload[start:end],
        )
        for at, (start, end) in enumerate(boundaries)
    ]


class Chance:
    """Random commands of all kinds that concern the lake."""

    def __init__(self, lake: Lake, seed: int) -> None:
        self.lake, self.random = lake, Random(seed)
        self.pins: list[tuple[str, int, str]] = []
        self.written: dict[int, bytes] = {}
        self._ids = count()

    def act(self) -> None:
        kinds = [self._append] * 8 + [self._flush] * 3 + [self._trim] * 2 + [self._delete, self._pin, self._unpin]
        self.random.choice([*kinds, self._read])()

    def _name(self) -> str:
        return self.random.choice(["a/x", "a-b/x", "a/y", "b/x", "b/y"])

    def _append(self) -> None:
        name, random = self._name(), self.random
        messages = [random.randbytes(random.randint(1, 12)) for _ in range(random.randint(1, 3))]
        stream = self.lake.state.streams.get(name)
        if stream is None or not stream.deleted:
            self.lake.append(name, *messages)
            stream = self.lake.state.streams[name]
            self.written[stream.incarnation] = self.written.get(stream.incarnation, b"") + b"".join(messages)

    def _flush(self) -> None:
        self.lake.flush(self.random.choice([2, 3, 1000]), self.random.choice([1, 1000, 1000]))

    def _trim(self) -> None:
        stream = self.lake.state.streams.get(self._name())
        if stream is not None and not stream.deleted:
            rows = [row for row in self.lake.rows(stream) if row.offset >= stream.start]
            if rows:
                row = self.random.choice(rows)
                self.lake.trim(stream.name, row.end, row.record + 1)

    def _delete(self) -> None:
        self.lake.do(Delete(self._name()))

    def _pin(self) -> None:
        stream = self.lake.state.streams.get(self._name())
        if stream is not None and not stream.deleted:
            pin = f"pin{next(self._ids)}"
            self.lake.do(Pin(stream.name, pin, "fork", self.lake.now))
            self.pins.append((stream.name, stream.incarnation, pin))

    def _unpin(self) -> None:
        if self.pins:
            self.lake.do(Unpin(*self.pins.pop(self.random.randrange(len(self.pins)))))

    def _read(self) -> None:
        if self.random.random() < 0.5:
            self.lake.do(DropConsumer("r"))
        else:
            position = self.lake.state.position
            self.lake.do(RegisterConsumer("r", self.random.randint(position // 2, position)))
