"""Streams that change while they are in the lake: which rows are dead, and when a new catalog is due."""

import pytest

from headwater.protocol.message_ends import pack
from headwater.streams.cold import ALL
from headwater.streams.commands import Command
from headwater.streams.commands.forks import Pin, Unpin
from headwater.streams.commands.snapshots import Retain
from headwater.streams.commands.streams import Append, Create, Delete
from headwater.streams.hot import hot_cost
from headwater.streams.replies import Acknowledged, Reply
from headwater.streams.segments import Extent

from .shards import START_US, Shards
from .tombstones import Mark, marks

TEXT = "text/plain"


@pytest.fixture
def shards() -> Shards:
    """b/s: abc, def, ghi; b/t: one append of the messages 1, 23."""
    shards = Shards()
    shards.ask(Create("b/s", TEXT, payload=b"abc"))
    shards.ask(Append("b/s", b"def", content_type=TEXT))
    shards.ask(Create("b/t", TEXT, payload=b"123", ends=pack((1, 3))))
    shards.ask(Append("b/s", b"ghi", content_type=TEXT))
    return shards


def submit(shards: Shards, *commands: Command) -> list[Reply]:
    return shards.all[0].submit(list(commands), shards.now)


# -- What is dead -----------------------------------------------------------------------------------------------------


def test_what_is_deleted_is_dead_in_every_segment_that_has_some_of_it(shards: Shards) -> None:
    shards.flush("b/s", appends_max=1)
    shards.flush()
    shards.ask(Delete("b/s"))
    state = shards.all[0].state
    assert [held.live_rows for held in state.cold.segments.values()] == [0, 2]
    assert marks(state.cold) == {1: Mark("b/s", ALL, (1, 2))}
    assert state.cold.changed_at == state.position


@pytest.mark.parametrize(
    ("offset", "extents", "live_rows", "tombstone"),
    [
        (1, 3, [1, 1, 3], Mark("b/j", 1, (1,))),
        (2, 2, [0, 1, 3], Mark("b/j", 2, (1,))),
        (4, 1, [0, 0, 3], Mark("b/j", 4, (1, 2))),
        (5, 1, [0, 0, 2], Mark("b/j", 5, (1, 2, 3))),
        (7, 0, [0, 0, 0], Mark("b/j", 7, (1, 2, 3))),
    ],
)
def test_a_trim_lets_extents_go_and_the_beginning_of_one(
    offset: int, extents: int, live_rows: list[int], tombstone: Mark
) -> None:
    shards = Shards()
    shards.ask(Create("b/j", "application/json", payload=b"12", ends=pack((1, 2))))
    shards.flush()
    shards.ask(Append("b/j", b"34", content_type="application/json"))
    shards.flush()
    shards.ask(Append("b/j", b"567", pack((1, 2, 3)), "application/json"))
    shards.flush()
    state = shards.all[0].state
    shards.publish("b/j", offset)
    assert len(shards.stream("b/j").extents) == extents
    assert [held.live_rows for held in state.cold.segments.values()] == live_rows
    assert marks(state.cold) == {1: tombstone}
    assert state.cold.changed_at == state.position


def test_a_trim_of_a_stream_with_forks_leaves_the_first_extent_whole_until_they_are_gone() -> None:
    shards = Shards()
    shards.ask(Create("b/j", "application/json", payload=b"1234", ends=pack((1, 2, 3, 4))))
    shards.finish(shards.fork("b/f", "b/j", 4))
    shards.flush()
    shards.publish("b/j", 2)
    assert shards.stream("b/j").extents == (Extent(1, 0, 4, 0, 4, 0),)
    shards.ask(Delete("b/f"))
    shards.tidy()
    assert shards.stream("b/j").extents == (Extent(1, 2, 2, 2, 4, 2),)
    assert [held.live_rows for held in shards.all[0].state.cold.segments.values()] == [2]


def test_a_trim_of_a_fork_within_the_bytes_of_its_source_leaves_its_own_in_the_lake_alone(shards: Shards) -> None:
    shards.finish(shards.fork("b/f", "b/s", 6, body=b"own"))
    shards.flush("b/f")
    shards.publish("b/f", 3)
    assert shards.stream("b/f").extents == (Extent(1, 0, 1, 6, 9, 2),)
    state = shards.all[0].state
    assert [held.live_rows for held in state.cold.segments.values()] == [1]
    assert not state.cold.tombstones


