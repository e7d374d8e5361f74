import pytest

from headwater.protocol.lifetimes import FOREVER, Lifetime
from headwater.protocol.limits import SECOND_US
from headwater.protocol.message_ends import pack
from headwater.protocol.producers import Producer
from headwater.protocol.refusals import Code, Refusal
from headwater.streams import forking
from headwater.streams.commands.forks import Ancestry, Confirm, CreateFork, Unpin
from headwater.streams.commands.streams import Append, Create, Delete
from headwater.streams.queries import Anchor
from headwater.streams.replies import Appended, Created, Duplicate, Existed, Reply
from headwater.streams.state import Hold

from .shards import START_US, Shards, Task

SOURCE, FORK = "b/source", "b/copy"
TTL = Lifetime(ttl_seconds=10)
TTL_AND_A_TENTH = 11


@pytest.fixture(params=[1, 3], ids=["one shard", "three shards"])
def shards(request: pytest.FixtureRequest) -> Shards:
    """A source of text at position 1 of its shard; with three shards the fork is in another one."""
    shards = Shards(request.param)
    shards.ask(Create(SOURCE, "text/plain", payload=b"abc"))
    return shards


def code_of(reply: Reply | None) -> Code | None:
    return reply.code if isinstance(reply, Refusal) else None


def pins_of(shards: Shards, name: str) -> dict[str, Hold]:
    return shards.stream(name).pins or {}


def test_source_and_fork_of_these_tests_are_in_different_shards_where_there_are_three() -> None:
    shards = Shards(3)
    assert shards.owner(SOURCE) is not shards.owner(FORK)


# -- The saga ---------------------------------------------------------------------------------------------------------


def test_a_fork_begins_with_the_bytes_of_its_source(shards: Shards) -> None:
    created = shards.finish(shards.fork(FORK, SOURCE))
    assert created == Created(shards.stream(FORK).incarnation, "text/plain", 3, False)
    assert shards.body(FORK) == b"abc"


def test_source_and_fork_go_their_own_ways(shards: Shards) -> None:
    shards.finish(shards.fork(FORK, SOURCE, body=b"F"))
    shards.ask(Append(SOURCE, b"S", content_type="text/plain", close=True))
    assert isinstance(shards.ask(Append(FORK, b"G", content_type="text/plain")), Appended)
    assert (shards.body(SOURCE), shards.body(FORK)) == (b"abcS", b"abcFG")


def test_a_fork_of_a_closed_stream_is_open_unless_it_asks_to_be_closed(shards: Shards) -> None:
    shards.ask(Append(SOURCE, b"", close=True))
    assert shards.finish(shards.fork(FORK, SOURCE)) == Created(
        shards.stream(FORK).incarnation, "text/plain", 3, closed=False
    )
    assert shards.finish(shards.fork("b/closed", SOURCE, closed=True, body=b"last words")) == Created(
        shards.stream("b/closed").incarnation, "text/plain", 13, closed=True
    )


def test_a_fork_inherits_no_producers_and_no_stream_seq(shards: Shards) -> None:
    first = Append(SOURCE, b"x", content_type="text/plain", seq="z", producer=Producer("p", 0, 0))
    shards.ask(first)
    shards.finish(shards.fork(FORK, SOURCE))
    assert isinstance(
        shards.ask(Append(FORK, b"x", content_type="text/plain", seq="a", producer=Producer("p", 0, 0))), Appended
    )


@pytest.mark.parametrize(
    ("source", "requested", "lifetime"),
    [
        (FOREVER, None, FOREVER),
        (TTL, None, TTL),
        (Lifetime(None, 2 * START_US, "later"), None, Lifetime(None, 2 * START_US, "later")),
        (TTL, Lifetime(ttl_seconds=99), Lifetime(ttl_seconds=99)),
        (TTL, Lifetime(None, 2 * START_US, "later"), Lifetime(None, 2 * START_US, "later")),
        (FOREVER, TTL, TTL),
    ],
)
def test_a_fork_inherits_the_lifetime_that_it_does_not_ask_for(
    source: Lifetime, requested: Lifetime | None, lifetime: Lifetime, shards: Shards
) -> None:
    shards.ask(Create("b/other", "text/plain", source))
    shards.finish(shards.fork(FORK, "b/other", lifetime=requested))
    assert shards.stream(FORK).lifetime == lifetime


