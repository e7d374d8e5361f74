"""What holds in every state that any log can lead to, and what holds once all chores are done."""

from collections import Counter

from headwater.protocol.names import bucket_of
from headwater.streams.hot import hot_cost
from headwater.streams.state import Hold, State, Stream

from ..streams.shards import Shards
from .lake_invariants import check_lakes


def check_shards(shards: Shards) -> None:
    """Invariants that hold at any time."""
    held = {stream.origin.pin for stream in shards.streams if stream.origin}
    owed = {pin for shard in shards.all for pin in shard.state.owed}
    for shard in shards.all:
        state = shard.state
        assert list(state.names.after("", 1_000_000)) == sorted(state.streams)
        assert state.lives == Counter(map(bucket_of, state.streams))
        assert list(state.bucket_names.after("", 1_000_000)) == sorted({*state.buckets, *state.lives})
        assert state.ghosts == Counter(bucket_of(name) for name, stream in state.streams.items() if stream.deleted)
        assert state.hot_bytes == sum(
            hot_cost(len(hot.payload), 1, hot.messages) for stream in state.streams.values() for hot in stream.hot or ()
        )
        _check_bytes(state)
        for name, stream in state.streams.items():
            assert stream.name == name
            assert shards.owner(name) is shard
            assert stream.pins is None or stream.pins
            assert not stream.deleted or stream.pins, "a deleted stream stays only for its forks"
            for pin in stream.pins or ():
                assert pin in state.unconfirmed or pin in held or pin in owed, "a pin leaked"
            _check_appends(stream)
            _check_snapshot(stream, shards.blobs)
            if stream.origin is not None:
                source, origin = shards.source_of(stream.origin), stream.origin
                hold = Hold(origin.start, origin.to, origin.blob)
                assert (source.pins or {}).get(origin.pin) == hold, "a fork has lost its hold"
                assert origin.to <= source.tail
        for pin, opened in state.unconfirmed.items():
            source = state.streams[opened.source]
            assert source.incarnation == opened.incarnation
            assert pin in (source.pins or {})
    check_lakes(shards)


def _check_bytes(state: State) -> None:
    """What buckets store follows from their streams, and a bucket without streams is not counted."""
    stored: Counter[str] = Counter()
    for name, stream in state.streams.items():
        held = [hold.start for hold in (stream.pins or {}).values()]
        inherited = 0 if stream.origin is None else stream.origin.to
        kept = stream.tail - max(inherited, min([stream.start, *held]))
        assert kept >= 0
        stored[bucket_of(name)] += kept
    assert state.bytes == stored
    assert state.bytes.keys() == state.lives.keys()


def _check_appends(stream: Stream) -> None:
    """Hot appends follow each other without a gap up to the tail, and none ends before the first byte that is needed.

    Earlier appends are in the lake.
    """
    appends = stream.hot or []
    floor = min([stream.start, *(hold.start for hold in (stream.pins or {}).values())])
    first = max(stream.origin.to if stream.origin else 0, floor)
    begins, ends = [hot.offset for hot in appends], [hot.end for hot in appends]
    held_from = [*(extent.start for extent in stream.extents), *begins, stream.tail][0]
    assert held_from <= first, "bytes that are still needed are gone"
    if not appends:
        return
    assert [*begins[1:], stream.tail] == ends
    assert ends[0] > floor, "bytes are kept that nothing needs"
    records = [hot.record for hot in appends]
    assert [*records[1:], stream.record_next] == [hot.record + hot.messages for hot in appends]


def _check_snapshot(stream: Stream, blobs: set[str]) -> None:
    """A snapshot covers trimmed history, and every blob that is needed is on disk."""
    assert stream.start <= stream.tail
    assert stream.record_start <= stream.record_next
    snapshot = stream.snapshot
    if snapshot is not None:
        assert stream.start <= snapshot.offset <= stream.tail
        assert snapshot.blob in blobs, "a snapshot has lost its blob"
    else:
        assert (stream.start, stream.record_start) == (0, 0), "history is gone and no snapshot covers it"
    for hold in (stream.pins or {}).values():
        assert hold.blob is None or hold.blob in blobs, "a fork has lost its snapshot"


def check_tidied(shards: Shards) -> None:
    """No chore is left to do, and nothing is kept that is not needed."""
    check_shards(shards)
    held = [stream.origin.pin for stream in shards.streams if stream.origin]
    pins = [pin for stream in shards.streams for pin in stream.pins or ()]
    assert sorted(held) == sorted(pins), "every pin has its fork, every fork its pin"
    assert not any(shard.state.unconfirmed or shard.state.owed for shard in shards.all)
    assert not any(shard.state.discarded for shard in shards.all)
    needed = {stream.snapshot.blob for stream in shards.streams if stream.snapshot}
    needed |= {hold.blob for stream in shards.streams for hold in (stream.pins or {}).values() if hold.blob}
    assert shards.blobs == needed, "a blob is left over"
