"""Live reads: ranges of streams are planned as the server describes them; tasks scan them, and resume a broken scan."""

import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import pyarrow as pa

from headwater.client import ScanRange
from headwater.lake.format import SCHEMA, name_of, split_name
from headwater.spark.failures import LinkRefused, ScanBroken
from headwater.spark.link import Link, Snapshot
from headwater.spark.options.source import (
    Boundary,
    DataLost,
    Selection,
    SourceOptions,
    StreamOffsets,
    report_loss,
    trimmed,
)
from headwater.spark.schemas import SNAPSHOT
from headwater.spark.source.filters import NO_CONDITIONS, Conditions, RowQuery
from headwater.spark.source.portions import capacity_bytes, pack, parts_needed, read_ahead

# -- Planning ----------------------------------------------------------------------------------------------------------


LIVE_STREAMS_MAX = 100_000
"""The most streams of one live read: every offset of a query has an entry of 20 bytes or more for each."""
STREAM_BYTES = 200
"""The cost of a range in addition to its bytes."""


class LiveRefused(Exception):
    """A live read is not possible as requested; the message is one sentence that says why, and what to do."""


class StreamDescription(NamedTuple):
    """What the server reports about a stream."""

    incarnation: int
    start: int
    tail: int
    record_start: int
    record_next: int
    snapshot: int | None
    """The offset of the newest snapshot."""


class LiveRange(NamedTuple):
    """The messages of one incarnation that begin in a range of offsets.

    With `bootstraps`, the newest snapshot comes first, then the messages after it.
    """

    stream: str
    incarnation: int
    start: int
    end: int
    bootstraps: bool = False

    @property
    def has_rows(self) -> bool:
        return self.start < self.end or self.bootstraps


class LivePartition(NamedTuple):
    """What one task reads."""

    ranges: tuple[LiveRange, ...]
    since: int | None
    until: int | None
    log_id: str | None = None
    """The log that the incarnations belong to; None for a batch, which has no checkpoint that could be of another."""


# -- Which streams -----------------------------------------------------------------------------------------------------


def describe(link: Link, selection: Selection) -> dict[str, StreamDescription]:
    """The selected streams that exist, by name."""
    if selection.names is not None:
        names = sorted(name for name in selection.names if selection.has(name))
        return selected([link.describe(names)], selection)
    return selected(link.describe_all(selection.prefix), selection)


def selected(
    pages: Iterable[pa.Table], selection: Selection, streams_max: int = LIVE_STREAMS_MAX
) -> dict[str, StreamDescription]:
    """The descriptions of the selected streams, from pages of the server's answer."""
    found: dict[str, StreamDescription] = {}
    for page in pages:
        columns = [page[name].to_pylist() for name in ("stream", *StreamDescription._fields)]
        for name, *facts in zip(*columns, strict=True):
            if selection.has(name):
                found[name] = StreamDescription(*facts)
        if len(found) > streams_max:
            raise LiveRefused(
                f"More than {streams_max} streams are selected, which is the most that can be read live; use via=lake."
            )
    return found


# -- Which ranges ------------------------------------------------------------------------------------------------------


def batch_ranges(
    options: SourceOptions, streams: dict[str, StreamDescription], pushed: Conditions = NO_CONDITIONS
) -> list[LiveRange]:
    """The ranges of a batch, sorted by name."""
    missing = sorted((options.selection.names or frozenset()) - streams.keys())
    if missing:
        report_loss(options, f"There is no stream {missing[0]!r}")
    offsets = pushed.bounds_of("offset")
    ranges = []
    for name, stream in streams.items():
        if not _may_match(name, pushed):
            continue
        one = _from_boundary(options, name, stream)
        end = min(_end(options.ending, name, stream), offsets.high + 1)
        ranges.append(one._replace(start=max(one.start, offsets.low), end=end))
    return [one for one in ranges if one.has_rows]


def _may_match(name: str, pushed: Conditions) -> bool:
    """Whether rows of a stream can match conditions on its name."""
    bucket, stream = split_name(name)
    return pushed.may_match("bucket", bucket) and pushed.may_match("stream", stream)


