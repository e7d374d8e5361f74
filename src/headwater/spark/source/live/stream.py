"""Streaming from live streams: an offset has an entry for each stream, with its incarnation and how far it was read.

    {"log": "9f2c41d07be3a856", "s": {"team/notes": [17, 4096]}, "v": 2}

Incarnations are numbers of one log, and a restored server has another one, so an offset also names the log.
The first offset of a query, and those after it until something is read, also carry where the query began. When Spark
repeats the first batch it asks for the beginning again, and the answer may be different by that time. Times, if any,
are in every offset.
"""

from typing import Any, NamedTuple

from headwater.spark.link import Link
from headwater.spark.options.boundaries import StreamOffsets
from headwater.spark.options.source import SourceOptions
from headwater.spark.source.data_loss import report_loss
from headwater.spark.source.limits import UNLIMITED, TriggerLimits
from headwater.spark.source.live.admission import LiveAdmission, Pending
from headwater.spark.source.live.plan import (
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
