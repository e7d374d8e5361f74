"""The state of a shard, whole: everything that the log has decided so far, and nothing else.

`State.streams` maps a name to the one life that holds it. A life is alive, expired (its deadline has passed, nobody
has made it permanent yet), or a ghost: deleted, but kept because forks hold pins on it. `State.owed` lists pins on
other streams whose forks have ended here; `State.unconfirmed` lists pins on streams here whose forks have not reported
yet; `State.discarded` lists snapshot blobs that nothing needs any more and that may still be on disk; `State.cold` is
what is known of the lake. `State.lives` and `State.ghosts` count lives per bucket, `State.warm` names the streams with
hot appends, `State.forks` those that are forks; all of these follow from the streams and are in no image.
"""

from bisect import bisect_right
from collections import Counter
from operator import attrgetter
from sys import intern
from typing import Protocol

import msgspec

from headwater.protocol.lifetimes import FOREVER, Lifetime, deadline
from headwater.protocol.names import bucket_of
from headwater.protocol.producers import LastAccepted, Producer
from headwater.protocol.refusals import Refusal, stream_gone, stream_not_found
from headwater.streams.cold import ALL, Cold
from headwater.streams.commands import Ancestry, Origin, Snapshot
from headwater.streams.segments import Extent
from headwater.streams.sorted_names import SortedNames