def _from_boundary(options: SourceOptions, name: str, stream: StreamDescription) -> LiveRange:
    """The range from where the options start a stream to its tail."""
    starting = options.starting
    offset = starting.streams.get(name, "earliest") if isinstance(starting, StreamOffsets) else "earliest"
    if offset == "earliest":
        return from_earliest(options, name, stream)
    return from_offset(options, name, stream, stream.tail if offset == "latest" else offset)


def _end(ending: Boundary | None, name: str, stream: StreamDescription) -> int:
    offset = ending.streams.get(name, "latest") if isinstance(ending, StreamOffsets) else "latest"
    if offset == "latest":
        return stream.tail
    return stream.start if offset == "earliest" else min(offset, stream.tail)


def from_earliest(options: SourceOptions, name: str, stream: StreamDescription) -> LiveRange:
    """The range of all messages that a stream still has; after its snapshot if it was trimmed and bootstraps."""
    if not options.bootstraps or not stream.start or stream.snapshot is None:
        return LiveRange(name, stream.incarnation, stream.start, stream.tail)
    return LiveRange(name, stream.incarnation, max(stream.start, stream.snapshot), stream.tail, bootstraps=True)


def from_offset(options: SourceOptions, name: str, stream: StreamDescription, offset: int) -> LiveRange:
    """The range from an offset to the tail; if the offset was trimmed, what `onTrimmed` says instead."""
    if offset > stream.tail:
        raise DataLost(
            f"The stream {name!r} ends at offset {stream.tail}, before {offset}, where the read should resume; "
            "start a new query."
        )
    if offset >= stream.start:
        return LiveRange(name, stream.incarnation, offset, stream.tail)
    if options.on_trimmed == "fail":
        raise trimmed(name, offset, stream.start)
    return from_earliest(options, name, stream)


# -- Partitions --------------------------------------------------------------------------------------------------------


def pack_ranges(
    options: SourceOptions,
    ranges: list[LiveRange],
    since: int | None,
    until: int | None,
    *,
    log_id: str | None = None,
) -> list[LivePartition]:
    """Partitions of small streams together and large ones cut.

    A cut may fall on any byte, because a message belongs to the range in which it begins.
    """
    capacity = capacity_bytes(sum(map(_weigh, ranges)), options.partition_bytes, options.partitions_min)
    pieces = [piece for one in ranges for piece in _cut(one, capacity)]
    return [LivePartition(tuple(some), since, until, log_id) for some in pack(pieces, _weigh, capacity)]


def _weigh(one: LiveRange) -> int:
    """The approximate cost of reading a range, in bytes."""
    return max(one.end - one.start, 0) + STREAM_BYTES


