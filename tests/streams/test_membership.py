from headwater.protocol.limits import SECOND_US
from headwater.protocol.refusals import Code, Refusal
from headwater.streams import images
from headwater.streams.commands import Command
from headwater.streams.commands.cluster import (
    AskFlush,
    AskTables,
    Cataloged,
    Checkpoint,
    Cluster,
    Evict,
    Join,
    Keep,
    Keeper,
    Member,
    RaiseLevel,
)
from headwater.streams.commands.command import LEVEL, ROWS
from headwater.streams.commands.consumers import RegisterConsumerFor
from headwater.streams.commands.lake import PublishSegment
from headwater.streams.commands.streams import Append, Create
from headwater.streams.images import image_of, restore
from headwater.streams.membership import judge_proposal
from headwater.streams.replies import Done, Misplaced, Placed, Reply

from .lakes import LATE
from .shards import START_US, Shards

LEASE_US = 5 * SECOND_US


def decide(shards: Shards, command: Command) -> Reply:
    return shards.all[0].submit([command], shards.now)[0]


def cluster(shards: Shards) -> Cluster:
    return shards.all[0].state.cluster


def test_a_node_joins_once_and_its_successor_takes_its_name(shards: Shards) -> None:
    assert decide(shards, Join("n1", "a", "http://n1", LEVEL)) == Done()
    assert decide(shards, Join("n1", "a", "http://n1", LEVEL)) == Done()
    assert cluster(shards).members == {"n1": Member("a", "http://n1", LEVEL, 1)}
    decide(shards, Join("n1", "b", "http://n1", LEVEL))
    assert cluster(shards).members == {"n1": Member("b", "http://n1", LEVEL, 3)}


def test_a_late_join_of_a_process_that_has_ended_does_not_replace_its_successor(shards: Shards) -> None:
    decide(shards, Join("n1", "b", "http://n1", LEVEL, 200))
    assert isinstance(decide(shards, Join("n1", "a", "http://n1", LEVEL, 100)), Misplaced)
    assert cluster(shards).members == {"n1": Member("b", "http://n1", LEVEL, 1, 200)}
    assert decide(shards, Join("n1", "b", "http://n1", LEVEL, 150)) == Done()
    assert decide(shards, Join("n1", "c", "http://n1", LEVEL, 200)) == Done()
    assert cluster(shards).members["n1"].session == "c"


def test_an_eviction_is_for_one_process(shards: Shards) -> None:
    decide(shards, Join("n1", "b", "http://n1", LEVEL))
    decide(shards, Evict("n1", "a"))
    decide(shards, Evict("n2", "b"))
    assert set(cluster(shards).members) == {"n1"}
    assert decide(shards, Evict("n1", "b")) == Done()
    assert not cluster(shards).members


def test_only_a_member_evicts_others(shards: Shards) -> None:
    for node, session in (("n1", "a"), ("n2", "b")):
        decide(shards, Join(node, session, "", LEVEL))
    assert decide(shards, Evict("n1", "a", "b")) == Done()
    assert isinstance(decide(shards, Evict("n2", "b", "a")), Misplaced), "it was evicted itself"
    assert set(cluster(shards).members) == {"n2"}
    assert decide(shards, Evict("n2", "b", "b")) == Done(), "a node leaves"
    assert not cluster(shards).members


def test_the_chores_of_an_evicted_node_are_free(shards: Shards) -> None:
    for node, session in (("n1", "a"), ("n2", "b")):
        decide(shards, Join(node, session, "", LEVEL))
    decide(shards, Keep("n1", "a", LEASE_US))
    decide(shards, Evict("n2", "b"))
    assert cluster(shards).keeper == Keeper("n1", "a", 3, START_US + LEASE_US)
    decide(shards, Evict("n1", "a"))
    assert cluster(shards).keeper is None


def test_one_node_at_a_time_does_the_chores(shards: Shards) -> None:
    assert decide(shards, Keep("n1", "a", LEASE_US)) == Done()
    assert isinstance(decide(shards, Keep("n2", "b", LEASE_US)), Misplaced)
    shards.wait(5)
    assert isinstance(decide(shards, Keep("n2", "b", 0)), Misplaced)
    assert decide(shards, Keep("n1", "a", LEASE_US)) == Done()
    assert cluster(shards).keeper == Keeper("n1", "a", 1, START_US + 2 * LEASE_US), "a renewal keeps its epoch"
    shards.wait(5.1)
    assert decide(shards, Keep("n2", "b", LEASE_US)) == Done()
    assert cluster(shards).keeper == Keeper("n2", "b", 5, shards.now + LEASE_US)