def test_forking_does_not_renew_the_source(shards: Shards) -> None:
    shards.ask(Create("b/other", "text/plain", TTL))
    shards.wait(10)
    shards.finish(shards.fork(FORK, "b/other"))
    assert shards.stream("b/other").touched_at == START_US
    assert shards.stream(FORK).touched_at == START_US + 10 * SECOND_US


def test_a_fork_may_write_its_content_type_in_its_own_way(shards: Shards) -> None:
    shards.finish(shards.fork(FORK, SOURCE, content_type="Text/Plain; charset=utf-8"))
    assert shards.stream(FORK).content_type == "Text/Plain; charset=utf-8"


def test_the_body_of_a_fork_of_json_is_cut_into_messages(shards: Shards) -> None:
    shards.ask(Create("b/json", "application/json", payload=b"12", ends=pack((1, 2))))
    shards.finish(shards.fork(FORK, "b/json", 0, sub_offset=1, body=b' [3, "x"] '))
    assert [*shards.messages(FORK)] == [[b"1", b"3", b'"x"']]
    assert shards.stream(FORK).record_next == 3


def test_an_empty_array_is_an_empty_body_of_a_fork_of_json(shards: Shards) -> None:
    shards.ask(Create("b/json", "application/json", payload=b"1"))
    assert isinstance(shards.finish(shards.fork(FORK, "b/json", body=b"[]")), Created)
    assert shards.stream(FORK).hot is None


def test_sub_offsets_add_up_over_chained_forks(shards: Shards) -> None:
    shards.finish(shards.fork("b/one", SOURCE, 0, sub_offset=2, body=b"123"))
    shards.finish(shards.fork("b/two", "b/one", 2, sub_offset=1, body=b"xyz"))
    shards.finish(shards.fork("b/three", "b/two", 0, sub_offset=1))
    assert [shards.body(name) for name in ("b/one", "b/two", "b/three")] == [b"ab123", b"ab1xyz", b"a"]
    assert [shards.stream(name).record_next for name in ("b/one", "b/two", "b/three")] == [2, 3, 1]


def test_a_fork_of_too_many_forks_is_refused(shards: Shards, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forking, "FORK_DEPTH_MAX", 2)
    assert isinstance(shards.finish(shards.fork("b/one", SOURCE)), Created)
    assert isinstance(shards.finish(shards.fork("b/two", "b/one")), Created)
    assert code_of(shards.finish(shards.fork("b/three", "b/two"))) is Code.FORK_CONFLICT
    assert not pins_of(shards, "b/two")


def test_the_client_has_its_answer_before_the_pin_is_confirmed(shards: Shards) -> None:
    task = shards.fork(FORK, SOURCE)
    while task.answer is None:
        task.step(shards)
    assert isinstance(task.answer, Created)
    assert task.pending == Confirm(SOURCE, 1, "pin-1")
    assert list(shards.owner(SOURCE).state.unconfirmed) == ["pin-1"]
    task.step(shards)
    assert not shards.owner(SOURCE).state.unconfirmed
    assert pins_of(shards, SOURCE) == {"pin-1": Hold(0, 3, None)}


def test_a_refused_fork_releases_its_source_before_its_client_is_answered(shards: Shards) -> None:
    task = shards.fork(FORK, SOURCE, content_type="text/html")
    while not isinstance(task.pending, Unpin):
        task.step(shards)
    assert list(pins_of(shards, SOURCE)) == ["pin-1"]
    assert task.answer is None
    task.step(shards)
    assert not pins_of(shards, SOURCE)
    assert not shards.owner(SOURCE).state.unconfirmed
    assert code_of(shards.finish(task)) is Code.CONTENT_TYPE_MISMATCH


