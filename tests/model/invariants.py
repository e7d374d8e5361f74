"""What holds in every state that any log can lead to, and what holds once all chores are done."""

from ..streams.shards import Shards


def check_shards(shards: Shards) -> None:
    """Sound at any time."""
    held = {stream.origin.pin for stream in shards.streams if stream.origin}
    owed = {pin for shard in shards.all for pin in shard.state.owed}
    for shard in shards.all:
        state = shard.state
        assert list(state.names.after("", 1_000_000)) == sorted(state.streams)
        assert state.hot_bytes == sum(len(hot.payload) for stream in state.streams.values() for hot in stream.hot or ())
        for name, stream in state.streams.items():
            assert stream.name == name
            assert shards.owner(name) is shard
            assert stream.pins is None or stream.pins
            assert not stream.deleted or stream.pins, "a deleted stream stays only for its forks"
            for pin in stream.pins or ():
                assert pin in state.unconfirmed or pin in held or pin in owed, "a pin leaked"
            ends = [hot.end for hot in stream.hot or ()]
            begins = [hot.offset for hot in stream.hot or ()]
            first = stream.origin.to if stream.origin else 0
            assert [*begins, stream.tail] == [first, *ends], "appends follow each other without a gap"
            if stream.origin is not None:
                source = shards.source_of(stream.origin)
                assert (source.pins or {}).get(stream.origin.pin) == stream.origin.to, "a fork has lost its hold"
                assert stream.origin.to <= source.tail
        for pin, opened in state.unconfirmed.items():
            source = state.streams[opened.source]
            assert source.incarnation == opened.incarnation
            assert pin in (source.pins or {})


def check_tidied(shards: Shards) -> None:
    """Nothing is left to do, and nothing is left over."""
    check_shards(shards)
    held = [stream.origin.pin for stream in shards.streams if stream.origin]
    pins = [pin for stream in shards.streams for pin in stream.pins or ()]
    assert sorted(held) == sorted(pins), "every pin has its fork, every fork its pin"
    assert not any(shard.state.unconfirmed or shard.state.owed for shard in shards.all)