def test_a_restarted_node_takes_the_chores_with_another_epoch(shards: Shards) -> None:
    decide(shards, Keep("n1", "a", LEASE_US))
    assert isinstance(decide(shards, Keep("n1", "b", LEASE_US)), Misplaced)
    shards.wait(6)
    decide(shards, Keep("n1", "b", LEASE_US))
    assert cluster(shards).keeper == Keeper("n1", "b", 3, shards.now + LEASE_US)


def test_the_chores_are_given_back(shards: Shards) -> None:
    decide(shards, Keep("n1", "a", LEASE_US))
    assert decide(shards, Keep("n1", "a", 0)) == Done()
    assert cluster(shards).keeper is None


def test_a_publication_of_an_earlier_epoch_is_refused(shards: Shards) -> None:
    shards.ask(Create("b/s", "text/plain", payload=b"1"))
    decide(shards, Keep("n1", "a", LEASE_US))
    publication = shards.all[0].collect()
    for epoch in (1, 3):
        assert isinstance(decide(shards, PublishSegment(publication, LATE, 2, epoch)), Misplaced)
    assert decide(shards, PublishSegment(publication, LATE, 2, 2)) == Placed()
    shards.ask(Append("b/s", b"2", content_type="text/plain"))
    decide(shards, Keep("n1", "a", 0))
    assert isinstance(decide(shards, PublishSegment(shards.all[0].collect(), LATE, 2, 2)), Misplaced)


def test_a_level_is_raised_when_every_member_knows_it(shards: Shards) -> None:
    decide(shards, Join("n1", "a", "", 1))
    decide(shards, Join("n2", "b", "", 2))
    assert isinstance(decide(shards, RaiseLevel(2)), Misplaced)
    decide(shards, Join("n1", "c", "", 2))
    assert decide(shards, RaiseLevel(2)) == Done()
    assert decide(shards, RaiseLevel(1)) == Done()
    assert cluster(shards).level == 2
    assert isinstance(decide(shards, Join("n3", "d", "", 1)), Misplaced)
    assert set(cluster(shards).members) == {"n1", "n2"}


def test_a_command_is_proposed_only_when_every_member_knows_it(shards: Shards) -> None:
    state = shards.all[0].state
    level = ROWS[RegisterConsumerFor].level
    assert judge_proposal(state, RegisterConsumerFor, "This") is None, "a server without other nodes knows its own"
    decide(shards, Join("n1", "a", "", level))
    refusal = judge_proposal(state, RegisterConsumerFor, "This")
    assert refusal == Refusal(
        Code.NOT_IMPLEMENTED, f"This needs level {level}, but the cluster has 1; upgrade all nodes."
    )
    decide(shards, RaiseLevel(level))
    assert judge_proposal(state, RegisterConsumerFor, "This") is None


def test_this_version_knows_every_level() -> None:
    assert max(row.level for row in ROWS.values()) == LEVEL


def test_nodes_ask_for_flushes_and_learn_how_far_the_catalog_is(shards: Shards) -> None:
    decide(shards, AskFlush("n1"))
    assert cluster(shards).flush_asked == 1
    assert isinstance(decide(shards, Cataloged(1, 1)), Misplaced)
    decide(shards, Keep("n1", "a", LEASE_US))
    assert isinstance(decide(shards, Cataloged(1, 1)), Misplaced)
    for position in (2, 1):
        assert decide(shards, Cataloged(position, 3)) == Done()
    assert cluster(shards).cataloged == 2


def test_nodes_ask_for_all_tables_together_with_a_flush(shards: Shards) -> None:
    decide(shards, AskFlush("n1"))
    assert decide(shards, AskTables("n1")) == Done()
    assert (cluster(shards).flush_asked, cluster(shards).tables_asked) == (2, 2)
    decide(shards, AskFlush("n1"))
    assert (cluster(shards).flush_asked, cluster(shards).tables_asked) == (3, 2)


def test_the_latest_checkpoint_is_known(shards: Shards) -> None:
    for name in ("c", "d"):
        assert decide(shards, Checkpoint(name)) == Done()
        assert cluster(shards).checkpoint == name


def test_an_image_holds_the_nodes_as_they_were(shards: Shards) -> None:
    decide(shards, Join("n1", "a", "http://n1", LEVEL))
    decide(shards, Keep("n1", "a", LEASE_US))
    state = shards.all[0].state
    walk = images.Walk(state)
    decide(shards, Join("n2", "b", "http://n2", LEVEL))
    restored = restore(list(walk.pieces()))
    walk.end()
    assert set(restored.cluster.members) == {"n1"}
    assert restored.cluster.keeper == Keeper("n1", "a", 2, START_US + LEASE_US)
    assert restore(image_of(state)).cluster == state.cluster
