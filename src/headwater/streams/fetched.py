"""Runs: cold bytes that were fetched from the lake for one query."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from operator import attrgetter

import msgspec

from headwater.protocol import message_ends
from headwater.streams.hot import Hot
from headwater.streams.state import Stream

_OFFSET = attrgetter("offset")
_RECORD = attrgetter("record")
_END = attrgetter("end")


class Run(msgspec.Struct, frozen=True, gc=False):
    """Consecutive messages of one stream, fetched from the lake; whole appends only."""

    offset: int
    payload: bytes
    ends: bytes
    record: int
    appends: bytes
    """For each message, the offset at which its append began, as 64-bit numbers."""

    @property
    def end(self) -> int:
        return self.offset + len(self.payload)

    @property
    def message_ends(self) -> Sequence[int]:
        """Where each message ends in the payload."""
        return message_ends.unpack(self.ends)

    @property
    def messages(self) -> int:
        return message_ends.count(self.ends)


Piece = Hot | Run


class NotFetched(Exception):
    """A query needs bytes of a life that are in the lake: a range, or the message with a record number."""

    def __init__(self, stream: Stream, start: int, end: int, record: int | None = None) -> None:
        super().__init__(stream.name, start, end, record)
        self.stream, self.start, self.end, self.record = stream, start, end, record


class Fetched:
    """The runs fetched for one query, by life."""

    def __init__(self) -> None:
        # A fork and its source may be in two shards, and each shard has its own incarnation numbers.
        self._runs: dict[tuple[str, int], list[Run]] = {}

    def _known(self, stream: Stream) -> list[Run]:
        return self._runs.get((stream.name, stream.incarnation), [])

    def add(self, stream: Stream, runs: Sequence[Run]) -> None:
        """Add consecutive runs; known runs that overlap them came from an older segment and are dropped."""
        if runs:
            start, end = runs[0].offset, runs[-1].end
            known = self._known(stream)
            before = [run for run in known if run.end <= start]
            after = [run for run in known if run.offset >= end]
            self._runs[stream.name, stream.incarnation] = [*before, *runs, *after]

    def covering(self, stream: Stream, start: int, end: int) -> list[Run]:
        """Consecutive runs that cover a whole range."""
        known = self._known(stream)
        first = stop = max(bisect_right(known, start, key=_OFFSET) - 1, 0)
        reached = start
        while stop < len(known) and known[stop].offset <= reached < end:
            reached = known[stop].end
            stop += 1
        if reached < end:
            raise NotFetched(stream, max(reached, start), end)
        return known[first:stop]

    def around(self, stream: Stream, offset: int) -> Run:
        """A run that contains the byte at an offset, or ends there."""
        known = self._known(stream)
        at = bisect_left(known, offset, key=_END)
        if at == len(known) or known[at].offset > offset:
            raise NotFetched(stream, offset, offset + 1)
        return known[at]

    def with_record(self, stream: Stream, record: int) -> Run:
        """The run that contains the message with this record number."""
        known = self._known(stream)
        at = bisect_right(known, record, key=_RECORD) - 1
        if at < 0 or record >= known[at].record + known[at].messages:
            raise NotFetched(stream, 0, 0, record)
        return known[at]


NOTHING_FETCHED = Fetched()
