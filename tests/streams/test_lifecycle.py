import pytest

from headwater.protocol.lifetimes import FOREVER, Lifetime
from headwater.protocol.limits import SECOND_US
from headwater.protocol.message_ends import pack
from headwater.protocol.producers import Producer
from headwater.protocol.refusals import Code, Refusal
from headwater.streams.commands.forks import Pin, Unpin
from headwater.streams.commands.streams import Append, Create, Delete, Expire, Touch
from headwater.streams.hot import hot_cost
from headwater.streams.replies import Appended, Created, Deleted, Done, Duplicate, Existed, Reply
from headwater.streams.state import Stream

from .shards import START_US, Shards

NAME = "b/s"
TTL = Lifetime(ttl_seconds=10)
TTL_AND_A_TENTH = 11


def code_of(reply: Reply | Stream) -> Code | None:
    return reply.code if isinstance(reply, Refusal) else None


# -- Create -----------------------------------------------------------------------------------------------------------


def test_a_new_stream_is_empty_and_open(shards: Shards) -> None:
    assert shards.ask(Create(NAME, "text/plain")) == Created(1, "text/plain", 0, False)
    assert shards.body(NAME) == b""


def test_a_new_stream_may_have_first_bytes_and_be_closed(shards: Shards) -> None:
    command = Create(NAME, "application/json", payload=b"12", ends=pack((1, 2)), closed=True)
    assert shards.ask(command) == Created(1, "application/json", 2, True, None, None, 0, 2)
    assert (shards.body(NAME), shards.stream(NAME).record_next) == (b"12", 2)


def test_the_incarnation_is_the_position_of_the_creation(shards: Shards) -> None:
    shards.ask(Create("b/other", "text/plain"))
    shards.ask(Create(NAME, "text/plain"))
    assert shards.stream(NAME).incarnation == 2


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (Create(NAME, "text/plain"), Create(NAME, "Text/PLAIN; charset=utf-8")),
        (Create(NAME, "text/plain", TTL), Create(NAME, "text/plain", TTL)),
        (
            Create(NAME, "text/plain", Lifetime(None, 2 * START_US, "one way to write it")),
            Create(NAME, "text/plain", Lifetime(None, 2 * START_US, "another")),
        ),
        (Create(NAME, "text/plain", closed=True), Create(NAME, "text/plain", closed=True)),
        (Create(NAME, "text/plain", payload=b"abc"), Create(NAME, "text/plain", payload=b"other bytes")),
    ],
)
def test_creating_a_stream_again_with_the_same_configuration_changes_nothing(
    first: Create, second: Create, shards: Shards
) -> None:
    shards.ask(first)
    assert shards.ask(second) == Existed(1, first.content_type, len(first.payload), first.closed)
    assert shards.body(NAME) == first.payload


@pytest.mark.parametrize(
    ("first", "second", "difference"),
    [
        (Create(NAME, "text/plain"), Create(NAME, "text/html"), "exists with another content type"),
        (Create(NAME, "text/plain"), Create(NAME, "text/xml"), "exists with another content type"),
        (Create(NAME, "text/plain"), Create(NAME, "text/plain", TTL), "exists with another lifetime"),
        (Create(NAME, "text/plain", TTL), Create(NAME, "text/plain"), "exists with another lifetime"),
        (
            Create(NAME, "text/plain", TTL),
            Create(NAME, "text/plain", Lifetime(ttl_seconds=11)),
            "exists with another lifetime",
        ),
        (
            Create(NAME, "text/plain", TTL),
            Create(NAME, "text/plain", Lifetime(expires_at=2 * START_US)),
            "exists with another lifetime",
        ),
        (Create(NAME, "text/plain", closed=True), Create(NAME, "text/plain"), "is already closed"),
        (Create(NAME, "text/plain"), Create(NAME, "text/plain", closed=True), "exists and is not closed"),
    ],
)
def test_creating_a_stream_again_with_another_configuration_is_refused(
    first: Create, second: Create, difference: str, shards: Shards
) -> None:
    shards.ask(first)
    refusal = shards.ask(second)
    assert isinstance(refusal, Refusal)
    assert refusal.code is Code.STREAM_EXISTS
    assert (refusal.incarnation, refusal.next_offset, refusal.closed) == (1, 0, first.closed)
    assert refusal.detail == f"Stream {NAME!r} {difference}; delete it or use another name."


def test_a_plain_create_does_not_match_a_fork(shards: Shards) -> None:
    shards.ask(Create("b/source", "text/plain"))
    shards.finish(shards.fork(NAME, "b/source"))
    assert code_of(shards.ask(Create(NAME, "text/plain"))) is Code.STREAM_EXISTS


