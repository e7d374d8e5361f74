"""The state of a shard, whole: everything that the log has decided so far, and nothing else.

`State.streams` maps a name to the one life that holds it. A life is alive, expired (its deadline has passed, nobody
has made it permanent yet), or deleted but kept because forks hold pins on it. `State.owed` lists pins on other
streams whose forks have ended here; `State.unconfirmed` lists pins on streams here whose forks have not reported yet.
"""

from sys import intern
from typing import Protocol

import msgspec

from headwater.protocol.commands import Ancestry, Origin
from headwater.protocol.lifetimes import FOREVER, Lifetime, deadline
from headwater.protocol.producers import LastAccepted, Producer
from headwater.protocol.refusals import Refusal, stream_gone, stream_not_found
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
    pins: dict[str, int] | None = None
    """Pin id to the position up to which a fork needs this stream."""
    hot: list[Hot] | None = None
    """Appends in memory, in order; only ever grows."""

    @property
    def hot_bytes(self) -> int:
        return self.tail - self.hot[0].offset if self.hot else 0

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


class Observer(Protocol):
    """Whoever must see a stream as it is before a command changes it."""

    def before_change(self, stream: Stream) -> None: ...


class State:
    """A shard as of one log position."""

    __slots__ = ("hot_bytes", "journal", "names", "now", "observer", "owed", "position", "streams", "unconfirmed")

    def __init__(self, journal: str) -> None:
        self.journal = journal
        self.position = 0
        self.now = 0
        self.streams: dict[str, Stream] = {}
        self.names = SortedNames()
        self.owed: dict[str, Debt] = {}
        self.unconfirmed: dict[str, OpenPin] = {}
        self.hot_bytes = 0
        self.observer: Observer | None = None

    def present(self, name: str, now: int) -> Stream | Refusal:
        """The living stream of that name, or why there is none: never there, expired, or kept only for its forks."""
        stream = self.streams.get(name)
        if stream is None:
            return stream_not_found(name)
        if stream.deleted:
            return stream_gone(name)
        if stream.expired(now):
            return stream_gone(name) if stream.pins else stream_not_found(name)
        return stream

    def before_change(self, stream: Stream) -> None:
        """Every command calls this before it changes a stream, so that an image in the making keeps the old view."""
        if self.observer is not None:
            self.observer.before_change(stream)

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

    def bury(self, stream: Stream) -> None:
        """Take a life out, with its bytes; if it was a fork, its source is owed a release."""
        self.before_change(stream)
        del self.streams[stream.name]
        self.names.remove(stream.name)
        self.hot_bytes -= stream.hot_bytes
        if stream.origin is not None:
            self.owed[stream.origin.pin] = Debt(stream.origin.name, stream.origin.incarnation)
