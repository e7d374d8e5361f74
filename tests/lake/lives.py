"""Lives of streams to write, and the rows that they must have, computed one message at a time."""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from unittest.mock import patch

import pyarrow as pa
from hypothesis import settings
from hypothesis import strategies as st

from headwater.lake import format
from headwater.lake.segments import writer
from headwater.lake.segments.reader import SERVED, Group, Read, read_footer, read_group
from headwater.protocol import message_ends
from headwater.protocol.producers import Producer
from headwater.streams.fetched import Run
from headwater.streams.hot import Hot
from headwater.streams.segments import Extent, Rows, Segment

ID = "19a89f62001k3f9"
LAST_POSITION = 2**60
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Life(NamedTuple):
    """One life, as a writer is given it."""

    name: str
    incarnation: int
    content_type: str
    appends: list[Hot]


class NewAppend(NamedTuple):
    """The messages of an append, and their producer."""

    messages: Sequence[bytes]
    producer: Producer | None = None


def life(name: str, incarnation: int, planned: Sequence[NewAppend], offset: int = 0, record: int = 0) -> Life:
    """A life of consecutive appends, beginning at an offset and a record."""
    appends = []
    for at, (messages, producer) in enumerate(planned):
        payload = b"".join(messages)
        position = incarnation + at + 1
        several = message_ends.of(messages)
        appends.append(Hot(offset, payload, several, record, position, 1_700_000_000_000_000 + position, producer))
        offset, record = offset + len(payload), record + len(messages)
    return Life(name, incarnation, "application/json" if any(hot.ends for hot in appends) else "text/plain", appends)


def plain(name: str, incarnation: int, *sizes: int) -> Life:
    """A life of appends of one message each, with these sizes."""
    return life(name, incarnation, [NewAppend([bytes([97 + at % 26]) * size]) for at, size in enumerate(sizes)])


class Limits(NamedTuple):
    """When a row group is full; small limits make many groups of few bytes."""

    bytes: int = format.GROUP_BYTES
    rows: int = format.GROUP_ROWS


USUAL = Limits()


@contextmanager
def limited(limits: Limits) -> Iterator[writer.SegmentWriter]:
    """A writer that cuts row groups by these limits."""
    with patch.multiple(writer, GROUP_BYTES=limits.bytes, GROUP_ROWS=limits.rows):
        yield writer.SegmentWriter(ID, 0, LAST_POSITION)


def write(lives: Sequence[Life], limits: Limits = USUAL) -> writer.Written:
    """A segment of these lives."""
    with limited(limits) as segment_writer:
        for one in lives:
            segment_writer.add(*one)
        return segment_writer.finish()


def write_tables(tables: Iterable[pa.Table], limits: Limits = USUAL) -> writer.Written:
    """A segment of these rows."""
    with limited(limits) as segment_writer:
        for table in tables:
            segment_writer.add_table(table)
        return segment_writer.finish()


def reading(data: bytes) -> Read:
    """Ranged reads of an object in memory."""
    return lambda start, size: data[start : start + size]


def rows_of(lives: Sequence[Life]) -> list[dict[str, Any]]:
    """The rows that a segment must hold."""
    rows = []
    for name, incarnation, content_type, appends in lives:
        bucket, stream = name.split("/", 1)
        for hot in appends:
            start = 0
            for index, end in enumerate(hot.message_ends):
                rows.append(
                    {
                        "bucket": bucket,
                        "stream": stream,
                        "incarnation": incarnation,
                        "offset": hot.offset + start,
                        "next_offset": hot.offset + end,
                        "record": hot.record + index,
                        "append": hot.offset,
                        "position": hot.position,
                        "committed_at": EPOCH + timedelta(microseconds=hot.at),
                        "producer_id": hot.producer and hot.producer.id,
                        "producer_epoch": hot.producer and hot.producer.epoch,
                        "producer_seq": hot.producer and hot.producer.seq,
                        "content_type": content_type,
                        "payload": hot.payload[start:end],
                    }
                )
                start = end
    return rows


def run_of(appends: Sequence[Hot]) -> Run:
    """The run that a read of neighbouring appends must return."""
    ends, starts = [], []
    for hot in appends:
        for end in hot.message_ends:
            ends.append(hot.offset + end - appends[0].offset)
            starts.append(hot.offset)
    payload = b"".join(hot.payload for hot in appends)
    return Run(appends[0].offset, payload, message_ends.pack(ends), appends[0].record, array("q", starts).tobytes())


def extent_of(rows: Rows) -> Extent:
    return Extent(0, rows.row, rows.rows, rows.start, rows.end, rows.record)


def runs(data: bytes, segment: Segment, extent: Extent, start: int, end: int) -> list[Run]:
    """The result of reading a range: a run for each piece."""
    footer = read_footer(reading(data), segment)
    found = []
    for piece in footer.locate(extent, start, end):
        group = Group(segment.id, read_group(reading(data), footer, piece.group, SERVED))
        found.append(group.run(piece.row, piece.rows))
    return found


# -- Random lives ------------------------------------------------------------------------------------------------------

WORDS = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=6)
NAMES = st.tuples(st.sampled_from(["a", "a-b", "a!", "b", "ä"]) | WORDS, WORDS | st.just("s/t")).map("/".join)
PRODUCERS = st.none() | st.builds(Producer, WORDS, st.integers(0, 2**53 - 1), st.integers(0, 2**53 - 1))
RANDOMLY = settings(deadline=None, max_examples=50)
LIMITS = st.builds(Limits, st.integers(1, 100), st.integers(1, 12)) | st.just(USUAL)


@st.composite
def some_lives(draw: st.DrawFn) -> list[Life]:
    """Lives in the order of a segment; a name may have two."""
    named = draw(st.lists(st.tuples(NAMES, st.booleans()), min_size=1, max_size=8, unique_by=lambda named: named[0]))
    names = sorted(name for name, twice in named for _ in range(1 + twice))
    found = []
    for index, name in enumerate(names):
        planned = []
        for _ in range(draw(st.integers(1, 5))):
            lengths = draw(st.lists(st.integers(1, 40), min_size=1, max_size=4))
            fill = draw(st.binary(min_size=1, max_size=8))
            planned.append(NewAppend([(fill * length)[:length] for length in lengths], draw(PRODUCERS)))
        offset, record = draw(st.tuples(st.integers(0, 2**40), st.integers(0, 2**40)))
        found.append(life(name, 1000 * index, planned, offset, record))
    return found