def test_a_stream_may_be_created_again_with_another_configuration_after_a_delete(shards: Shards) -> None:
    shards.ask(Create(NAME, "text/plain", payload=b"old"))
    shards.ask(Append(NAME, b"x", content_type="text/plain", seq="z", producer=Producer("p", 5, 0)))
    shards.ask(Delete(NAME))
    assert shards.ask(Create(NAME, "text/html", TTL)) == Created(4, "text/html", 0, False)
    fresh = Append(NAME, b"new", content_type="text/html", seq="a", producer=Producer("p", 0, 0))
    assert shards.ask(fresh) == Appended(4, 3, False, None, None, 0, 0)
    assert shards.body(NAME) == b"new"


def test_a_stream_may_be_created_again_as_soon_as_it_has_expired(shards: Shards) -> None:
    shards.ask(Create(NAME, "text/plain", TTL, payload=b"old"))
    shards.wait(TTL_AND_A_TENTH)
    assert shards.ask(Create(NAME, "text/html")) == Created(2, "text/html", 0, False)
    assert (shards.body(NAME), shards.all[0].state.hot_bytes) == (b"", 0)


@pytest.mark.parametrize("lifetime", [Lifetime(ttl_seconds=0), Lifetime(expires_at=START_US - 1)])
def test_a_stream_without_any_time_is_created_and_gone(lifetime: Lifetime, shards: Shards) -> None:
    for position in (1, 2):
        assert shards.ask(Create(NAME, "text/plain", lifetime)) == Created(position, "text/plain", 0, False)
        assert code_of(shards.all[0].state.present(NAME, shards.now)) is Code.STREAM_NOT_FOUND


@pytest.mark.parametrize("end", ["deleted", "expired", "expired and reaped"])
def test_a_name_is_not_free_while_forks_need_it(end: str, shards: Shards) -> None:
    shards.ask(Create(NAME, "text/plain", TTL))
    shards.ask(Pin(NAME, "pin", "b/f", START_US))
    if end == "deleted":
        shards.ask(Delete(NAME))
    else:
        shards.wait(TTL_AND_A_TENTH)
    if end == "expired and reaped":
        shards.ask(Expire(NAME, 1))
    assert code_of(shards.ask(Create(NAME, "text/plain", TTL))) is Code.FORK_CONFLICT


FIRST = Producer("p", 3, 0)


def test_a_create_may_be_the_first_request_of_a_producer(shards: Shards) -> None:
    create = Create(NAME, "text/plain", payload=b"abc", producer=FIRST)
    assert shards.ask(create) == Created(1, "text/plain", 3, False, 3, 0)
    assert (shards.stream(NAME).hot or [])[0].producer == FIRST
    again = Append(NAME, b"abc", content_type="text/plain", producer=FIRST)
    assert shards.ask(again) == Duplicate(1, 3, False, 3, 0, size=3)
    second = Append(NAME, b"de", content_type="text/plain", producer=Producer("p", 3, 1))
    assert shards.ask(second) == Appended(1, 5, False, None, None, 3, 1)


def test_also_an_empty_create_is_the_first_request_of_a_producer(shards: Shards) -> None:
    shards.ask(Create(NAME, "text/plain", producer=FIRST))
    refusal = shards.ask(Append(NAME, b"abc", content_type="text/plain", producer=FIRST))
    assert isinstance(refusal, Refusal)
    assert refusal.code is Code.PRODUCER_PAYLOAD_MISMATCH
    second = Append(NAME, b"abc", content_type="text/plain", producer=Producer("p", 3, 1))
    assert shards.ask(second) == Appended(1, 3, False, None, None, 3, 1)


def test_a_create_that_repeats_a_producers_last_number_has_its_content(shards: Shards) -> None:
    first = Create(NAME, "text/plain", payload=b"abc", producer=FIRST)
    shards.ask(first)
    assert isinstance(shards.ask(first), Existed)
    other = Create(NAME, "text/plain", payload=b"xyz", producer=FIRST)
    refusal = shards.ask(other)
    assert isinstance(refusal, Refusal)
    assert (refusal.code, refusal.next_offset) == (Code.PRODUCER_PAYLOAD_MISMATCH, 3)
    shards.ask(Append(NAME, b"de", content_type="text/plain", producer=Producer("p", 3, 1)))
    assert isinstance(shards.ask(other), Existed)


def test_a_create_that_closed_the_stream_may_be_repeated_with_any_content(shards: Shards) -> None:
    shards.ask(Create(NAME, "text/plain", closed=True, payload=b"abc", producer=FIRST))
    assert isinstance(shards.ask(Create(NAME, "text/plain", closed=True, payload=b"x", producer=FIRST)), Existed)


