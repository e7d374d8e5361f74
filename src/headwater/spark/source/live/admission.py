"""Admission control for live streams: whole streams as long as they fit, then a part of the next one.

Streams take turns: a stream that was cut comes last in the next batch. A cut may fall on any byte, because a message
belongs to the range in which it begins. So a batch may exceed its limit by less than one message.
"""

from collections.abc import Sequence
from typing import NamedTuple

from headwater.spark.link import Link
from headwater.spark.source.limits import UNLIMITED, TriggerLimits
from headwater.spark.source.live.plan import LIVE_STREAMS_MAX

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