def test_a_stream_trimmed_into_its_hot_bytes_has_nothing_in_the_lake_any_more(shards: Shards) -> None:
    shards.flush("b/s", appends_max=1)
    shards.publish("b/s", 6)
    state = shards.all[0].state
    assert shards.stream("b/s").extents == ()
    assert [hot.offset for hot in shards.stream("b/s").hot or ()] == [6]
    assert state.hot_bytes == hot_cost(6, 2, 3)
    assert marks(state.cold) == {1: Mark("b/s", 6, (1,))}
    shards.flush("b/s")
    assert shards.stream("b/s").extents == (Extent(2, 0, 1, 6, 9, 2),)
    assert marks(state.cold) == {1: Mark("b/s", 6, (1,))}
    page = shards.plan(shards.stream("b/s"), 6, 100)
    assert page.next_offset == 9


def test_a_fork_keeps_what_its_source_has_trimmed_until_it_ends(shards: Shards) -> None:
    shards.flush()
    submit(shards, Pin("b/s", "pin", "b/f", START_US))
    shards.publish("b/s", 9)
    state = shards.all[0].state
    assert len(shards.stream("b/s").extents) == 1
    assert state.cold.segments[1].live_rows == 5
    assert marks(state.cold) == {1: Mark("b/s", 9, (1,))}
    submit(shards, Unpin("b/s", 1, "pin"))
    assert shards.stream("b/s").extents == ()
    assert state.cold.segments[1].live_rows == 2
    assert marks(state.cold) == {1: Mark("b/s", 9, (1,))}
    assert state.cold.changed_at == state.position


def test_a_ghost_goes_with_its_last_fork_and_its_tombstone_stays_with_the_segment(shards: Shards) -> None:
    shards.flush()
    submit(shards, Pin("b/s", "pin", "b/f", START_US))
    shards.ask(Delete("b/s"))
    state = shards.all[0].state
    assert state.cold.segments[1].live_rows == 5
    assert marks(state.cold) == {1: Mark("b/s", ALL, (1,))}
    submit(shards, Unpin("b/s", 1, "pin"))
    assert state.cold.segments[1].live_rows == 2
    assert marks(state.cold) == {1: Mark("b/s", ALL, (1,))}


# -- When a catalog is due --------------------------------------------------------------------------------------------


@pytest.fixture
def fork(shards: Shards) -> Shards:
    """b/f, a fork of b/s without bytes of its own, which has a fork itself."""
    shards.finish(shards.fork("b/f", "b/s"))
    shards.finish(shards.fork("b/g", "b/f"))
    shards.ask(Append("b/t", b"later", content_type=TEXT))
    return shards


def test_a_fork_changes_what_a_catalog_says_when_it_is_made_and_when_it_is_gone(shards: Shards) -> None:
    state = shards.all[0].state
    assert (state.cold.changed_at, state.forks) == (0, {})
    shards.finish(shards.fork("b/f", "b/s"))
    made = shards.stream("b/f").incarnation
    assert (state.cold.changed_at, state.forks) == (made, {"b/f": None})
    shards.ask(Delete("b/f"))
    assert (state.cold.changed_at, state.forks) == (state.position, {})


def test_a_catalog_says_of_a_fork_that_it_is_deleted(fork: Shards) -> None:
    state = fork.all[0].state
    assert state.cold.changed_at < state.position
    fork.ask(Delete("b/f"))
    assert (state.cold.changed_at, state.forks) == (state.position, {"b/f": None, "b/g": None})


def test_a_catalog_says_from_where_on_a_fork_has_the_bytes_of_its_source(fork: Shards) -> None:
    state = fork.all[0].state
    fork.publish("b/f", 3)
    changed_at = state.cold.changed_at
    assert changed_at == state.position
    fork.publish("b/f", 3)
    assert state.cold.changed_at == changed_at


@pytest.mark.parametrize("change", ["append", "delete", "trim"])
def test_what_is_only_hot_is_in_no_catalog(change: str, fork: Shards) -> None:
    state = fork.all[0].state
    before = state.cold.changed_at
    fork.ask(Delete("b/t") if change == "delete" else Append("b/t", b"more", content_type=TEXT))
    if change == "trim":
        fork.publish("b/t", 3)
    assert state.cold.changed_at == before


def test_a_trim_up_to_where_the_lake_begins_changes_no_catalog(shards: Shards) -> None:
    """Its first row is the first that is retained, so none is dead."""
    shards.publish("b/s", 3)
    shards.flush()
    state = shards.all[0].state
    before = state.cold.changed_at
    shards.publish("b/s", 3, "folded")
    assert shards.ask(Retain("b/s", 1, 3, 1)) == Acknowledged(1)
    shards.ask(Append("b/s", b"jkl", content_type=TEXT))
    assert state.cold.changed_at == before
    assert not state.cold.tombstones