@pytest.mark.parametrize(
    ("ancestry", "code"),
    [
        (Ancestry(SOURCE, 4, 0, None, None), Code.OFFSET_BEYOND_TAIL),
        (Ancestry(SOURCE, 0, 4, None, None), Code.INVALID_OFFSET),
        (Ancestry(SOURCE, 3, 1, None, None), Code.INVALID_OFFSET),
        (Ancestry(SOURCE, None, 0, "text/html", None), Code.CONTENT_TYPE_MISMATCH),
        (Ancestry(SOURCE, None, 0, "text/xml", None), Code.CONTENT_TYPE_MISMATCH),
        (Ancestry(SOURCE, 3, 0, "application/json", None), Code.CONTENT_TYPE_MISMATCH),
    ],
)
def test_a_refused_fork_leaves_nothing_behind(ancestry: Ancestry, code: Code, shards: Shards) -> None:
    assert code_of(shards.finish(fork_of(ancestry, shards))) is code
    shards.ask(Delete(SOURCE))
    assert shards.streams == []


def test_a_fork_with_a_bad_body_is_refused(shards: Shards) -> None:
    shards.ask(Create("b/json", "application/json"))
    assert code_of(shards.finish(shards.fork(FORK, "b/json", body=b"[1"))) is Code.INVALID_JSON
    assert not pins_of(shards, "b/json")


def test_a_fork_may_be_the_first_request_of_a_producer(shards: Shards) -> None:
    first = Producer("p", 3, 0)
    created = shards.finish(shards.fork(FORK, SOURCE, body=b"F", seq="b", producer=first))
    incarnation = shards.stream(FORK).incarnation
    assert created == Created(incarnation, "text/plain", 4, False, 3, 0)
    again = Append(FORK, b"F", content_type="text/plain", producer=first)
    assert shards.ask(again) == Duplicate(incarnation, 4, False, 3, 0, size=1)
    assert code_of(shards.ask(Append(FORK, b"G", content_type="text/plain", seq="a"))) is Code.STREAM_SEQ_CONFLICT


def test_a_producer_that_repeats_its_fork_with_other_content_is_refused(shards: Shards) -> None:
    first = Producer("p", 3, 0)
    shards.finish(shards.fork(FORK, SOURCE, body=b"F", producer=first))
    assert isinstance(shards.finish(shards.fork(FORK, SOURCE, body=b"F", producer=first)), Existed)
    assert isinstance(shards.finish(shards.fork(FORK, SOURCE, body=b"G")), Existed)
    assert isinstance(shards.finish(shards.fork(FORK, SOURCE, body=b"G", producer=Producer("q", 3, 0))), Existed)
    refused = shards.finish(shards.fork(FORK, SOURCE, body=b"G", producer=first))
    assert code_of(refused) is Code.PRODUCER_PAYLOAD_MISMATCH
    assert shards.body(FORK) == b"abcF"


def test_a_repeated_fork_of_json_is_compared_by_its_messages(shards: Shards) -> None:
    shards.ask(Create("b/json", "application/json"))
    first = Producer("p", 0, 0)
    shards.finish(shards.fork(FORK, "b/json", body=b"[1, 23]", producer=first))
    assert isinstance(shards.finish(shards.fork(FORK, "b/json", body=b"[1,23]", producer=first)), Existed)
    for body, code in ((b"[12, 3]", Code.PRODUCER_PAYLOAD_MISMATCH), (b"[1,", Code.INVALID_JSON)):
        assert code_of(shards.finish(shards.fork(FORK, "b/json", body=body, producer=first))) is code


