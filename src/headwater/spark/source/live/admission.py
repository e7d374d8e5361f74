"""Admission of live streams: whole streams as long as they fit, and a part of the one that does not.

Streams take turns: whoever had only a part comes last the next time. Bytes may be cut anywhere, since a message belongs
to the range in which it begins; so a batch may have more than its limit, by less than a message.
"""

from collections.abc import Sequence
from typing import NamedTuple

from headwater.spark.link import Link
from headwater.spark.source.lake.admission import UNLIMITED, Limits
from headwater.spark.source.live.plan import LIVE_STREAMS_MAX

RECORDS_AT_ONCE = 1_000
"""Streams whose records are counted together; each round of that is one request."""


class Pending(NamedTuple):
    """What a stream has for a batch: bytes from an offset to its tail, and between which records they are."""

    stream: str
    incarnation: int
    offset: int
    tail: int
    start: int
    record_start: int
    record_next: int


class LiveAdmission:
    """Shares out what a trigger may have."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._last = ""
        self._records: dict[str, tuple[int, int, int]] = {}
        """Of a stream: its incarnation, an offset, and the first record there; so that it need not be searched for."""

    def ends(self, pending: Sequence[Pending], limits: Limits) -> dict[str, int]:
        """Up to where each stream is read that is read at all; `pending` is in the order of names."""
        if limits == UNLIMITED:
            return {one.stream: one.tail for one in pending}
        if len(self._records) > LIVE_STREAMS_MAX:
            # So many are never there at once: some are gone, and a record of the others can be searched for anew.
            kept = {one.stream for one in pending} & self._records.keys()
            self._records = {stream: self._records[stream] for stream in kept}
        turn = sorted(pending, key=lambda one: one.stream <= self._last)
        ends: dict[str, int] = {}
        for at in range(0, len(turn), RECORDS_AT_ONCE):
            some = turn[at : at + RECORDS_AT_ONCE]
            counts = limits.records_max < UNLIMITED.records_max
            firsts = self._first_records(some) if counts else [one.record_next for one in some]
            for one, first in zip(some, firsts, strict=True):
                records = one.record_next - first
                if one.tail - one.offset > limits.bytes_max or records > limits.records_max:
                    ends |= self._part(one, first, limits)
                    return ends
                ends[one.stream] = one.tail
                self._records[one.stream] = one.incarnation, one.tail, one.record_next
                limits = Limits(limits.bytes_max - (one.tail - one.offset), limits.records_max - records)
        self._last = ""
        return ends

    def _part(self, one: Pending, first: int, limits: Limits) -> dict[str, int]:
        """What still fits of a stream; nothing, if the limits are used up."""
        self._last = one.stream if min(limits) > 0 else self._last
        end = min(one.tail, one.offset + limits.bytes_max)
        if one.record_next - first > limits.records_max:
            [border] = self._link.locate([(one.stream, one.incarnation, first + limits.records_max)])
            if border is not None and border <= end:
                end = border
                self._records[one.stream] = one.incarnation, end, first + limits.records_max
        return {one.stream: end} if end > one.offset else {}

    def _first_records(self, pending: Sequence[Pending]) -> list[int]:
        """Of each stream the first record that begins at its offset or behind it, found by halving."""
        low, high = [one.record_start for one in pending], [one.record_next for one in pending]
        for index, one in enumerate(pending):
            incarnation, offset, record = self._records.get(one.stream, (-1, -1, -1))
            if (incarnation, offset) == (one.incarnation, one.offset):
                low[index] = high[index] = record
            elif one.offset <= one.start:
                high[index] = low[index]
        while open_ones := [index for index in range(len(pending)) if low[index] < high[index]]:
            middles = [(low[index] + high[index]) // 2 for index in open_ones]
            asked = [
                (pending[index].stream, pending[index].incarnation, middle)
                for index, middle in zip(open_ones, middles, strict=True)
            ]
            for index, middle, border in zip(open_ones, middles, self._link.locate(asked), strict=True):
                # One that is trimmed by now lies before whatever is asked for.
                if border is None or border < pending[index].offset:
                    low[index] = middle + 1
                else:
                    high[index] = middle
        return low