def test_a_producer_does_not_begin_with_another_sequence_than_zero(shards: Shards) -> None:
    refusal = shards.ask(Create(NAME, "text/plain", producer=Producer("p", 0, 2)))
    assert isinstance(refusal, Refusal)
    assert refusal.code is Code.PRODUCER_SEQ_CONFLICT
    assert (refusal.expected_seq, refusal.received_seq) == (0, 2)
    assert shards.streams == []


def test_a_producer_that_creates_a_stream_again_finds_it(shards: Shards) -> None:
    shards.ask(Create(NAME, "text/plain", producer=FIRST))
    for producer in (FIRST, Producer("p", 0, 2)):
        assert shards.ask(Create(NAME, "text/plain", producer=producer)) == Existed(1, "text/plain", 0, False)


def test_a_create_may_set_the_first_stream_seq(shards: Shards) -> None:
    shards.ask(Create(NAME, "text/plain", seq="b"))
    assert code_of(shards.ask(Append(NAME, b"x", content_type="text/plain", seq="a"))) is Code.STREAM_SEQ_CONFLICT
    assert isinstance(shards.ask(Append(NAME, b"x", content_type="text/plain", seq="c")), Appended)


def test_a_create_that_means_another_life_changes_nothing(shards: Shards) -> None:
    shards.ask(Create(NAME, "text/plain"))
    refusal = shards.ask(Create(NAME, "text/plain", incarnation=9))
    assert isinstance(refusal, Refusal)
    assert (refusal.code, refusal.incarnation) == (Code.INCARNATION_CHANGED, 1)
    assert shards.ask(Create(NAME, "text/plain", incarnation=1)) == Existed(1, "text/plain", 0, False)


# -- Delete -----------------------------------------------------------------------------------------------------------


def test_a_deleted_stream_is_gone_with_its_bytes(shards: Shards) -> None:
    shards.ask(Create(NAME, "text/plain", payload=b"abc"))
    assert shards.ask(Delete(NAME)) == Deleted(1)
    assert code_of(shards.ask(Delete(NAME))) is Code.STREAM_NOT_FOUND
    assert (shards.streams, list(shards.all[0].state.names.after("", 9)), shards.all[0].state.hot_bytes) == ([], [], 0)


@pytest.mark.parametrize("incarnation", [None, 1])
def test_nothing_cannot_be_deleted(incarnation: int | None, shards: Shards) -> None:
    assert code_of(shards.ask(Delete(NAME, incarnation))) is Code.STREAM_NOT_FOUND


def test_only_the_life_that_was_meant_is_deleted(shards: Shards) -> None:
    shards.ask(Create(NAME, "text/plain"))
    refusal = shards.ask(Delete(NAME, incarnation=9))
    assert isinstance(refusal, Refusal)
    assert (refusal.code, refusal.incarnation) == (Code.INCARNATION_CHANGED, 1)
    assert shards.ask(Delete(NAME, incarnation=1)) == Deleted(1)


def test_a_stream_that_forks_hold_is_deleted_but_kept(shards: Shards) -> None:
    shards.ask(Create(NAME, "text/plain", payload=b"abc"))
    shards.ask(Pin(NAME, "pin", "b/f", START_US))
    assert shards.ask(Delete(NAME)) == Deleted(1)
    assert code_of(shards.ask(Delete(NAME))) is Code.STREAM_GONE
    assert (shards.stream(NAME).tail, shards.all[0].state.hot_bytes) == (3, hot_cost(3, 1, 1))
    shards.ask(Unpin(NAME, 1, "pin"))
    assert (shards.streams, shards.all[0].state.hot_bytes) == ([], 0)


def test_the_end_of_a_fork_is_owed_to_its_source(shards: Shards) -> None:
    shards.ask(Create(NAME, "text/plain"))
    shards.finish(shards.fork("b/f", NAME, lifetime=TTL))
    assert not shards.all[0].state.owed
    shards.wait(TTL_AND_A_TENTH)
    shards.ask(Create("b/f", "text/plain"))
    [debt] = shards.all[0].state.owed.values()
    assert (debt.source, debt.incarnation) == (NAME, 1)


# -- Touch and expire -------------------------------------------------------------------------------------------------


def test_a_touch_renews_a_sliding_lifetime(shards: Shards) -> None:
    shards.ask(Create(NAME, "text/plain", TTL))
    shards.wait(10)
    assert shards.ask(Touch(NAME, 1, shards.now)) == Done()
    shards.wait(10)
    assert isinstance(shards.all[0].state.present(NAME, shards.now), Stream)
    assert shards.stream(NAME).written_at == START_US