@pytest.mark.parametrize("first", [TTL, None])
@pytest.mark.parametrize("second", [TTL, None])
def test_an_inherited_lifetime_and_the_same_one_spelled_out_are_the_same(
    first: Lifetime | None, second: Lifetime | None, shards: Shards
) -> None:
    shards.ask(Create("b/brief", "text/plain", TTL))
    shards.finish(shards.fork(FORK, "b/brief", lifetime=first))
    assert isinstance(shards.finish(shards.fork(FORK, "b/brief", lifetime=second)), Existed)


def test_a_fork_by_a_producer_that_does_not_begin_with_zero_is_refused(shards: Shards) -> None:
    assert code_of(shards.finish(shards.fork(FORK, SOURCE, producer=Producer("p", 3, 1)))) is Code.PRODUCER_SEQ_CONFLICT
    assert not pins_of(shards, SOURCE)


def test_a_fork_that_means_another_life_changes_nothing(shards: Shards) -> None:
    shards.finish(shards.fork(FORK, SOURCE))
    here = shards.stream(FORK).incarnation
    assert code_of(shards.finish(shards.fork(FORK, SOURCE, incarnation=here + 1))) is Code.INCARNATION_CHANGED
    assert isinstance(shards.finish(shards.fork(FORK, SOURCE, incarnation=here)), Existed)


@pytest.mark.parametrize("offset", [None, 0])
def test_a_fork_of_nothing_is_not_found(offset: int | None, shards: Shards) -> None:
    assert code_of(shards.finish(shards.fork(FORK, "b/nothing", offset))) is Code.STREAM_NOT_FOUND


@pytest.mark.parametrize("offset", [None, 0])
def test_a_fork_of_an_expired_stream_is_not_found(offset: int | None, shards: Shards) -> None:
    shards.ask(Create("b/ttl", "text/plain", Lifetime(ttl_seconds=0)))
    assert code_of(shards.finish(shards.fork(FORK, "b/ttl", offset))) is Code.STREAM_NOT_FOUND


@pytest.mark.parametrize("offset", [None, 0])
def test_a_deleted_stream_cannot_be_forked_again(offset: int | None, shards: Shards) -> None:
    shards.finish(shards.fork(FORK, SOURCE))
    shards.ask(Delete(SOURCE))
    assert code_of(shards.finish(shards.fork("b/second", SOURCE, offset))) is Code.FORK_CONFLICT


def test_a_source_that_was_created_again_since_its_anchor_was_found_is_not_forked(shards: Shards) -> None:
    task = shards.fork(FORK, SOURCE, 3)
    task.step(shards)
    assert isinstance(task.pending, Anchor)
    task.step(shards)
    shards.ask(Delete(SOURCE))
    shards.ask(Create(SOURCE, "text/plain", payload=b"other"))
    assert code_of(shards.finish(task)) is Code.STREAM_NOT_FOUND
    assert not pins_of(shards, SOURCE)


# -- A second PUT of the fork -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("source_lives", [True, False])
@pytest.mark.parametrize(
    ("first", "second"),
    [
        (Ancestry(SOURCE, None, 0, None, None), Ancestry(SOURCE, None, 0, None, None)),
        (Ancestry(SOURCE, 1, 1, "text/plain", TTL), Ancestry(SOURCE, 1, 1, "TEXT/plain", TTL)),
        (Ancestry(SOURCE, 1, 1, "text/plain", None), Ancestry(SOURCE, None, 1, None, None)),
        (Ancestry(SOURCE, None, 0, None, None), Ancestry(SOURCE, None, 0, "text/plain", None)),
    ],
)
def test_the_same_fork_again_exists_already_whatever_became_of_its_source(
    first: Ancestry, second: Ancestry, source_lives: bool, shards: Shards
) -> None:
    created = shards.finish(fork_of(first, shards))
    assert isinstance(created, Created)
    if not source_lives:
        shards.ask(Delete(SOURCE))
    assert shards.finish(fork_of(second, shards)) == Existed(
        created.incarnation, "text/plain", created.next_offset, False
    )
    assert len(pins_of(shards, SOURCE)) == 1


