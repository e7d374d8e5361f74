"""Epochs: which instance of a producer may write, and how another one takes over."""

import pytest

from headwater.client.errors import OutcomeUnknown, ProducerEpochUsed, ProducerFenced, TransportFailed
from headwater.client.values import Appended
from headwater.client.wire import Response

from .cores import FENCED, GAP, URL, accepted, given_to, names, producing, taken
from .script import LOST, UNREACHABLE

DUPLICATE = Response(204, {"stream-next-offset": "1", "producer-seq": "1"})
MISMATCH = Response(409, {}, b'{"code":"producer_payload_mismatch","detail":"Other bytes."}')


def test_a_fenced_producer_ends() -> None:
    core = producing()
    given_to(core, "a", "b")
    a, b = taken(core)
    settled = core.settle(a, FENCED, 0.0)
    assert [waiter for waiter, _ in settled] == [0]
    assert isinstance(core.failure, ProducerFenced) and core.failure.current_epoch == 5
    assert isinstance(dict(core.settle(b, FENCED, 0.0))[1], ProducerFenced)
    assert core.idle


def test_a_fenced_producer_may_take_over_with_the_next_epoch_and_numbers_from_zero() -> None:
    core = producing(auto_claim=True)
    given_to(core, "a", "b")
    (a,) = taken(core)
    core.settle(a, FENCED, 0.0)
    (again,) = taken(core)
    assert again is a and names([a]) == [(6, 0)]
    core.settle(a, accepted(a), 0.0)
    assert names(taken(core)) == [(6, 1)]


@pytest.mark.parametrize("auto_claim", [False, True])
def test_until_an_epoch_is_proved_one_request_goes_alone(auto_claim: bool) -> None:
    core = producing(auto_claim=auto_claim, proven=False)
    given_to(core, "a", "b", "c")
    (a,) = taken(core)
    core.settle(a, accepted(a), 0.0)
    assert names(taken(core)) == [(0, 1), (0, 2)]


def test_nothing_is_written_after_a_message_that_was_taken_for_a_repetition() -> None:
    core = producing(proven=False)
    given_to(core, "a", "b", "c")
    (a,) = taken(core)
    settled = core.settle(a, DUPLICATE, 0.0)
    assert {type(outcome) for _, outcome in settled} == {ProducerEpochUsed} and len(settled) == 3
    assert core.idle and taken(core) == []


def test_a_repeated_run_sends_one_request_at_a_time_until_it_comes_to_a_new_message() -> None:
    core = producing(on_duplicate="accept", proven=False)
    given_to(core, "a", "b", "c", "d")
    (a,) = taken(core)
    core.settle(a, DUPLICATE, 0.0)
    (b,) = taken(core)
    core.settle(b, accepted(b), 0.0)
    assert names(taken(core)) == [(0, 2), (0, 3)]


def test_everything_in_flight_is_settled_before_an_epoch_is_claimed() -> None:
    core = producing(auto_claim=True)
    given_to(core, "a", "b", "c", "d")
    (a,) = taken(core)
    core.settle(a, accepted(a), 0.0)
    b, c, d = taken(core)
    core.settle(c, GAP, 0.0)
    core.settle(d, FENCED, 0.0)
    assert taken(core) == []
    core.settle(b, FENCED, 0.0)
    assert taken(core) == [b] and names([b, c, d]) == [(6, 0), (6, 1), (6, 2)]


def test_what_may_have_happened_in_the_old_epoch_is_not_written_in_the_new_one() -> None:
    core = producing(auto_claim=True)
    given_to(core, "a", "b")
    (a,) = taken(core)
    core.settle(a, LOST, 0.0)
    (again,) = taken(core, 100.0)
    settled = core.settle(again, FENCED, 0.0)
    assert {type(outcome) for _, outcome in settled} == {OutcomeUnknown}
    assert core.idle and isinstance(core.failure, OutcomeUnknown)


def test_what_never_left_may_be_written_in_a_new_epoch() -> None:
    core = producing(auto_claim=True)
    given_to(core, "a")
    (a,) = taken(core)
    core.settle(a, UNREACHABLE, 0.0)
    taken(core, 100.0)
    core.settle(a, FENCED, 0.0)
    assert names(taken(core)) == [(6, 0)]


def test_an_epoch_that_an_earlier_instance_used_is_not_ours() -> None:
    core = producing(auto_claim=True)
    given_to(core, "a")
    (a,) = taken(core)
    assert core.settle(a, Response(204, {"producer-seq": "7"}), 0.0) == []
    assert names(taken(core)) == [(1, 0)]


def test_an_epoch_is_not_known_to_be_ours_if_the_first_request_had_to_be_repeated() -> None:
    core = producing(auto_claim=True)
    given_to(core, "a", "b")
    (a,) = taken(core)
    core.settle(a, LOST, 0.0)
    (a,) = taken(core, 100.0)
    settled = core.settle(a, Response(204, {"stream-next-offset": "1"}), 0.0)
    assert {type(outcome) for _, outcome in settled} == {OutcomeUnknown} and len(settled) == 2


def test_an_epoch_that_is_ours_stays_ours_when_a_request_has_to_be_repeated() -> None:
    core = producing(auto_claim=True)
    given_to(core, "a", "b")
    (a,) = taken(core)
    core.settle(a, accepted(a), 0.0)
    (b,) = taken(core)
    core.settle(b, LOST, 0.0)
    taken(core, 100.0)
    assert core.settle(b, Response(204, {"stream-next-offset": "2"}), 0.0) == [(1, Appended("2", duplicate=True))]


