import pytest

from headwater.protocol.lifetimes import FOREVER, Lifetime
from headwater.protocol.limits import SECOND_US
from headwater.protocol.message_ends import pack
from headwater.protocol.refusals import Code, Refusal
from headwater.streams.commands.forks import Pin
from headwater.streams.commands.streams import Append, Create, Delete, Touch
from headwater.streams.hot import Hot, hot_cost
from headwater.streams.state import State, Stream

from .shards import START_US, Shards


def code_of(found: Stream | Refusal) -> Code | None:
    return found.code if isinstance(found, Refusal) else None


def test_a_new_shard_is_empty() -> None:
    state = State("journal")
    assert (state.position, state.now, state.hot_bytes) == (0, 0, 0)
    assert code_of(state.present("b/s", 0)) is Code.STREAM_NOT_FOUND


def test_a_stream_is_present_until_its_deadline(shards: Shards) -> None:
    shards.ask(Create("b/s", "text/plain", Lifetime(ttl_seconds=10)))
    state, end = shards.all[0].state, START_US + 11 * SECOND_US
    assert state.present("b/s", end - 1) is state.streams["b/s"]
    assert code_of(state.present("b/s", end)) is Code.STREAM_NOT_FOUND


def test_an_expired_stream_is_gone_rather_than_missing_while_a_fork_holds_it(shards: Shards) -> None:
    shards.ask(Create("b/s", "text/plain", Lifetime(ttl_seconds=10)))
    shards.ask(Pin("b/s", "pin", "b/f", START_US))
    assert code_of(shards.all[0].state.present("b/s", START_US + 11 * SECOND_US)) is Code.STREAM_GONE


def test_a_deleted_stream_that_a_fork_holds_is_gone(shards: Shards) -> None:
    shards.ask(Create("b/s", "text/plain"))
    shards.ask(Pin("b/s", "pin", "b/f", START_US))
    shards.ask(Delete("b/s"))
    assert code_of(shards.all[0].state.present("b/s", START_US)) is Code.STREAM_GONE


@pytest.mark.parametrize(
    ("lifetime", "expired"),
    [
        (FOREVER, False),
        (Lifetime(), False),
        (Lifetime(ttl_seconds=0), True),
        (Lifetime(ttl_seconds=1), False),
        (Lifetime(expires_at=START_US), True),
        (Lifetime(expires_at=START_US + 1), False),
    ],
)
def test_a_stream_without_time_is_expired_at_once(lifetime: Lifetime, expired: bool) -> None:
    stream = Stream("b/s", 1, "text/plain", lifetime, START_US, START_US, START_US)
    assert stream.expired(START_US) is expired


def test_what_many_streams_share_is_kept_once(shards: Shards) -> None:
    shards.ask(Create("b/s", "text/x-shared"))
    shards.ask(Create("b/t", "text/x-shared"))
    assert shards.stream("b/s").content_type is shards.stream("b/t").content_type
    assert shards.stream("b/s").lifetime is FOREVER


def test_hot_bytes_are_those_of_the_streams_that_are_there(shards: Shards) -> None:
    state = shards.all[0].state
    shards.ask(Create("b/s", "text/plain", payload=b"123"))
    shards.ask(Append("b/s", b"45", content_type="text/plain"))
    shards.ask(Create("b/t", "text/plain", payload=b"6"))
    assert (shards.stream("b/s").hot_bytes, state.hot_bytes) == (hot_cost(5, 2, 2), hot_cost(6, 3, 3))
    shards.ask(Delete("b/s"))
    assert state.hot_bytes == hot_cost(1, 1, 1)


def test_a_fork_counts_only_its_own_bytes_as_hot(shards: Shards) -> None:
    shards.ask(Create("b/s", "text/plain", payload=b"123"))
    shards.finish(shards.fork("b/f", "b/s", body=b"45"))
    assert shards.stream("b/f").tail == 5
    assert (shards.stream("b/f").hot_bytes, shards.all[0].state.hot_bytes) == (
        hot_cost(2, 1, 1),
        hot_cost(5, 2, 2),
    )