@pytest.mark.parametrize(
    "second",
    [
        Ancestry("b/another", 1, 1, "text/plain", TTL),
        Ancestry("b/yet another", 1, 1, "text/plain", TTL),
        Ancestry(SOURCE, 2, 1, "text/plain", TTL),
        Ancestry(SOURCE, 1, 0, "text/plain", TTL),
        Ancestry(SOURCE, 1, 1, "text/html", TTL),
        Ancestry(SOURCE, 1, 1, "text/plain", Lifetime(ttl_seconds=11)),
        Ancestry(SOURCE, 1, 1, "text/plain", FOREVER),
    ],
)
def test_another_fork_under_the_same_name_is_refused(second: Ancestry, shards: Shards) -> None:
    shards.finish(fork_of(Ancestry(SOURCE, 1, 1, "text/plain", TTL), shards))
    assert code_of(shards.finish(fork_of(second, shards))) is Code.STREAM_EXISTS
    assert len(pins_of(shards, SOURCE)) == 1


def test_a_fork_is_refused_under_the_name_of_a_stream_that_is_not_a_fork(shards: Shards) -> None:
    shards.ask(Create(FORK, "text/plain", payload=b"abc"))
    assert code_of(shards.finish(shards.fork(FORK, SOURCE))) is Code.STREAM_EXISTS
    assert code_of(shards.finish(shards.fork(SOURCE, SOURCE))) is Code.STREAM_EXISTS


def test_a_fork_is_refused_under_a_name_that_other_forks_need(shards: Shards) -> None:
    shards.finish(shards.fork(FORK, SOURCE))
    shards.ask(Delete(SOURCE))
    shards.ask(Create("b/other", "text/plain"))
    assert code_of(shards.finish(shards.fork(SOURCE, "b/other"))) is Code.FORK_CONFLICT


def test_of_two_forks_at_once_one_is_made_and_the_other_finds_it(shards: Shards) -> None:
    one, other = shards.fork(FORK, SOURCE), shards.fork(FORK, SOURCE)
    while not isinstance(one.pending, CreateFork):
        one.step(shards)
    while not isinstance(other.pending, CreateFork):
        other.step(shards)
    assert {type(shards.finish(one)), type(shards.finish(other))} == {Created, Existed}
    assert list(pins_of(shards, SOURCE)) == ["pin-1"]


def test_a_name_is_a_target_as_soon_as_its_stream_has_expired(shards: Shards) -> None:
    shards.ask(Create(FORK, "text/plain", TTL))
    shards.wait(TTL_AND_A_TENTH)
    assert isinstance(shards.finish(shards.fork(FORK, SOURCE)), Created)
    assert shards.body(FORK) == b"abc"


def fork_of(ancestry: Ancestry, shards: Shards) -> Task:
    return shards.fork(
        FORK,
        ancestry.source,
        ancestry.offset,
        sub_offset=ancestry.sub_offset,
        content_type=ancestry.content_type,
        lifetime=ancestry.lifetime,
    )


# -- Soft delete ------------------------------------------------------------------------------------------------------


def test_a_deleted_source_stays_readable_through_its_forks(shards: Shards) -> None:
    shards.finish(shards.fork(FORK, SOURCE, body=b"F"))
    shards.finish(shards.fork("b/second", FORK))
    shards.ask(Delete(SOURCE))
    shards.ask(Delete(FORK))
    assert shards.body("b/second") == b"abcF"


def test_the_last_fork_takes_the_deleted_chain_above_it_along(shards: Shards) -> None:
    shards.finish(shards.fork(FORK, SOURCE))
    shards.finish(shards.fork("b/second", FORK))
    shards.ask(Delete(SOURCE))
    shards.ask(Delete(FORK))
    shards.ask(Delete("b/second"))
    shards.tidy()
    assert shards.streams == []


