"""The whole state of a shard: everything that the log has decided so far, and nothing else.

A *life* is one incarnation of a stream, from its creation to its removal. `State.streams` maps a name to the life that
holds it, which is alive, expired (its deadline has passed, but no command has made that permanent yet), or a *ghost*:
deleted, but kept because forks hold pins on it.

- `owed`: pins on other streams that forks removed here still have to release.
- `unconfirmed`: pins on streams here whose forks have not been confirmed yet.
- `finished`: the latest producers that write nothing more, the latest last.
- `discarded`: snapshot blobs that are no longer used and may still be on disk.
- `cold`: what the shard knows about the lake; `cluster`: about the nodes that share its log.
- `hot_bytes`: the memory that the hot appends of all streams are charged.
- `lives` and `ghosts` count lives per bucket, `bytes` what they store; `bucket_names` are the buckets that exist, in
  order, `warm` names the streams with hot appends, `forks` those that are forks, `sealed` the buckets with a seal.
  They are derived and not part of an image.
"""

from bisect import bisect_right
from collections import Counter
from operator import attrgetter
from sys import intern
from typing import Protocol

import msgspec

from headwater.protocol.etags import Version
from headwater.protocol.lifetimes import FOREVER, Lifetime, deadline
from headwater.protocol.names import bucket_of
from headwater.protocol.producers import LastAccepted
from headwater.protocol.refusals import Code, Refusal, incarnation_changed, stream_gone, stream_not_found
from headwater.streams.cold import ALL, Cold
from headwater.streams.commands.cluster import Cluster
from headwater.streams.commands.forks import Ancestry, Origin
from headwater.streams.commands.snapshots import Snapshot
from headwater.streams.hot import Hot, hot_cost
from headwater.streams.segments import Extent
from headwater.streams.sorted_names import SortedNames


