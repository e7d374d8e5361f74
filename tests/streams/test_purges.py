"""Purges in the state: asked for, advanced by the keeper, and forgotten; and objects that are withdrawn."""

import pytest

from headwater.protocol.limits import SECOND_US
from headwater.protocol.refusals import Code, Refusal
from headwater.streams import purges as purging
from headwater.streams.commands import Command
from headwater.streams.commands.cluster import Keep
from headwater.streams.commands.lake import PublishSegment
from headwater.streams.commands.purges import (
    DELETING,
    DONE,
    DROPPING,
    REFUSED,
    REWRITING,
    AdvancePurge,
    AskPurge,
    Purge,
    WithdrawSegments,
)
from headwater.streams.commands.streams import Create
from headwater.streams.images import image_of, restore
from headwater.streams.replies import Done, Misplaced, Placed, Reply

from .lakes import LATE, rewrite
from .shards import Shards

TEXT = "text/plain"


def decide(shards: Shards, command: Command) -> Reply:
    return shards.all[0].submit([command], shards.now)[0]


def purges(shards: Shards) -> dict[str, Purge]:
    return shards.all[0].state.cold.purges


def test_a_purge_of_a_stream_takes_its_lives_up_to_the_position_and_no_other_stream() -> None:
    purge = Purge(DELETING, 10, "b/s", False, False)
    assert purge.takes("b/s", 10)
    assert purge.takes("b/s", 3)
    assert not purge.takes("b/s", 11)
    assert not purge.takes("b/s2", 3)


def test_a_purge_of_a_prefix_takes_whole_names_that_begin_so_and_its_forks() -> None:
    purge = Purge(DELETING, 10, "b/s", True, True, {"c/fork": 12})
    assert purge.takes("b/s2", 3)
    assert not purge.takes("b/r", 3)
    assert purge.takes("c/fork", 12)
    assert not purge.takes("c/fork", 5), "an earlier life of that name was no fork of it"


def test_a_purge_is_remembered_where_it_was_asked_for(shards: Shards) -> None:
    shards.ask(Create("b/s", TEXT))
    assert decide(shards, AskPurge("one", "b/s", False, True)) == Done()
    asked = purges(shards)["one"]
    assert asked == Purge(DELETING, shards.all[0].state.position, "b/s", False, True)
    assert decide(shards, AskPurge("one", "b/other", True, False)) == Done()
    assert purges(shards) == {"one": asked}, "a repeated request changes nothing"


def test_a_purge_names_its_streams_until_their_rows_are_gone(shards: Shards) -> None:
    decide(shards, AskPurge("one", "b/s", False, True))
    assert decide(shards, AdvancePurge("one", DELETING, None, {"b/f": 2})) == Done()
    assert decide(shards, AdvancePurge("one", REWRITING, None, {"b/g": 3})) == Done()
    assert purges(shards)["one"] == Purge(REWRITING, 1, "b/s", False, True, {"b/f": 2, "b/g": 3})
    assert decide(shards, AdvancePurge("one", DROPPING, None)) == Done()
    assert purges(shards)["one"] == Purge(DROPPING, 1, "", False, True)
    assert not purges(shards)["one"].has_ended
    decide(shards, AdvancePurge("one", DONE, None))
    assert purges(shards)["one"].has_ended
    assert decide(shards, AdvancePurge("unknown", DONE, None)) == Done()


def test_only_the_node_that_does_the_chores_advances_a_purge(shards: Shards) -> None:
    decide(shards, AskPurge("one", "b/s", False, False))
    assert isinstance(decide(shards, AdvancePurge("one", DONE, 2)), Misplaced)
    decide(shards, Keep("n1", "session", 5 * SECOND_US))
    epoch = shards.all[0].state.position
    assert isinstance(decide(shards, AdvancePurge("one", DONE, epoch + 1)), Misplaced)
    assert purges(shards)["one"].stage == DELETING
    assert decide(shards, AdvancePurge("one", DONE, epoch)) == Done()
    assert purges(shards)["one"].stage == DONE


def test_purges_are_limited_and_those_that_have_ended_make_room(
    shards: Shards, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(purging, "PURGES_MAX", 2)
    for number in range(2):
        assert decide(shards, AskPurge(f"p{number}", "b/s", False, False)) == Done()
    refused = decide(shards, AskPurge("p2", "b/s", False, False))
    assert isinstance(refused, Refusal)
    assert refused.code is Code.OVERLOADED
    for number in range(2, 6):
        decide(shards, AdvancePurge(f"p{number - 2}", REFUSED, None))
        assert decide(shards, AskPurge(f"p{number}", "b/s", False, False)) == Done()
    assert list(purges(shards)) == ["p2", "p3", "p4", "p5"], "two that have ended, two in progress"


def test_an_image_has_the_purges_and_what_was_withdrawn(shards: Shards) -> None:
    decide(shards, AskPurge("one", "b/s", True, True))
    decide(shards, AdvancePurge("one", DELETING, None, {"b/f": 2}))
    decide(shards, WithdrawSegments({"id": LATE}))
    state = shards.all[0].state
    restored = restore(image_of(state))
    assert restored.cold.purges == state.cold.purges
    assert restored.cold.withdrawn == {"id": LATE}
    assert image_of(restored) == image_of(state)


def test_an_object_that_was_withdrawn_is_never_published(shards: Shards) -> None:
    shards.ask(Create("b/s", TEXT, payload=b"abc"))
    shard = shards.all[0]
    publication = shard.collect()
    assert decide(shards, WithdrawSegments({publication.segment.id: LATE})) == Done()
    assert isinstance(decide(shards, PublishSegment(publication, LATE, 0)), Misplaced)
    other = shard.collect()
    assert decide(shards, PublishSegment(other, LATE, 0)) == Placed()


def test_a_rewrite_that_was_withdrawn_replaces_nothing(shards: Shards) -> None:
    shards.ask(Create("b/s", TEXT, payload=b"abc"))
    shards.flush()
    shard = shards.all[0]
    [number] = shard.state.cold.segments
    swap = rewrite(shard.lake, shard.state, [number])
    decide(shards, WithdrawSegments({swap.publications[0].segment.id: LATE}))
    assert isinstance(decide(shards, swap), Misplaced)
    assert list(shard.state.cold.segments) == [number]


def test_a_withdrawal_is_forgotten_after_its_deadline(shards: Shards) -> None:
    decide(shards, WithdrawSegments({"early": shards.now + SECOND_US, "late": LATE}))
    shards.wait(2)
    decide(shards, WithdrawSegments({"new": LATE}))
    assert list(shards.all[0].state.cold.withdrawn) == ["late", "new"]
