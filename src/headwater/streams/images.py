"""Images: the whole state of a shard at one log position, in canonical pieces, taken without stopping the shard.

The first piece is the `Header`, followed by purges if there are any, by the lake's segments and tombstones and by the
streams in order of their names, each list in as many pieces as it needs. A stream too large for one piece continues in
pieces with its further appends. Where pieces are cut depends on the state alone, so two replicas at one position write
the same bytes.

Commands are applied while a walk is in progress. A stream that is about to change before the walk reaches it is set
aside first: its metadata is copied, its appends are kept by reference and length, because that list only grows. A life
that began after the walk is not part of the image.
"""

import heapq
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple, TypeVar

import msgspec

from headwater.streams.cold import Consumer, Held, Retired, Tombstone
from headwater.streams.commands.cluster import Cluster
from headwater.streams.commands.purges import Purge
from headwater.streams.hot import Hot
from headwater.streams.sorted_names import SortedNames
from headwater.streams.state import Bucket, Debt, OpenPin, State, Stream

T = TypeVar("T")

VERSION = 7
READABLE = frozenset({7})
"""Earlier images do not say which rows of a segment are dead."""
PIECE_BYTES = 256 * 1024
PIECE_ROWS = 2_000
"""What one piece may contain, so that encoding it never blocks the event loop for long."""
NAMES_PER_STEP = 256


class Header(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="header"):
    """Everything that is not per stream."""

    version: int
    log_id: str
    position: int
    now: int
    buckets: dict[str, Bucket]
    owed: dict[str, Debt]
    unconfirmed: dict[str, OpenPin]
    discarded: dict[str, None]
    finished: dict[str, None]
    flushed: int
    dropped: int
    changed_at: int
    next_number: int
    consumers: dict[str, Consumer]
    retired: dict[str, Retired]
    cluster: Cluster = Cluster()


class Purges(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="purges"):
    """Purges, and objects that were withdrawn. Without either there is no such piece: earlier versions have none."""

    purges: dict[str, Purge]
    withdrawn: dict[str, int]


class Segments(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="segments"):
    """The next segments, with their numbers."""

    segments: list[tuple[int, Held]]


class Tombstones(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="tombstones"):
    """The next tombstones, with their incarnations."""

    tombstones: list[tuple[int, Tombstone]]


class Streams(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="streams"):
    """The next streams by name; the last one may continue in `Appends`."""

    streams: list[Stream]


class Appends(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="appends"):
    """More appends of the preceding stream."""

    appends: list[Hot]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Header | Purges | Segments | Tombstones | Streams | Appends)


class _View(NamedTuple):
    """A stream as the image sees it: metadata, and the first `length` of its appends."""

    stream: Stream
    length: int


class Walk:
    """An image being taken; the state reports every change to it until it ends."""

    def __init__(self, state: State) -> None:
        assert not any(isinstance(other, Walk) for other in state.observers), "one image at a time"
        self.position = state.position
        self._state = state
        self._cursor = ""
        self._aside: dict[str, _View] = {}
        self._aside_names: list[str] = []
        cold = state.cold
        self._segments, self._tombstones = iter(dict(cold.segments).items()), cold.tombstones.freeze()
        self._header = Header(
            VERSION,
            state.log_id,
            state.position,
            state.now,
            dict(state.buckets),
            dict(state.owed),
            dict(state.unconfirmed),
            dict(state.discarded),
            dict(state.finished),
            cold.flushed,
            cold.dropped,
            cold.changed_at,
            cold.next_number,
            dict(cold.consumers),
            dict(cold.retired),
            state.cluster,
        )
        self._purges = Purges(dict(cold.purges), dict(cold.withdrawn))
        state.observers.append(self)

    def before_change(self, stream: Stream) -> None:
        """Set aside a stream that is about to change before the walk reaches it."""
        if stream.name <= self._cursor or stream.incarnation > self.position or stream.name in self._aside:
            return
        copy = msgspec.structs.replace(
            stream,
            producers=None if stream.producers is None else dict(stream.producers),
            pins=None if stream.pins is None else dict(stream.pins),
        )
        self._aside[stream.name] = _View(copy, len(stream.hot or ()))
        heapq.heappush(self._aside_names, stream.name)

    def end(self) -> None:
        """Stop watching the state, whether or not the image is finished."""
        if self in self._state.observers:
            self._state.observers.remove(self)

    def pieces(self) -> Iterator[bytes]:
        """The image's pieces; commands may be applied between any two of them."""
        yield _encoder.encode(self._header)
        if self._purges.purges or self._purges.withdrawn:
            yield _encoder.encode(self._purges)
        for segments in _cut(self._segments):
            yield _encoder.encode(Segments(segments))
        for tombstones in _cut(self._tombstones):
            yield _encoder.encode(Tombstones(tombstones))
        group: list[msgspec.Raw] = []
        size = 0
        for view in self._views():
            # Encoded at once: the group contains bytes only, which no later command can change.
            appends = view.stream.hot
            first, rest = _part(appends, 0, view.length)
            encoded = _encoder.encode(msgspec.structs.replace(view.stream, hot=first or None))
            if group and size + len(encoded) > PIECE_BYTES:
                yield _encode_streams(group)
                group, size = [], 0
            group.append(msgspec.Raw(encoded))
            size += len(encoded)
            while rest < view.length:
                if group:
                    yield _encode_streams(group)
                    group, size = [], 0
                more, rest = _part(appends, rest, view.length)
                yield _encoder.encode(Appends(more))
        if group:
            yield _encode_streams(group)

    def _views(self) -> Iterator[_View]:
        while True:
            names = list(self._state.names.after(self._cursor, NAMES_PER_STEP))
            for name in sorted({*names, *self._aside_up_to(names[-1] if names else None)}):
                self._cursor = name
                view = self._aside.pop(name, None)
                if view is not None:
                    yield view
                    continue
                stream = self._state.streams.get(name)
                if stream is not None and stream.incarnation <= self.position:
                    yield _View(stream, len(stream.hot or ()))
            if not names:
                return

    def _aside_up_to(self, last: str | None) -> Iterator[str]:
        # Streams deleted in the meantime are no longer among the names, but still part of the image.
        while self._aside_names and (last is None or self._aside_names[0] <= last):
            name = heapq.heappop(self._aside_names)
            if name in self._aside:  # Otherwise it was still among the names when the walk reached it.
                yield name