def test_an_expired_fork_takes_its_deleted_source_along(shards: Shards) -> None:
    shards.finish(shards.fork(FORK, SOURCE, lifetime=TTL))
    shards.ask(Delete(SOURCE))
    shards.wait(TTL_AND_A_TENTH)
    shards.tidy()
    assert shards.streams == []


def test_a_living_source_outlives_its_forks(shards: Shards) -> None:
    shards.finish(shards.fork(FORK, SOURCE))
    shards.ask(Delete(FORK))
    shards.tidy()
    assert (shards.body(SOURCE), pins_of(shards, SOURCE)) == (b"abc", {})


def test_a_deleted_source_stays_for_its_other_forks(shards: Shards) -> None:
    shards.finish(shards.fork(FORK, SOURCE))
    shards.finish(shards.fork("b/second", SOURCE))
    shards.ask(Delete(SOURCE))
    shards.ask(Delete(FORK))
    shards.tidy()
    assert shards.body("b/second") == b"abc"


@pytest.mark.parametrize(
    ("offset", "sub_offset", "lifetime"),
    [(0, 1, None), (6, 1, None), (3, 0, None), (3, 2, None), (3, 1, Lifetime(ttl_seconds=5))],
)
def test_a_second_put_of_a_fork_must_name_the_same_point_and_lifetime(
    offset: int, sub_offset: int, lifetime: Lifetime | None
) -> None:
    shards = Shards()
    shards.ask(Create("b/source", "text/plain", payload=b"abcdef"))
    assert isinstance(shards.finish(shards.fork("b/twice", "b/source", 3, sub_offset=1)), Created)
    assert isinstance(shards.finish(shards.fork("b/twice", "b/source", 3, sub_offset=1)), Existed)
    again = shards.fork("b/twice", "b/source", offset, sub_offset=sub_offset, lifetime=lifetime)
    assert code_of(shards.finish(again)) is Code.STREAM_EXISTS


# -- For catalogs -----------------------------------------------------------------------------------------------------


def test_a_catalog_is_told_of_every_fork_that_changes() -> None:
    shards = Shards()
    state = shards.all[0].state
    shards.ask(Create(SOURCE, "text/plain", payload=b"abc"))
    shards.finish(shards.fork(FORK, SOURCE))
    fork = shards.stream(FORK).incarnation
    unlisted = state.cold.record_unlisted({})
    shards.ask(Append(FORK, b"d", content_type="text/plain"))
    assert not unlisted.forks
    shards.finish(shards.fork("b/second", FORK))
    second = shards.stream("b/second").incarnation
    assert unlisted.forks == {second: "b/second"}
    unlisted.forks.clear()
    shards.ask(Delete(FORK))
    assert unlisted.forks == {fork: FORK}
    unlisted.forks.clear()
    shards.ask(Delete("b/second"))
    shards.tidy()
    assert unlisted.forks == {second: "b/second", fork: FORK}


def test_a_body_that_was_split_beforehand_is_taken_as_it_is_if_the_source_is_json() -> None:
    for kind, stored in (("application/json", b"012"), ("text/plain", b"0[1,2]")):
        shards = Shards(1)
        shards.ask(Create(SOURCE, kind, payload=b"0"))
        ancestry = Ancestry(SOURCE, None, 0, None, None)
        request = forking.split_body(forking.ForkRequest(FORK, ancestry, False, b"[1,2]"))
        assert request.split == (b"12", pack([1, 2]))
        created = shards.finish(Task(forking.fork(request, "pin", shards.now + SECOND_US)))
        assert isinstance(created, Created)
        assert shards.body(FORK) == stored
    bad = forking.split_body(forking.ForkRequest(FORK, ancestry, False, b"[1,"))
    assert code_of(bad.split if isinstance(bad.split, Refusal) else None) is Code.INVALID_JSON