def test_another_instance_in_our_epoch_is_noticed_at_any_time() -> None:
    core = producing(auto_claim=True)
    given_to(core, "a", "b")
    (a,) = taken(core)
    core.settle(a, accepted(a), 0.0)
    (b,) = taken(core)
    assert core.settle(b, Response(204), 0.0) == []
    assert names(taken(core)) == [(1, 0)]


def test_a_duplicate_of_a_request_that_was_sent_once_ends_the_producer_and_says_what_to_do() -> None:
    core = producing(epoch=3)
    given_to(core, "a", "b")
    a, b = taken(core)
    ((waiter, error),) = core.settle(a, DUPLICATE, 0.0)
    assert waiter == 0 and isinstance(error, ProducerEpochUsed) and core.failure is error
    for words in ("'p'", "epoch 3", "not written", "higher epoch", "auto_claim=True", URL):
        assert words in str(error)
    assert isinstance(dict(core.settle(b, DUPLICATE, 0.0))[1], ProducerEpochUsed)
    assert core.idle


def test_a_duplicate_of_a_lost_request_is_ours() -> None:
    core = producing()
    given_to(core, "a")
    (a,) = taken(core)
    core.settle(a, LOST, 0.0)
    (a,) = taken(core, 100.0)
    answer = Response(204, {"stream-next-offset": "1", "producer-seq": "0"})
    assert core.settle(a, answer, 0.0) == [(0, Appended("1", duplicate=True))]


@pytest.mark.parametrize("auto_claim", [False, True])
def test_a_refused_request_that_a_network_delivers_again_is_ours(auto_claim: bool) -> None:
    core = producing(auto_claim=auto_claim)
    given_to(core, "a")
    (a,) = taken(core)
    core.settle(a, accepted(a), 0.0)
    given_to(core, "b", "c")
    b, c = taken(core)
    core.settle(c, GAP, 0.0)
    core.settle(b, accepted(b), 0.0)
    assert taken(core) == [c]
    answer = Response(204, {"stream-next-offset": "3", "producer-seq": "2"})
    assert core.settle(c, answer, 0.0) == [(1, Appended("3", duplicate=True))]


def test_a_request_that_never_left_was_not_sent_before() -> None:
    core = producing()
    given_to(core, "a")
    (a,) = taken(core)
    core.settle(a, UNREACHABLE, 0.0)
    (a,) = taken(core, 100.0)
    ((_, error),) = core.settle(a, DUPLICATE, 0.0)
    assert isinstance(error, ProducerEpochUsed)


@pytest.mark.parametrize("auto_claim", [False, True])
def test_a_duplicate_below_a_number_that_we_never_sent_is_not_surely_ours(auto_claim: bool) -> None:
    core = producing(auto_claim=auto_claim)
    given_to(core, "a")
    (a,) = taken(core)
    core.settle(a, accepted(a), 0.0)
    given_to(core, "b")
    (b,) = taken(core)
    core.settle(b, LOST, 0.0)
    (b,) = taken(core, 100.0)
    ((_, error),) = core.settle(b, Response(204, {"producer-seq": "2"}), 0.0)
    assert isinstance(error, OutcomeUnknown)
    assert isinstance(core.failure, OutcomeUnknown if auto_claim else ProducerEpochUsed)


def test_a_program_that_repeats_its_messages_may_accept_duplicates() -> None:
    core = producing(on_duplicate="accept")
    given_to(core, "a", "b")
    a, b = taken(core)
    assert core.settle(a, DUPLICATE, 0.0) == [(0, Appended("1", duplicate=True))]
    assert core.settle(b, accepted(b), 0.0) == [(1, Appended("1"))]
    with pytest.raises(ValueError, match="exclude each other"):
        producing(on_duplicate="accept", auto_claim=True)


@pytest.mark.parametrize("on_duplicate", ["raise", "accept"])
def test_other_bytes_under_a_used_number_end_the_producer(on_duplicate: str) -> None:
    core = producing(on_duplicate=on_duplicate)
    given_to(core, "a")
    (a,) = taken(core)
    ((_, error),) = core.settle(a, MISMATCH, 0.0)
    assert isinstance(error, ProducerEpochUsed) and error.code == "producer_payload_mismatch"


@pytest.mark.parametrize("outcomes", [[MISMATCH], [LOST, MISMATCH]])
def test_other_bytes_under_a_used_number_prove_that_ours_may_be_written_in_the_next_epoch(
    outcomes: list[Response | TransportFailed],
) -> None:
    core = producing(auto_claim=True)
    given_to(core, "a")
    for outcome in outcomes:
        (a,) = taken(core, 100.0)
        assert core.settle(a, outcome, 0.0) == []
    assert names(taken(core, 100.0)) == [(1, 0)]


def test_two_instances_that_claim_from_each_other_stop_at_last() -> None:
    core = producing(auto_claim=True)
    given_to(core, "a")
    for epoch in range(10):
        for batch in taken(core):
            core.settle(batch, Response(403, {"producer-epoch": str(epoch * 2)}), 0.0)
    assert isinstance(core.failure, ProducerFenced)


def test_a_close_in_an_epoch_of_another_is_repeated_in_the_next() -> None:
    core = producing(auto_claim=True)
    core.close_stream(None, 9)
    (last,) = taken(core)
    assert core.settle(last, Response(204), 0.0) == []
    (last,) = taken(core)
    assert names([last]) == [(1, 0)]
    answer = Response(204, {"stream-next-offset": "1", "stream-closed": "true"})
    assert core.settle(last, answer, 0.0) == [(9, Appended("1"))]
