"""Epochs: which instance of a producer may write, and how another one takes over."""

from headwater.client.errors import OutcomeUnknown, ProducerFenced
from headwater.client.values import Appended
from headwater.client.wire import Response

from .cores import FENCED, GAP, accepted, given_to, names, producing, taken
from .script import LOST, UNREACHABLE


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


def test_until_an_epoch_is_proved_one_request_goes_alone() -> None:
    core = producing(auto_claim=True)
    given_to(core, "a", "b", "c")
    (a,) = taken(core)
    core.settle(a, accepted(a), 0.0)
    assert names(taken(core)) == [(0, 1), (0, 2)]


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


def test_without_claiming_a_duplicate_is_an_answer() -> None:
    core = producing()
    given_to(core, "a")
    (a,) = taken(core)
    ((_, settled),) = core.settle(a, Response(204, {"stream-next-offset": "1"}), 0.0)
    assert settled == Appended("1", duplicate=True)


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
