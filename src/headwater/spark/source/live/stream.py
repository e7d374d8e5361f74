"""Streaming from live streams: an offset has an entry for each stream, with its incarnation and how far it was read.

    {"log": "9f2c41d07be3a856", "s": {"team/notes": [17, 4096]}, "v": 2}

Incarnations are numbers of one log, and a restored server has another one, so an offset also names the log.
The first offset of a query, and those after it until something is read, also carry where the query began. When Spark
repeats the first batch it asks for the beginning again, and the answer may be different by that time. Times, if any,
are in every offset.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from headwater.spark.link import Link
from headwater.spark.options.source import SourceOptions, StreamOffsets, report_loss
from headwater.spark.source.live.reader import (
    LIVE_STREAMS_MAX,
    LivePartition,
    LiveRange,
    LiveRefused,
    StreamDescription,
    describe,
    from_earliest,
    from_offset,
    pack_ranges,
    selected,
)
from headwater.spark.source.portions import UNLIMITED, TriggerLimits

# -- Admission control -------------------------------------------------------------------------------------------------
#
# Whole streams are read as long as they fit, then a part of the next one. Streams take turns: a stream that was cut
# comes last in the next batch. A cut may fall on any byte, because a message belongs to the range in which it begins.
# So a batch may exceed its limit by less than one message.


RECORDS_AT_ONCE = 1_000
"""How many streams share one request when records are counted."""


class Pending(NamedTuple):
    """What a stream has for a batch: the bytes from an offset to its tail, and the records that they are among."""

    stream: str
    incarnation: int
    offset: int
    tail: int
    start: int
    record_start: int
    record_next: int


class LiveAdmission:
    """Divides the limits of a trigger among streams."""

    def __init__(self, link: Link, streams_max: int = LIVE_STREAMS_MAX) -> None:
        self._link, self._streams_max = link, streams_max
        self._last = ""
        """The stream that was cut last; the next turn begins after it."""
        self._records: dict[str, tuple[int, int, int]] = {}
        """By stream: its incarnation, an offset and the first record there. Saves searching for the record."""

    def ends(self, pending: Sequence[Pending], limits: TriggerLimits) -> dict[str, int]:
        """The end offsets of the streams in the next batch; `pending` is sorted by name."""
        if limits == UNLIMITED:
            return {one.stream: one.tail for one in pending}
        self._forget_others(pending)
        turn = sorted(pending, key=lambda one: one.stream <= self._last)
        counts_records = limits.records_max < UNLIMITED.records_max
        ends: dict[str, int] = {}
        for at in range(0, len(turn), RECORDS_AT_ONCE):
            some = turn[at : at + RECORDS_AT_ONCE]
            firsts = self._first_records(some) if counts_records else [one.record_next for one in some]
            for one, first in zip(some, firsts, strict=True):
                size, records = one.tail - one.offset, one.record_next - first
                if not limits.fit(size, records):
                    return ends | self._part(one, first, limits)
                ends[one.stream] = one.tail
                self._records[one.stream] = one.incarnation, one.tail, one.record_next
                limits = limits.less(size, records)
        self._last = ""
        return ends

    def _forget_others(self, pending: Sequence[Pending]) -> None:
        """Keep known records bounded. More than the most streams of a query means that some of them are gone."""
        if len(self._records) > self._streams_max:
            known = {one.stream for one in pending} & self._records.keys()
            self._records = {stream: self._records[stream] for stream in known}

    def _part(self, one: Pending, first: int, limits: TriggerLimits) -> dict[str, int]:
        """The end of a stream that fits only in part; empty if the limits are used up."""
        self._last = self._last if limits.are_reached else one.stream
        end = min(one.tail, one.offset + limits.bytes_max)
        if one.record_next - first > limits.records_max:
            [boundary] = self._link.locate([(one.stream, one.incarnation, first + limits.records_max)])
            if boundary is not None and boundary <= end:
                end = boundary
                self._records[one.stream] = one.incarnation, end, first + limits.records_max
        return {one.stream: end} if end > one.offset else {}

    def _first_records(self, pending: Sequence[Pending]) -> list[int]:
        """For each stream the first record at or after its offset, by a binary search that all of them share."""
        low, high = [one.record_start for one in pending], [one.record_next for one in pending]
        for index, one in enumerate(pending):
            incarnation, offset, record = self._records.get(one.stream, (-1, -1, -1))
            if (incarnation, offset) == (one.incarnation, one.offset):
                low[index] = high[index] = record
            elif one.offset <= one.start:
                high[index] = low[index]
        while unknown := [index for index in range(len(pending)) if low[index] < high[index]]:
            middles = [(low[index] + high[index]) // 2 for index in unknown]
            records = [
                (pending[index].stream, pending[index].incarnation, middle)
                for index, middle in zip(unknown, middles, strict=True)
            ]
            for index, middle, boundary in zip(unknown, middles, self._link.locate(records), strict=True):
                # A record without an offset has been trimmed since, so it lies before the one searched for.
                if boundary is None or boundary < pending[index].offset:
                    low[index] = middle + 1
                else:
                    high[index] = middle
        return low


# -- Offsets and batches -----------------------------------------------------------------------------------------------


VERSION = 2
"""The version of the form that offsets have in a checkpoint."""

Progress = dict[str, tuple[int, int]]
"""By stream: the incarnation, and an offset in it."""


class LiveOffset(NamedTuple):
    """How far a query has read."""

    log_id: str
    progress: Progress
    beginning: Progress | None = None
    since: int | None = None
    until: int | None = None

    @property
    def plain(self) -> dict[str, Any]:
        """The form for Spark's checkpoint. Spark compares texts, so equal offsets must have equal texts."""
        plain: dict[str, Any] = {"log": self.log_id, "s": _plain(self.progress), "v": VERSION}
        if self.beginning is not None:
            plain = {"beginning": _plain(self.beginning), **plain}
        if self.since is not None or self.until is not None:
            plain["t"] = [self.since, self.until]
        return {name: plain[name] for name in sorted(plain)}

    @property
    def is_new(self) -> bool:
        """Whether nothing has been read yet."""
        return self.beginning == self.progress


