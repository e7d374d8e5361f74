"""Planning a live read: the ranges of streams, as the server knows them now, cut and packed into partitions."""

from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

import pyarrow as pa

from headwater.lake.format import split_name
from headwater.spark.link import Link
from headwater.spark.options.places import Offsets, Place
from headwater.spark.options.reading import Selection, SourceOptions
from headwater.spark.source.filters import ANY, Conditions
from headwater.spark.source.losses import DataLost, lose, trimmed
from headwater.spark.source.packing import pack, parts_of, room_bytes

LIVE_STREAMS_MAX = 100_000
"""Streams of one live read: each has an entry in every offset of a query, 20 bytes and more."""
STREAM_BYTES = 200
"""What a range weighs beside its bytes."""


class LiveRefused(Exception):
    """A live read cannot be done as asked; the message is one sentence that says why, and what to do."""


class Known(NamedTuple):
    """What the server says of a stream."""

    incarnation: int
    start: int
    tail: int
    record_start: int
    record_next: int
    snapshot: int | None
    """Where the newest one stands."""


class LiveRange(NamedTuple):
    """The messages of a life that begin in a range; with `bootstraps` its snapshot first, and what follows on that."""

    stream: str
    incarnation: int
    start: int
    end: int
    bootstraps: bool = False


class LiveWork(NamedTuple):
    """What one task reads."""

    ranges: tuple[LiveRange, ...]
    since: int | None
    until: int | None


def describe(link: Link, selection: Selection) -> dict[str, Known]:
    """The streams that are asked for and that there are, by name."""
    if selection.names is not None:
        return known_of([link.describe(sorted(name for name in selection.names if selection.has(name)))], selection)
    return known_of(link.describe_all(selection.prefix), selection)


def known_of(pages: Iterable[pa.Table], selection: Selection) -> dict[str, Known]:
    """What pages of descriptions say of the streams that are asked for."""
    found: dict[str, Known] = {}
    for page in pages:
        columns = [page[name].to_pylist() for name in ("stream", *Known._fields)]
        for name, *facts in zip(*columns, strict=True):
            if selection.has(name):
                found[name] = Known(*facts)
        if len(found) > LIVE_STREAMS_MAX:
            raise LiveRefused(
                f"More than {LIVE_STREAMS_MAX} streams are asked for, the most that are read live; use via=lake."
            )
    return found


def batch_ranges(options: SourceOptions, known: dict[str, Known], given: Conditions = ANY) -> list[LiveRange]:
    """The ranges of a batch, in the order of names."""
    missing = sorted((options.selection.names or frozenset()) - known.keys())
    if missing:
        lose(options, f"There is no stream {missing[0]!r}")
    offsets = given.bounds_of("offset")
    ranges = []
    for name, facts in known.items():
        if not may_meet(name, given):
            continue
        start = _start(options, name, facts)
        end = min(_end(options.ending, name, facts), offsets.high + 1)
        ranges.append(start._replace(start=max(start.start, offsets.low), end=end))
    return [one for one in ranges if one.start < one.end or one.bootstraps]


def may_meet(name: str, given: Conditions) -> bool:
    """Whether rows of a stream can meet conditions on its name."""
    bucket, stream = split_name(name)
    return given.may_have("bucket", bucket) and given.may_have("stream", stream)


def _start(options: SourceOptions, name: str, facts: Known) -> LiveRange:
    """A range from where a stream is to be read to its tail."""
    place = options.starting
    asked = place.streams.get(name, "earliest") if isinstance(place, Offsets) else "earliest"
    if asked == "earliest":
        return from_earliest(options, name, facts)
    return from_offset(options, name, facts, facts.tail if asked == "latest" else asked)


def _end(place: Place | None, name: str, facts: Known) -> int:
    asked = place.streams.get(name, "latest") if isinstance(place, Offsets) else "latest"
    if asked == "latest":
        return facts.tail
    return facts.start if asked == "earliest" else min(asked, facts.tail)


def from_earliest(options: SourceOptions, name: str, facts: Known) -> LiveRange:
    """All there is of a stream; where there was more before, its snapshot first, if that is asked for."""
    return _retained(options, name, facts)


def from_offset(options: SourceOptions, name: str, facts: Known, offset: int) -> LiveRange:
    """All of a stream from an offset on, or what stands in for it if that was trimmed."""
    if offset > facts.tail:
        raise DataLost(
            f"The stream {name!r} ends at {facts.tail}, before {offset}, where its reading was to go on; start anew."
        )
    if offset >= facts.start:
        return LiveRange(name, facts.incarnation, offset, facts.tail)
    if options.on_trimmed == "fail":
        raise trimmed(name, offset, facts.start)
    return _retained(options, name, facts)


def _retained(options: SourceOptions, name: str, facts: Known) -> LiveRange:
    if not options.bootstraps or not facts.start or facts.snapshot is None:
        return LiveRange(name, facts.incarnation, facts.start, facts.tail)
    return LiveRange(name, facts.incarnation, max(facts.start, facts.snapshot), facts.tail, bootstraps=True)


def packed(options: SourceOptions, ranges: list[LiveRange], since: int | None, until: int | None) -> list[LiveWork]:
    """Partitions: small streams together, large ones cut, at any byte, since a message is where it begins."""
    room = room_bytes(sum(map(weight_of, ranges)), options.partition_bytes, options.partitions_min)
    pieces = [piece for one in ranges for piece in _cut(one, room)]
    return [LiveWork(tuple(some), since, until) for some in pack(pieces, weight_of, room)]


def weight_of(one: LiveRange) -> int:
    """What reading a range costs, in bytes, about."""
    return max(one.end - one.start, 0) + STREAM_BYTES


def _cut(one: LiveRange, room: int) -> list[LiveRange]:
    # What comes behind a snapshot depends on the snapshot, which is read in one task.
    parts = 1 if one.bootstraps else parts_of(weight_of(one), max(room, 2 * STREAM_BYTES))
    size = one.end - one.start
    borders = [one.start + size * part // parts for part in range(parts + 1)]
    return [one._replace(start=start, end=end) for start, end in pairwise(borders)]
