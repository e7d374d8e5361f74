"""An instant: many streams as they were at one moment, though they are looked at a slice per turn of the loop.

Until the last of them has been looked at, the state tells of every change before it is made, and what is about to
change is set aside as it was. The segments that the bytes of these streams are in are kept until the instant is closed.
"""

from copy import copy

from headwater.node.reads.cold import ColdReads
from headwater.protocol.refusals import Refusal, stream_not_found
from headwater.streams.commands import Origin
from headwater.streams.segments import Segment
from headwater.streams.state import State, Stream, living

LOOKS_PER_STEP = 100
"""How many streams are looked at before the time is: a tenth of a millisecond."""


class Instant:
    """Streams as of its making: copies, whose lists of appends may grow behind their tails."""

    def __init__(self, state: State, now: int, reads: ColdReads | None) -> None:
        self._state, self._now, self._reads = state, now, reads
        self._position = state.position
        self._aside: dict[str, Stream] = {}
        self._last: Stream | None = None
        self._sources: dict[str, Stream] = {}
        self.segments: dict[int, Segment] = {}
        """Those that the streams seen have extents in, by their numbers."""
        state.observers.append(self)

    def look(self, name: str) -> Stream | Refusal:
        """The living stream of that name, or why there was none."""
        stream = self._last
        if stream is None or stream.name != name:
            stream = self._aside.get(name)
            if stream is None:
                found = self._state.streams.get(name)
                # A life that began meanwhile was not there.
                if found is None or found.incarnation > self._position:
                    return stream_not_found(name)
                stream = self._kept(found)
            self._last = stream
        return living(stream, name, self._now)

    def before_change(self, stream: Stream) -> None:
        """Set a stream aside that is about to change, whether or not anybody will look at it."""
        if stream.incarnation <= self._position and stream.name not in self._aside:
            self._aside[stream.name] = self._kept(stream)

    def _kept(self, stream: Stream) -> Stream:
        kept = copy(stream)
        self._hold(kept)
        origin = kept.origin
        # What a fork has of its source is the same at any time, as long as the fork holds it.
        while origin is not None and origin.name not in self._sources:
            source = self._sources[origin.name] = copy(self._state.streams[origin.name])
            assert source.incarnation == origin.incarnation, "a pinned source cannot be replaced"
            self._hold(source)
            origin = source.origin
        return kept

    def _hold(self, stream: Stream) -> None:
        for extent in stream.extents:
            if extent.segment not in self.segments:
                segment = self.segments[extent.segment] = self._state.cold.segments[extent.segment].segment
                if self._reads is not None:
                    self._reads.hold([segment])

    def source_of(self, origin: Origin) -> Stream:
        """The life that a fork's origin names."""
        return self._sources[origin.name]

    def seen(self) -> None:
        """Everything was looked at: changes matter no more, and whoever needs a stream has it."""
        if self in self._state.observers:
            self._state.observers.remove(self)
        self._aside, self._last = {}, None

    def close(self) -> None:
        """Keep nothing any more."""
        self.seen()
        segments, self.segments = self.segments, {}
        if self._reads is not None:
            self._reads.let_go(segments.values())