def _plain(progress: Progress) -> dict[str, list[int]]:
    return {name: list(progress[name]) for name in sorted(progress)}


def parse_offset(plain: dict[str, Any]) -> LiveOffset:
    """An offset as Spark returns it from the checkpoint."""
    try:
        if plain["v"] != VERSION:
            raise KeyError("v")
        beginning = _progress(plain["beginning"]) if "beginning" in plain else None
        return LiveOffset(plain["log"], _progress(plain["s"]), beginning, *plain.get("t", (None, None)))
    except (KeyError, TypeError, ValueError, AttributeError):
        raise LiveRefused(
            "The checkpoint does not belong to a live query; a query cannot change its path (option via), so set "
            "via=lake or use another checkpoint."
        ) from None


def _progress(plain: dict[str, list[int]]) -> Progress:
    return {name: (incarnation, offset) for name, (incarnation, offset) in plain.items()}


class LiveStream:
    """The driver's side of one query."""

    def __init__(self, options: SourceOptions, link: Link, admission: LiveAdmission | None = None) -> None:
        self._options, self._link = options, link
        self._admission = admission or LiveAdmission(link)
        self._target: dict[str, StreamDescription] | None = None
        self._newest: tuple[str, dict[str, StreamDescription]] | None = None

    # -- How far a batch reaches ------------------------------------------------------------------------------------

    def initial(self) -> dict[str, Any]:
        """Where a new query begins; a stream without an entry begins at its earliest message."""
        options, starting = self._options, self._options.starting
        progress: Progress = {}
        log_id = self._link.log_id()
        self._link.expect_log(log_id)
        if isinstance(starting, StreamOffsets) or (starting != "earliest" and options.since is None):
            streams = self._target if self._target is not None else describe(self._link, options.selection)
            offsets = starting.streams if isinstance(starting, StreamOffsets) else dict.fromkeys(streams, "latest")
            for name, offset in offsets.items():
                if name in streams and offset != "earliest":
                    stream = streams[name]
                    progress[name] = stream.incarnation, stream.tail if offset == "latest" else int(offset)
        return LiveOffset(log_id, progress, progress, options.since, options.until).plain

    def prepare(self) -> None:
        """Make the current tails of the streams the end of the query."""
        self._target = describe(self._link, self._options.selection)

    def latest(self, start: dict[str, Any], limits: TriggerLimits = UNLIMITED) -> dict[str, Any]:
        """The end of the next batch; equal to `start` if there is nothing new."""
        offset = parse_offset(start)
        self._link.expect_log(offset.log_id)
        streams = describe(self._link, self._options.selection)
        self._newest = offset.log_id, streams
        for name in sorted(offset.progress.keys() - streams.keys()):
            report_loss(self._options, f"The stream {name!r} no longer exists")
        progress = {name: read for name, read in offset.progress.items() if name in streams}
        pending = []
        for name, stream in streams.items():
            if name in progress and progress[name][0] != stream.incarnation:
                report_loss(self._options, f"The stream {name!r} was deleted and created again")
                del progress[name]
            unread = self._unread(progress.get(name), name, stream)
            end = self._end(name, stream)
            if unread.start < end or (unread.bootstraps and end == stream.tail):
                records = stream.record_start, stream.record_next
                pending.append(Pending(name, stream.incarnation, unread.start, end, stream.start, *records))
        for name, end in self._admission.ends(pending, limits).items():
            progress[name] = streams[name].incarnation, end
        if progress == offset.progress:
            return start
        return offset._replace(progress=progress, beginning=offset.beginning if offset.is_new else None).plain

    def report(self) -> dict[str, Any] | None:
        """The newest known tails of the streams, for Spark's progress report."""
        if self._newest is None:
            return None
        log_id, streams = self._newest
        return LiveOffset(log_id, {name: (stream.incarnation, stream.tail) for name, stream in streams.items()}).plain

    def _unread(self, read: tuple[int, int] | None, name: str, stream: StreamDescription) -> LiveRange:
        """The range of a stream after what was read of it."""
        if read is None:
            return from_earliest(self._options, name, stream)
        return from_offset(self._options, name, stream, read[1])

    def _end(self, name: str, stream: StreamDescription) -> int:
        """How far a stream may be read: to its tail, or for a query that ends, to its tail when the query started."""
        if self._target is None:
            return stream.tail
        target = self._target.get(name)
        return 0 if target is None or target.incarnation != stream.incarnation else min(target.tail, stream.tail)

    # -- What a batch contains --------------------------------------------------------------------------------------

    def plan(self, start: dict[str, Any], end: dict[str, Any]) -> list[LivePartition]:
        """The partitions of a batch; they contain the same rows for as long as the streams have them."""
        if start == end:
            return []
        last = parse_offset(end)
        self._link.expect_log(last.log_id)
        # Spark repeats the first batch from a new initial offset; the end knows where the query really began.
        first = parse_offset(start).progress if last.beginning is None else last.beginning
        changed = [name for name, read in last.progress.items() if first.get(name) != read]
        streams = selected([self._link.describe(changed)], self._options.selection) if changed else {}
        ranges = []
        for name in changed:
            incarnation, end_offset = last.progress[name]
            stream = streams.get(name)
            if stream is None or stream.incarnation != incarnation:
                report_loss(self._options, f"The stream {name!r} no longer exists")
                continue
            read = first.get(name)
            unread = self._unread(read if read and read[0] == incarnation else None, name, stream)
            ranges.append(unread._replace(end=end_offset))
        ranges = [one for one in ranges if one.has_rows]
        return pack_ranges(self._options, ranges, last.since, last.until, log_id=last.log_id)