class Hot(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One append that is in memory; `ends` says where each of several messages ends in the payload."""

    offset: int
    payload: bytes
    ends: tuple[int, ...] | None
    record: int
    position: int
    at: int
    producer: Producer | None

    @property
    def end(self) -> int:
        return self.offset + len(self.payload)

    @property
    def messages(self) -> int:
        return 1 if self.ends is None else len(self.ends)


class Hold(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What a fork needs of its source: a range, and the snapshot that stood before it."""

    start: int
    to: int
    blob: str | None


class Stream(msgspec.Struct, gc=False, array_like=True):
    """One life of one stream. No cycles ever: the collector need not know of it."""

    name: str
    incarnation: int
    content_type: str
    lifetime: Lifetime
    created_at: int
    written_at: int
    touched_at: int
    tail: int = 0
    record_next: int = 0
    start: int = 0
    record_start: int = 0
    closed: bool = False
    deleted: bool = False
    seq: str | None = None
    producers: dict[str, LastAccepted] | None = None
    origin: Origin | None = None
    ancestry: Ancestry | None = None
    pins: dict[str, Hold] | None = None
    """What forks need of this stream, by pin id."""
    hot: list[Hot] | None = None
    """Appends in memory, in order; only ever grows, a trim or a flush replaces it."""
    snapshot: Snapshot | None = None
    attrs: bytes | None = None
    extents: tuple[Extent, ...] = ()
    """Where its older bytes are in the lake, in order and without a gap, up to the first hot append."""

    @property
    def hot_start(self) -> int:
        """Where the bytes in memory begin; those before are in the lake."""
        return self.hot[0].offset if self.hot else self.tail

    @property
    def hot_bytes(self) -> int:
        return self.tail - self.hot_start

    @property
    def floor(self) -> int:
        """Below this neither the stream nor a fork needs anything."""
        if not self.pins:
            return self.start
        return min(self.start, *(hold.start for hold in self.pins.values()))

    def expired(self, now: int) -> bool:
        """Whether its deadline has passed."""
        if self.lifetime is FOREVER:
            return False
        end = deadline(self.lifetime, self.touched_at)
        return end is not None and now >= end


class Debt(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A pin that a fork of ours held and its source must let go of."""

    source: str
    incarnation: int


class OpenPin(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A pin on a stream of ours whose fork has not reported yet."""

    source: str
    incarnation: int
    fork: str
    deadline: int


class Bucket(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A bucket that was made by name; a seal keeps streams from being made in it while it is dropped."""

    created_at: int
    seal: str | None = None
    seal_deadline: int = 0


class Observer(Protocol):
    """Whoever must see a stream as it is before a command changes it."""

    def before_change(self, stream: Stream) -> None: ...


class State:
    """A shard as of one log position."""

    __slots__ = (
        "buckets",
        "cold",
        "discarded",
        "forks",
        "ghosts",
        "hot_bytes",
        "lives",
        "log_id",
        "names",
        "now",
        "observers",
        "owed",
        "position",
        "streams",
        "unconfirmed",
        "warm",
    )

    def __init__(self, log_id: str) -> None:
        self.log_id = log_id
        self.position = 0
        self.now = 0
        self.streams: dict[str, Stream] = {}
        self.names = SortedNames()
        self.buckets: dict[str, Bucket] = {}
        self.owed: dict[str, Debt] = {}
        self.unconfirmed: dict[str, OpenPin] = {}
        self.discarded: dict[str, None] = {}
        self.cold = Cold()
        self.hot_bytes = 0
        self.warm: dict[str, None] = {}
        self.forks: dict[str, None] = {}
        self.lives: Counter[str] = Counter()
        self.ghosts: Counter[str] = Counter()
        self.observers: list[Observer] = []

    def present(self, name: str, now: int) -> Stream | Refusal:
        """The living stream of that name, or why there is none: never there, expired, or kept only for its forks."""
        return living(self.streams.get(name), name, now)

    def before_change(self, stream: Stream) -> None:
        """Every command calls this before it changes a stream, so that whoever looks at many sees it as it was."""
        for observer in self.observers:
            observer.before_change(stream)

    def add(self, stream: Stream) -> None:
        """Enter a new life under its name."""
        self.restore(stream)
        self.names.add(stream.name)

    def restore(self, stream: Stream) -> None:
        """Enter a life without its sorted name; what many streams share is kept once."""
        stream.content_type = intern(stream.content_type)
        if stream.lifetime == FOREVER:
            stream.lifetime = FOREVER
        self.streams[stream.name] = stream
        self.lives[bucket_of(stream.name)] += 1
        if stream.deleted:
            self.ghosts[bucket_of(stream.name)] += 1
        if stream.hot:
            self.warm[stream.name] = None
        if stream.origin is not None:
            self.forks[stream.name] = None
            self.cold.changed_at = self.position

    def end(self, stream: Stream) -> None:
        """End a life: it goes at once, or becomes a ghost until the last fork has let go of it."""
        if not stream.pins:
            self.remove(stream)
            return
        self.before_change(stream)
        stream.deleted = True
        self.ghosts[bucket_of(stream.name)] += 1
        self._hide(stream, ALL)
        if stream.origin is not None:
            self.cold.changed_at = self.position  # A catalog lists it among the forks, and says that it is deleted.

    def remove(self, stream: Stream) -> None:
        """Take a life out, with its bytes; if it was a fork, its source is owed a release."""
        self.before_change(stream)
        bucket = bucket_of(stream.name)
        del self.streams[stream.name]
        self.names.remove(stream.name)
        _count_down(self.lives, bucket)
        if stream.deleted:
            _count_down(self.ghosts, bucket)
        self.hot_bytes -= stream.hot_bytes
        self.warm.pop(stream.name, None)
        self.cold.release(stream.extents)
        self._hide(stream, ALL)
        if stream.snapshot is not None:
            self.discard(stream, stream.snapshot.blob)
        if stream.origin is not None:
            self.owed[stream.origin.pin] = Debt(stream.origin.name, stream.origin.incarnation)
            del self.forks[stream.name]
            self.cold.changed_at = self.position

    def discard(self, stream: Stream, blob: str) -> None:
        """Let go of a snapshot's blob, unless a fork still needs it, or it belongs to the source of this fork."""
        inherited = stream.origin is not None and stream.origin.blob == blob
        held = stream.pins is not None and any(hold.blob == blob for hold in stream.pins.values())
        if not inherited and not held:
            self.discarded[blob] = None

    def trim(self, stream: Stream) -> None:
        """Drop what neither the stream's retained range nor a fork needs; lists are replaced, never shortened."""
        floor = stream.floor
        if stream.origin is not None:
            self.cold.changed_at = self.position  # A catalog says from where on the fork has its source's bytes.
        if stream.extents:
            if not stream.deleted:
                self._hide(stream, stream.start)
            kept = tuple(extent for extent in stream.extents if extent.end > floor)
            if len(kept) < len(stream.extents):
                self.cold.release(stream.extents[: len(stream.extents) - len(kept)])
                self.cold.changed_at = self.position
            stream.extents = kept
            self._shorten(stream)
        appends = stream.hot
        if appends and appends[0].end <= floor:
            self.cool(stream, bisect_right(appends, floor, key=attrgetter("end")))

    def _shorten(self, stream: Stream) -> None:
        """Let go of the rows at the beginning of the first extent that were trimmed; with forks it stays as it is."""
        first = stream.extents[0] if stream.extents and not stream.pins else None
        if first is None or stream.record_start <= first.record:
            return
        dead = stream.record_start - first.record
        self.cold.release([Extent(first.segment, first.row, dead, first.start, stream.start, first.record)])
        rest = Extent(first.segment, first.row + dead, first.rows - dead, stream.start, first.end, stream.record_start)
        stream.extents = (rest, *stream.extents[1:])
        self.cold.changed_at = self.position

    def cool(self, stream: Stream, appends: int) -> None:
        """Let the oldest hot appends of a stream go."""
        assert stream.hot is not None
        self.hot_bytes -= stream.hot_bytes
        stream.hot = stream.hot[appends:] or None
        self.hot_bytes += stream.hot_bytes
        if stream.hot is None:
            self.warm.pop(stream.name, None)

    def _hide(self, stream: Stream, below: int) -> None:
        dead = [extent.segment for extent in stream.extents if extent.start < below]
        if dead:
            self.cold.hide(stream.name, stream.incarnation, below, dead)
            self.cold.changed_at = self.position


def living(stream: Stream | None, name: str, now: int) -> Stream | Refusal:
    """A stream that was found under a name, or why there is none."""
    if stream is None:
        return stream_not_found(name)
    if stream.deleted:
        return stream_gone(name)
    if stream.expired(now):
        return stream_gone(name) if stream.pins else stream_not_found(name)
    return stream


def _count_down(counter: Counter[str], bucket: str) -> None:
    counter[bucket] -= 1
    if not counter[bucket]:
        del counter[bucket]