def _cut(one: LiveRange, capacity: int) -> list[LiveRange]:
    # Which messages follow a snapshot depends on the snapshot, so one task reads both.
    parts = 1 if one.bootstraps else parts_needed(_weigh(one), max(capacity, 2 * STREAM_BYTES))
    size = one.end - one.start
    boundaries = [one.start + size * part // parts for part in range(parts + 1)]
    return [one._replace(start=start, end=end) for start, end in pairwise(boundaries)]


# -- Reading in a task -------------------------------------------------------------------------------------------------


SCAN_RANGES = 20_000
"""Ranges in one scan: what the server checks at one instant, and what is requested again after a refusal."""
REFUSALS_MAX = 100
"""How often the ranges of one scan are corrected. Each time some disappear or shrink, so it ends by itself."""
PROGRESS = frozenset({"bucket", "stream", "offset"})
"""The columns that show how far a scan has come."""


class LiveReader:
    """Reads one partition."""

    def __init__(self, link: Link, options: SourceOptions, query: RowQuery, *, scan_ranges: int = SCAN_RANGES) -> None:
        self._link, self._options, self._query = link, options, query
        self._scan_ranges = scan_ranges
        self._columns = query.columns_with(PROGRESS)

    def read(self, partition: LivePartition) -> Iterator[pa.Table]:
        """The rows of all ranges, in order within each; a snapshot comes before the messages that follow it."""
        if partition.log_id is not None:
            self._link.expect_log(partition.log_id)
        for at in range(0, len(partition.ranges), self._scan_ranges):
            some = partition.ranges[at : at + self._scan_ranges]
            for table in self._scanned(some, partition.since, partition.until):
                matching = self._query.conditions.matching(table)
                if len(matching):
                    yield matching

    def _scanned(self, ranges: Sequence[LiveRange], since: int | None, until: int | None) -> Iterator[pa.Table]:
        left: list[LiveRange] = []
        for one in ranges:
            if one.bootstraps:
                yield from self._bootstrap(one, one.start, left)
            else:
                left.append(one)
        failures = refusals = 0
        while left:
            try:
                with self._link.scan([ScanRange(*one[:4]) for one in left], self._columns, since, until) as batches:
                    for batch in read_ahead(batches):
                        table = pa.Table.from_batches([batch])
                        if len(table):
                            left, failures = remaining(left, table), 0
                            yield table
                return
            except ScanBroken:
                failures += 1
                if failures > self._link.settings.retries:
                    raise
                time.sleep(self._link.settings.retry.delay_seconds(failures))
            except LinkRefused as refused:
                refusals += 1
                if refused.code != "ranges_unavailable" or refusals > REFUSALS_MAX:
                    raise
                problems = {problem["index"]: problem for problem in refused.problem["problems"]}
                requested, left = left, []
                for index, one in enumerate(requested):
                    if index in problems:
                        yield from self._replace(one, problems[index], left)
                    else:
                        left.append(one)

    def _replace(self, one: LiveRange, problem: dict[str, Any], left: list[LiveRange]) -> Iterator[pa.Table]:
        """Add what is read instead of a range that is no longer available to `left`; yield its snapshot, if any."""
        if problem["code"] != "offset_trimmed":
            report_loss(self._options, f"The stream {one.stream!r} no longer exists ({problem['code']})")
        elif self._options.bootstraps:
            yield from self._bootstrap(one, problem["earliest"], left)
        elif self._options.on_trimmed == "fail":
            raise trimmed(one.stream, one.start, problem["earliest"])
        elif problem["earliest"] < one.end:
            left.append(one._replace(start=max(problem["earliest"], one.start)))

    def _bootstrap(self, one: LiveRange, earliest: int, left: list[LiveRange]) -> Iterator[pa.Table]:
        """Yield the newest snapshot, if there is one, and add the messages after it to `left`."""
        found = self._link.snapshot(one.stream)
        start = earliest
        if found is not None:
            start = max(found.offset, earliest)
            yield _row(one, found)
        if start < one.end:
            left.append(one._replace(start=start, bootstraps=False))


def remaining(ranges: list[LiveRange], table: pa.Table) -> list[LiveRange]:
    """What is left of the ranges after the rows of a table, which are the next ones in order."""
    bucket, stream, offset = (table[name][-1].as_py() for name in ("bucket", "stream", "offset"))
    name = name_of(bucket, stream)
    index = next(index for index, one in enumerate(ranges) if one.stream == name)
    rest = ranges[index]._replace(start=offset + 1)
    return [*([rest] if rest.start < rest.end else []), *ranges[index + 1 :]]


def _row(one: LiveRange, snapshot: Snapshot) -> pa.Table:
    """A snapshot as a row; columns that only messages have, such as the record and the position, are null."""
    bucket, stream = split_name(one.stream)
    values = {
        "bucket": bucket,
        "stream": stream,
        "incarnation": one.incarnation,
        "offset": snapshot.offset,
        "next_offset": snapshot.offset,
        "content_type": snapshot.content_type,
        "payload": snapshot.data,
    }
    columns = [pa.array([values.get(field.name)], field.type) for field in SCHEMA]
    return pa.table([*columns, pa.array([SNAPSHOT])], [*SCHEMA.names, "kind"])
