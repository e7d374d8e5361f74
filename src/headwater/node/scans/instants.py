"""An instant: many streams as of one moment, although they are looked up a slice per turn of the loop.

Until the last lookup, the state announces every change before it is made, and the stream that is about to change is
copied first. The segments that hold the bytes of these streams are kept until the instant is closed.
"""

from copy import copy

from headwater.node.reads.cold import ColdReads
from headwater.protocol.refusals import Refusal, stream_not_found
from headwater.streams.commands.forks import Origin
from headwater.streams.segments import Segment
from headwater.streams.state import State, Stream, living

LOOKUPS_PER_STEP = 100
"""How many streams are looked up between two checks of the clock: a tenth of a millisecond."""


class Instant:
    """Streams as of its creation: copies, whose lists of appends may grow past their tails."""

    def __init__(self, state: State, now: int, reads: ColdReads | None) -> None:
        self._state, self._now, self._reads = state, now, reads
        self._position = state.position
        self._copies: dict[str, Stream] = {}
        self._last: Stream | None = None
        self._sources: dict[str, Stream] = {}
        self.segments: dict[int, Segment] = {}
        """The segments in which the streams found so far have extents, by number."""
        state.observers.append(self)

    def find(self, name: str) -> Stream | Refusal:
        """The stream that lived under that name, or why there was none."""
        stream = self._last
        if stream is None or stream.name != name:
            stream = self._copies.get(name)
            if stream is None:
                found = self._state.streams.get(name)
                # A life that began later did not exist yet.
                if found is None or found.incarnation > self._position:
                    return stream_not_found(name)
                stream = self._kept(found)
            self._last = stream
        return living(stream, name, self._now)

    def before_change(self, stream: Stream) -> None:
        """Copy a stream that is about to change, whether or not it will be looked up."""
        if stream.incarnation <= self._position and stream.name not in self._copies:
            self._copies[stream.name] = self._kept(stream)

    def _kept(self, stream: Stream) -> Stream:
        kept = copy(stream)
        self._hold(kept)
        origin = kept.origin
        # A fork's part of its source never changes as long as the fork holds it.
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

    def end_lookups(self) -> None:
        """End the lookups: later changes no longer matter, and no stream needs to be copied."""
        if self in self._state.observers:
            self._state.observers.remove(self)
        self._copies, self._last = {}, None

    def close(self) -> None:
        """Release everything the instant holds. Idempotent."""
        self.end_lookups()
        segments, self.segments = self.segments, {}
        if self._reads is not None:
            self._reads.release(segments.values())