def test_an_append_knows_where_it_ends_and_how_many_messages_it_holds() -> None:
    one = Hot(10, b"abc", None, 0, 1, 0, None)
    two = Hot(10, b"abc", pack((1, 3)), 0, 1, 0, None)
    assert (one.end, one.messages, list(one.message_ends)) == (13, 1, [3])
    assert (two.end, two.messages, list(two.message_ends)) == (13, 2, [1, 3])


class Witness:
    """Records what a stream was like before each change."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, int, bool]] = []

    def before_change(self, stream: Stream) -> None:
        self.seen.append((stream.name, stream.tail, stream.deleted))


def test_an_observer_sees_a_stream_before_it_changes(shards: Shards) -> None:
    shards.ask(Create("b/s", "text/plain", payload=b"123"))
    witness = Witness()
    shards.all[0].state.observers.append(witness)
    shards.ask(Append("b/s", b"45", content_type="text/plain"))
    shards.now += 1
    shards.ask(Touch("b/s", 1, shards.now))
    shards.ask(Pin("b/s", "pin", "b/f", START_US))
    shards.ask(Delete("b/s"))
    assert witness.seen == [("b/s", 3, False), ("b/s", 5, False), ("b/s", 5, False), ("b/s", 5, False)]


def test_all_watchers_of_a_state_are_notified_until_they_stop(shards: Shards) -> None:
    shards.ask(Create("b/s", "text/plain", payload=b"123"))
    state, early, late = shards.all[0].state, Witness(), Witness()
    state.observers += [early, late]
    shards.ask(Append("b/s", b"45", content_type="text/plain"))
    state.observers.remove(early)
    shards.ask(Append("b/s", b"6", content_type="text/plain"))
    assert early.seen == [("b/s", 3, False)]
    assert late.seen == [("b/s", 3, False), ("b/s", 5, False)]


def test_what_a_bucket_stores_follows_its_appends_trims_forks_and_deletions(shards: Shards) -> None:
    shards.ask(Create("b/s", "text/plain", payload=b"12345"))
    shards.ask(Append("b/s", b"67890", content_type="text/plain"))
    stored = shards.all[0].state.bytes
    assert stored == {"b": 10}
    shards.finish(shards.fork("c/f", "b/s"))
    shards.ask(Append("c/f", b"xyz", content_type="text/plain"))
    assert stored == {"b": 10, "c": 3}, "a fork stores what it adds"
    shards.publish("b/s", 5, "folded", trims=True)
    assert shards.stream("b/s").start == 5
    assert stored["b"] == 10, "the fork needs what was trimmed"
    shards.ask(Delete("b/s"))
    assert stored["b"] == 10, "and what was deleted"
    shards.ask(Delete("c/f"))
    shards.tidy()
    assert stored == {}


def test_trimming_and_the_release_of_a_fork_make_room(shards: Shards) -> None:
    shards.ask(Create("b/s", "text/plain", payload=b"12345"))
    shards.ask(Append("b/s", b"67890", content_type="text/plain"))
    stored = shards.all[0].state.bytes
    shards.finish(shards.fork("c/f", "b/s"))
    shards.publish("b/s", 5, "folded", trims=True)
    shards.ask(Delete("c/f"))
    shards.tidy()
    assert stored == {"b": 5}
    shards.publish("b/s", 10, "all of it", trims=True)
    assert stored == {"b": 0}


def test_a_fork_that_was_trimmed_beyond_its_fork_point_stores_what_is_left(shards: Shards) -> None:
    shards.ask(Create("b/s", "text/plain", payload=b"12345"))
    shards.finish(shards.fork("c/f", "b/s"))
    for payload in (b"67", b"890"):
        shards.ask(Append("c/f", payload, content_type="text/plain"))
    shards.publish("c/f", 5, "inherited", trims=True)
    assert shards.all[0].state.bytes["c"] == 5
    shards.publish("c/f", 7, "more", trims=True)
    assert shards.all[0].state.bytes["c"] == 3
