"""An instant on a real state: streams that are looked up later are found as they were."""

from collections.abc import Callable

import pytest

from headwater.node.scans.instants import Instant
from headwater.protocol.lifetimes import Lifetime
from headwater.protocol.limits import SECOND_US
from headwater.protocol.refusals import Code, Refusal
from headwater.streams.commands import Command
from headwater.streams.commands.snapshots import PublishSnapshot, Snapshot
from headwater.streams.commands.streams import Append, Create, Delete
from headwater.streams.state import State, Stream

from ...streams.shards import START_US, Shard

TEXT = "text/plain"


@pytest.fixture
def shard() -> Shard:
    shard = Shard()
    do(shard, Create("b/s", TEXT, payload=b"one"))
    return shard


def do(shard: Shard, *commands: Command) -> None:
    shard.submit(list(commands), START_US)


def seen(outcome: Stream | Refusal) -> tuple[int, int, int, bool] | Code:
    if isinstance(outcome, Refusal):
        return outcome.code
    return outcome.incarnation, outcome.start, outcome.tail, outcome.closed


CHANGES: dict[str, Callable[[State], list[Command]]] = {
    "an append": lambda state: [Append("b/s", b"two", content_type=TEXT)],
    "a close": lambda state: [Append("b/s", b"", close=True)],
    "a trim": lambda state: [PublishSnapshot("b/s", 1, Snapshot(3, 1, "blob", TEXT, 1, "digest"), trims=True)],
    "an end": lambda state: [Delete("b/s")],
    "another life": lambda state: [Delete("b/s"), Create("b/s", TEXT, payload=b"another")],
    "two more lives": lambda state: [Delete("b/s"), Create("b/s", TEXT), Delete("b/s"), Create("b/s", TEXT)],
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("found_before", [False, True])
def test_a_change_is_not_seen(shard: Shard, change: Callable[[State], list[Command]], found_before: bool) -> None:
    instant = Instant(shard.state, START_US, None)
    if found_before:
        instant.find("b/s")
        instant.find("b/other")
    for command in change(shard.state):
        do(shard, command)
    assert seen(instant.find("b/s")) == (1, 0, 3, False)
    instant.close()
    assert not shard.state.observers


def test_a_stream_that_was_made_later_is_not_there(shard: Shard) -> None:
    instant = Instant(shard.state, START_US, None)
    do(shard, Create("b/new", TEXT, payload=b"new"))
    assert seen(instant.find("b/new")) is Code.STREAM_NOT_FOUND
    do(shard, Append("b/new", b"er", content_type=TEXT))
    assert seen(instant.find("b/new")) is Code.STREAM_NOT_FOUND
    instant.close()


def test_a_stream_is_there_until_it_has_expired(shard: Shard) -> None:
    do(shard, Create("b/ttl", TEXT, Lifetime(ttl_seconds=5)))
    for seconds, code in ((4, None), (60, Code.STREAM_NOT_FOUND)):
        instant = Instant(shard.state, START_US + seconds * SECOND_US, None)
        outcome = instant.find("b/ttl")
        assert (outcome.code if isinstance(outcome, Refusal) else None) is code
        instant.close()


def test_several_instants_are_kept_apart(shard: Shard) -> None:
    first = Instant(shard.state, START_US, None)
    do(shard, Append("b/s", b"two", content_type=TEXT))
    second = Instant(shard.state, START_US, None)
    do(shard, Append("b/s", b"three", content_type=TEXT))
    assert [seen(instant.find("b/s")) for instant in (first, second)] == [(1, 0, 3, False), (1, 0, 6, False)]
    first.close()
    assert shard.state.observers == [second]
    second.close()