class Hold(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What a fork needs of its source: a range, and the snapshot before it."""

    start: int
    to: int
    blob: str | None


class Stream(msgspec.Struct, gc=False, array_like=True):
    """One life of one stream. It never takes part in a reference cycle, so the garbage collector ignores it."""

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
    """What forks need of this stream, by pin id. The first needs the most: a start never moves back."""
    hot: list[Hot] | None = None
    """Appends in memory, in order. The list only grows; a trim or a flush replaces it."""
    snapshot: Snapshot | None = None
    attrs: bytes | None = None
    extents: tuple[Extent, ...] = ()
    """Where the older bytes are in the lake: in order, without a gap, up to the first hot append."""

    @property
    def hot_start(self) -> int:
        """Where the bytes in memory begin; earlier ones are in the lake."""
        return self.hot[0].offset if self.hot else self.tail

    @property
    def hot_bytes(self) -> int:
        """The memory that its hot appends are charged."""
        hot = self.hot
        return hot_cost(self.tail - hot[0].offset, len(hot), self.record_next - hot[0].record) if hot else 0

    @property
    def floor(self) -> int:
        """Neither the stream nor a fork needs anything below this offset."""
        if not self.pins:
            return self.start
        return min(self.start, next(iter(self.pins.values())).start)

    @property
    def stored_bytes(self) -> int:
        """The bytes that are kept because of it: its own, for itself and its forks, without those it inherits."""
        own = self.floor if self.origin is None else max(self.floor, self.origin.to)
        return self.tail - own

    def judge_version(self, if_match: tuple[Version, ...] | None) -> Refusal | None:
        """Why a change that is meant for certain versions of the stream does not apply to the present one."""
        if if_match is None or Version(self.incarnation, self.tail, self.closed) in if_match:
            return None
        return Refusal(
            Code.PRECONDITION_FAILED,
            f"Stream {self.name!r} has changed since the ETag in If-Match.",
            incarnation=self.incarnation,
            next_offset=self.tail,
            closed=self.closed,
        )

    def expired(self, now: int) -> bool:
        """Whether its deadline has passed."""
        if self.lifetime is FOREVER:
            return False
        end = deadline(self.lifetime, self.touched_at)
        return end is not None and now >= end


class Debt(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A pin that a fork of this shard held and its source has yet to release."""

    source: str
    incarnation: int


class OpenPin(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A pin on a stream of this shard whose fork has not been confirmed yet."""

    source: str
    incarnation: int
    fork: str
    deadline: int


class Bucket(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A bucket that was created explicitly; a seal blocks the creation of streams while it is being dropped."""

    created_at: int
    seal: str | None = None
    seal_deadline: int = 0


class Observer(Protocol):
    """Receives every stream just before a command changes it."""

    def before_change(self, stream: Stream) -> None: ...


class State:
    """A shard at one log position."""

    __slots__ = (
        "bucket_names",
        "buckets",
        "bytes",
        "cluster",
        "cold",
        "discarded",
        "finished",
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
        "sealed",
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
        self.bucket_names = SortedNames()
        self.sealed: dict[str, None] = {}
        self.owed: dict[str, Debt] = {}
        self.unconfirmed: dict[str, OpenPin] = {}
        self.discarded: dict[str, None] = {}
        self.finished: dict[str, None] = {}
        self.cold = Cold()
        self.cluster = Cluster()
        self.hot_bytes = 0
        self.warm: dict[str, None] = {}
        self.forks: dict[str, None] = {}
        self.lives: Counter[str] = Counter()
        self.ghosts: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        self.observers: list[Observer] = []

    def present(self, name: str, now: int) -> Stream | Refusal:
        """The stream of that name if it is alive; else why not: unknown, expired, or kept only for its forks."""
        return living(self.streams.get(name), name, now)

    def find(self, name: str, incarnation: int | None, now: int) -> Stream | Refusal:
        """The living stream of that name, provided it is the incarnation that the client names, if it names one."""
        stream = living(self.streams.get(name), name, now)
        if incarnation is not None and isinstance(stream, Stream) and incarnation != stream.incarnation:
            return incarnation_changed(name, stream.incarnation)
        return stream

    def before_change(self, stream: Stream) -> None:
        """Every command calls this before it changes a stream, so that observers still see it unchanged."""
        for observer in self.observers:
            observer.before_change(stream)

    def add(self, stream: Stream) -> None:
        """Add a new life under its name."""
        self.restore(stream)
        self.names.add(stream.name)
        bucket = bucket_of(stream.name)
        if self.lives[bucket] == 1 and bucket not in self.buckets:
            self.bucket_names.add(bucket)

    def restore(self, stream: Stream) -> None:
        """Add a life, but not to the sorted names; values that many streams share are interned."""
        stream.content_type = intern(stream.content_type)
        if stream.lifetime == FOREVER:
            stream.lifetime = FOREVER
        self.streams[stream.name] = stream
        bucket = bucket_of(stream.name)
        self.lives[bucket] += 1
        self.bytes[bucket] += stream.stored_bytes
        if stream.deleted:
            self.ghosts[bucket] += 1
        if stream.hot:
            self.warm[stream.name] = None
        if stream.origin is not None:
            self.forks[stream.name] = None
            self.cold.list_fork(stream.incarnation, stream.name, self.position)

    def end(self, stream: Stream) -> None:
        """End a life: it is removed at once, or becomes a ghost until the last fork has released it."""
        if not stream.pins:
            self.remove(stream)
            return
        self.before_change(stream)
        stream.deleted = True
        self.ghosts[bucket_of(stream.name)] += 1
        self._hide(stream, ALL)
        if stream.origin is not None:
            self.cold.list_fork(stream.incarnation, stream.name, self.position)  # As deleted.

    def remove(self, stream: Stream) -> None:
        """Remove a life and its bytes; if it was a fork, a debt to its source remains."""
        self.before_change(stream)
        bucket = bucket_of(stream.name)
        del self.streams[stream.name]
        self.names.remove(stream.name)
        _count_down(self.lives, bucket)
        self.bytes[bucket] -= stream.stored_bytes
        if bucket not in self.lives:
            del self.bytes[bucket]
            if bucket not in self.buckets:
                self.bucket_names.remove(bucket)
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
            self.cold.list_fork(stream.incarnation, stream.name, self.position)

    def discard(self, stream: Stream, blob: str) -> None:
        """Release a snapshot's blob, unless a fork still needs it or it belongs to the source of this fork."""
        inherited = stream.origin is not None and stream.origin.blob == blob
        held = stream.pins is not None and any(hold.blob == blob for hold in stream.pins.values())
        if not inherited and not held:
            self.discarded[blob] = None

    def trim(self, stream: Stream) -> None:
        """Drop what neither the retained range nor a fork needs; lists are replaced, never shortened in place."""
        floor = stream.floor
        if stream.origin is not None:
            self.cold.list_fork(stream.incarnation, stream.name, self.position)  # Its inherited bytes begin later.
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

    def recount(self, stream: Stream, stored_bytes: int) -> None:
        """Count anew what a stream stores, which was `stored_bytes` so far."""
        self.bytes[bucket_of(stream.name)] += stream.stored_bytes - stored_bytes

    def _shorten(self, stream: Stream) -> None:
        """Release the trimmed rows at the beginning of the first extent; with forks it stays whole."""
        first = stream.extents[0] if stream.extents and not stream.pins else None
        if first is None or stream.record_start <= first.record:
            return
        dead = stream.record_start - first.record
        self.cold.release([Extent(first.segment, first.row, dead, first.start, stream.start, first.record)])
        rest = Extent(first.segment, first.row + dead, first.rows - dead, stream.start, first.end, stream.record_start)
        stream.extents = (rest, *stream.extents[1:])
        self.cold.changed_at = self.position

    def cool(self, stream: Stream, appends: int) -> None:
        """Release the oldest hot appends of a stream."""
        assert stream.hot is not None
        self.hot_bytes -= stream.hot_bytes
        stream.hot = stream.hot[appends:] or None
        self.hot_bytes += stream.hot_bytes
        if stream.hot is None:
            self.warm.pop(stream.name, None)

    def _hide(self, stream: Stream, below: int) -> None:
        record = ALL if below == ALL else stream.record_start
        dead = [extent.dead_before(record) for extent in stream.extents if extent.start < below]
        if dead:
            self.cold.hide(stream.name, stream.incarnation, below, dead)
            self.cold.changed_at = self.position


def living(stream: Stream | None, name: str, now: int) -> Stream | Refusal:
    """A stream found under a name if it is alive; else the refusal."""
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