def test_a_touch_never_moves_a_fixed_instant(shards: Shards) -> None:
    shards.ask(Create(NAME, "text/plain", Lifetime(expires_at=START_US + 5 * SECOND_US)))
    shards.wait(4)
    shards.ask(Touch(NAME, 1, shards.now))
    shards.wait(1)
    assert code_of(shards.all[0].state.present(NAME, shards.now)) is Code.STREAM_NOT_FOUND


@pytest.mark.parametrize(("incarnation", "wait"), [(9, 5), (1, TTL_AND_A_TENTH)])
def test_a_touch_for_another_life_or_too_late_does_nothing(incarnation: int, wait: int, shards: Shards) -> None:
    shards.ask(Create(NAME, "text/plain", TTL))
    shards.wait(wait)
    assert shards.ask(Touch(NAME, incarnation, shards.now)) == Done()
    assert shards.stream(NAME).touched_at == START_US


def test_a_read_that_found_the_stream_alive_because_of_an_earlier_renewal_counts(shards: Shards) -> None:
    shards.ask(Create(NAME, "text/plain", TTL))
    renewed_at = shards.now
    shards.wait(10 * TTL_AND_A_TENTH)
    shards.ask(Touch(NAME, 1, shards.now))
    assert shards.stream(NAME).touched_at == START_US
    shards.ask(Touch(NAME, 1, shards.now, renewed_at))
    assert shards.stream(NAME).touched_at == shards.now


def test_a_touch_of_nothing_does_nothing(shards: Shards) -> None:
    assert shards.ask(Touch(NAME, 1, shards.now)) == Done()


def test_expiry_becomes_permanent(shards: Shards) -> None:
    shards.ask(Create(NAME, "text/plain", TTL))
    shards.wait(TTL_AND_A_TENTH)
    assert shards.ask(Expire(NAME, 1)) == Deleted(1)
    assert shards.streams == []
    assert shards.ask(Expire(NAME, 1)) == Done()


def test_an_expired_stream_that_forks_hold_is_deleted_but_kept(shards: Shards) -> None:
    shards.ask(Create(NAME, "text/plain", TTL))
    shards.ask(Pin(NAME, "pin", "b/f", START_US))
    shards.wait(TTL_AND_A_TENTH)
    assert shards.ask(Expire(NAME, 1)) == Deleted(1)
    assert shards.stream(NAME).deleted
    assert shards.ask(Expire(NAME, 1)) == Done()
    shards.ask(Unpin(NAME, 1, "pin"))
    assert shards.streams == []


@pytest.mark.parametrize(
    ("lifetime", "incarnation", "wait"),
    [(TTL, 1, TTL_AND_A_TENTH - 0.001), (TTL, 9, TTL_AND_A_TENTH), (FOREVER, 1, 10**9)],
)
def test_a_stream_that_was_renewed_or_replaced_does_not_expire(
    lifetime: Lifetime, incarnation: int, wait: float, shards: Shards
) -> None:
    shards.ask(Create(NAME, "text/plain", lifetime))
    shards.wait(wait)
    assert shards.ask(Expire(NAME, incarnation)) == Done()
    assert [stream.name for stream in shards.streams] == [NAME]


# -- Create by a producer, or for one life -----------------------------------------------------------------------------


def test_a_creation_is_its_producers_first_request(shards: Shards) -> None:
    created = Create(NAME, "text/plain", payload=b"abc", seq="a", producer=Producer("p", 3, 0))
    assert shards.ask(created) == Created(1, "text/plain", 3, False, 3, 0)
    retried = Append(NAME, b"abc", content_type="text/plain", producer=Producer("p", 3, 0))
    assert shards.ask(retried) == Duplicate(1, 3, False, 3, 0, size=3)
    late = Append(NAME, b"x", content_type="text/plain", seq="a")
    assert code_of(shards.ask(late)) is Code.STREAM_SEQ_CONFLICT


def test_a_creation_by_a_producer_that_is_further_on_is_refused(shards: Shards) -> None:
    reply = shards.ask(Create(NAME, "text/plain", producer=Producer("p", 0, 2)))
    assert isinstance(reply, Refusal)
    assert (reply.code, reply.expected_seq, reply.received_seq) == (Code.PRODUCER_SEQ_CONFLICT, 0, 2)
    assert not shards.streams


def test_a_creation_meant_for_another_life_is_refused(shards: Shards) -> None:
    shards.ask(Create(NAME, "text/plain"))
    assert isinstance(shards.ask(Create(NAME, "text/plain", incarnation=1)), Existed)
    assert code_of(shards.ask(Create(NAME, "text/plain", incarnation=9))) is Code.INCARNATION_CHANGED