def _cut(entries: Iterator[tuple[int, T]]) -> Iterator[list[tuple[int, T]]]:
    """The entries, as many at a time as one piece may hold, in the order in which the state has them.

    That order is part of the state: the log decides it, and `restore` keeps it. Sorting them all would take too long.
    """
    while piece := list(islice(entries, PIECE_ROWS)):
        yield piece


def _encode_streams(group: list[msgspec.Raw]) -> bytes:
    return _encoder.encode(("streams", group))


def _part(appends: list[Hot] | None, start: int, count: int) -> tuple[list[Hot], int]:
    """The appends from `start` that fit into one piece, and where the next piece begins."""
    stop, size = start, 0
    while stop < count and stop - start < PIECE_ROWS and size < PIECE_BYTES:
        assert appends is not None
        size += len(appends[stop].payload) + len(appends[stop].ends or b"")
        stop += 1
    return (appends[start:stop] if appends else []), stop


def restore(pieces: Iterable[bytes | memoryview]) -> State:
    """The state in an image; ValueError if its pieces are not those of one."""
    decoded = map(_decoder.decode, pieces)
    header = next(decoded, None)
    if not isinstance(header, Header):
        raise ValueError("the image does not begin with its header")
    if header.version not in READABLE:
        raise ValueError(f"the image has version {header.version}; this server reads version {VERSION}")
    state = State(header.log_id)
    state.position, state.now = header.position, header.now
    state.buckets, state.discarded = header.buckets, header.discarded
    state.owed, state.unconfirmed = header.owed, header.unconfirmed
    state.finished, state.cluster = header.finished, header.cluster
    last: Stream | None = None
    for piece in decoded:
        if isinstance(piece, Appends):
            if last is None or last.hot is None:
                raise ValueError("the image has appends without the stream that they belong to")
            last.hot.extend(piece.appends)
        elif isinstance(piece, Segments):
            for number, held in piece.segments:
                state.cold.keep(number, held)
        elif isinstance(piece, Tombstones):
            for incarnation, tombstone in piece.tombstones:
                state.cold.hide(tombstone.name, incarnation, tombstone.below, tombstone.dead)
        elif isinstance(piece, Streams):
            for last in piece.streams:
                state.restore(last)
        elif isinstance(piece, Purges):
            state.cold.purges, state.cold.withdrawn = piece.purges, piece.withdrawn
        else:
            raise ValueError("the image has a second header")
    cold = state.cold
    cold.flushed, cold.dropped, cold.changed_at = header.flushed, header.dropped, header.changed_at
    cold.next_number, cold.consumers, cold.retired = header.next_number, header.consumers, header.retired
    state.names = SortedNames(state.streams)
    state.sealed = {bucket: None for bucket, entry in state.buckets.items() if entry.seal is not None}
    state.bucket_names = SortedNames({*state.buckets, *state.lives})
    state.hot_bytes = sum(stream.hot_bytes for stream in state.streams.values())
    return state


def image_of(state: State) -> list[bytes]:
    """The image of a state that does not change meanwhile."""
    walk = Walk(state)
    pieces = list(walk.pieces())
    walk.end()
    return pieces
