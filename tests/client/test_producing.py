"""What a producer sends, and how it reacts to answers."""

import pytest

from headwater.client.bodies import EncodedMessages
from headwater.client.errors import (
    BadRequest,
    ClientError,
    IncarnationChanged,
    OutcomeUnknown,
    ProducerEnded,
    ProducerEpochUsed,
    SequenceConflict,
    ServerUnavailable,
    StreamClosed,
    TransportFailed,
)
from headwater.client.producing import ProducerOptions, Producing
from headwater.client.values import Appended
from headwater.client.wire import Response

from .cores import GAP, POLICY, URL, accepted, given_to, names, producing, taken
from .script import LOST

CLOSED = {"stream-closed": "true"}

# -- Batches -----------------------------------------------------------------------------------------------------------


def test_requests_carry_the_id_the_epoch_and_consecutive_numbers() -> None:
    core = producing(epoch=3)
    given_to(core, "a", "b")
    headers = [dict(core.request(batch).headers) for batch in taken(core)]
    assert [(each["Producer-Id"], each["Producer-Epoch"], each["Producer-Seq"]) for each in headers] == [
        ("p", "3", "0"),
        ("p", "3", "1"),
    ]


def test_requests_in_flight_are_limited() -> None:
    core = producing(in_flight_max=2)
    given_to(core, "a", "b", "c")
    first, second = taken(core)
    core.settle(second, accepted(second), 0.0)
    assert names(taken(core)) == [(0, 2)]
    core.settle(first, accepted(first), 0.0)


def test_pending_messages_share_a_request_up_to_a_size() -> None:
    core = producing(batch_bytes_max=6, in_flight_max=9)
    given_to(core, "aa", "bb", "cc", "dddddddddd", "e")
    assert [core.request(batch).body for batch in taken(core)] == [b"aabb", b"cc", b"dddddddddd", b"e"]


def test_pending_messages_share_a_request_up_to_a_number() -> None:
    core = producing(batch_bytes_max=1_000, batch_messages_max=2)
    given_to(core, "a", "b", "c")
    core.flush()
    assert [core.request(batch).body for batch in taken(core)] == [b"ab", b"c"]


def test_messages_linger_for_company_but_not_when_flushed() -> None:
    core = producing(batch_bytes_max=1_000, linger_ms=500)
    given_to(core, "a", "b")
    assert taken(core, 0.4) == [] and core.wake_at(0.4) == 0.5
    core.flush()
    assert core.wake_at(0.4) == 0.4
    (batch,) = taken(core, 0.4)
    assert core.request(batch).body == b"ab"


def test_every_message_of_a_batch_gets_its_own_record_numbers() -> None:
    core = Producing[int](URL, "application/json", ProducerOptions("p", linger_ms=0), POLICY)
    core.add(EncodedMessages(b"1,2", 2), 0, 0.0)
    core.add(EncodedMessages(b"3"), 1, 0.0)
    (batch,) = taken(core)
    assert core.request(batch).body == b"[1,2,3]"
    settled = core.settle(batch, Response(200, {"stream-next-offset": "9", "stream-record-start": "4"}), 0.0)
    assert settled == [(0, Appended("9", False, 4, 6)), (1, Appended("9", False, 6, 7))]


# -- Unknown outcomes --------------------------------------------------------------------------------------------------


def test_a_lost_request_is_sent_again_unchanged() -> None:
    core = producing()
    given_to(core, "a")
    (batch,) = taken(core)
    before = core.request(batch)
    assert core.settle(batch, LOST, 10.0) == []
    assert taken(core, 10.4) == [] and core.wake_at(10.4) == 10.5
    (again,) = taken(core, 10.5)
    assert core.request(again) == before
    assert core.settle(again, Response(204, {"stream-next-offset": "1"}), 11.0) == [(0, Appended("1", duplicate=True))]


def test_nothing_overtakes_a_request_that_waits_to_be_sent_again() -> None:
    core = producing(in_flight_max=3)
    given_to(core, "a")
    (batch,) = taken(core)
    core.settle(batch, LOST, 0.0)
    given_to(core, "b")
    assert taken(core, 0.1) == []


def test_the_last_attempt_says_that_the_outcome_is_unknown() -> None:
    core = producing()
    given_to(core, "a", "b")
    settled: list[tuple[int, Appended | ClientError]] = []
    for round_ in range(5):
        first, *others = taken(core, 100.0 * round_)
        for other in others:
            core.settle(other, GAP, 0.0)
        settled += core.settle(first, LOST, 100.0 * round_)
    assert dict(settled).keys() == {0, 1}
    assert isinstance(dict(settled)[0], OutcomeUnknown)
    with pytest.raises(TransportFailed):
        given_to(core, "c")


def test_a_busy_server_is_waited_for() -> None:
    core = producing()
    given_to(core, "a")
    (batch,) = taken(core)
    core.settle(batch, Response(503, {"retry-after": "9"}), 1.0)
    assert core.wake_at(1.0) == 10.0
    for _ in range(4):
        (batch,) = taken(core, 1_000.0)
        core.settle(batch, Response(503), 0.0)
    assert isinstance(core.failure, ServerUnavailable)


# -- Gaps --------------------------------------------------------------------------------------------------------------


def test_a_request_that_overtook_another_goes_again_when_that_is_settled() -> None:
    core = producing()
    given_to(core, "a", "b", "c")
    a, b, c = taken(core)
    assert core.settle(b, GAP, 0.0) == core.settle(c, GAP, 0.0) == []
    assert taken(core) == [] and core.wake_at(0.0) is None
    core.settle(a, accepted(a), 0.0)
    assert taken(core) == [b]
    core.settle(b, accepted(b), 0.0)
    assert taken(core) == [c]


def test_an_old_gap_that_arrives_late_does_not_end_the_producer() -> None:
    core = producing()
    given_to(core, "a", "b")
    a, b = taken(core)
    core.settle(a, accepted(a), 0.0)
    core.settle(b, GAP, 0.0)
    assert core.failure is None and taken(core) == [b]


def test_a_gap_with_nothing_before_it_ends_the_producer() -> None:
    core = producing()
    given_to(core, "a")
    (batch,) = taken(core)
    settled = core.settle(batch, GAP, 0.0)
    assert isinstance(core.failure, SequenceConflict) and isinstance(dict(settled)[0], SequenceConflict)


# -- Ends --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (Response(400), BadRequest),
        (Response(409, {"stream-closed": "true"}), StreamClosed),
        (Response(410, {}, b'{"code":"incarnation_changed"}'), IncarnationChanged),
    ],
)
def test_any_other_refusal_ends_the_producer(answer: Response, error: type[ClientError]) -> None:
    core = producing(in_flight_max=1)
    given_to(core, "a", "b")
    (a,) = taken(core)
    settled = core.settle(a, answer, 0.0)
    assert [waiter for waiter, _ in settled] == [0, 1] and {type(outcome) for _, outcome in settled} == {error}
    assert core.idle and core.take(0.0) is None


def test_a_request_in_flight_when_the_producer_ends_may_still_succeed() -> None:
    core = producing()
    given_to(core, "a", "b")
    a, b = taken(core)
    core.settle(b, Response(400), 0.0)
    assert isinstance(core.failure, BadRequest) and not core.idle
    assert core.settle(a, accepted(a), 0.0) == [(0, Appended("0"))]
    assert core.idle


def test_an_abandoned_producer_says_which_outcomes_are_unknown() -> None:
    core = producing(in_flight_max=1)
    given_to(core, "a", "b")
    taken(core)
    settled = dict(core.abandon())
    assert isinstance(settled[0], OutcomeUnknown) and isinstance(settled[1], ProducerEnded)
    assert core.idle


def test_the_stream_is_closed_after_everything_else() -> None:
    core = producing()
    given_to(core, "a")
    core.close_stream(EncodedMessages(b"z"), 9)
    (a,) = taken(core)
    core.settle(a, accepted(a), 0.0)
    (last,) = taken(core)
    request = core.request(last)
    assert request.headers["Stream-Closed"] == "true" and request.body == b"z" and last.seq == 1
    assert core.settle(last, Response(200, {"stream-next-offset": "1", **CLOSED}), 0.0) == [(9, Appended("1"))]
    with pytest.raises(ProducerEnded):
        given_to(core, "b")


def test_a_close_without_a_message_has_no_content_type() -> None:
    core = producing()
    core.close_stream(None, 9)
    (last,) = taken(core)
    assert "Content-Type" not in core.request(last).headers and core.request(last).body == b""
    assert core.settle(last, Response(204, {"stream-next-offset": "1", **CLOSED}), 0.0) == [(9, Appended("1"))]


def test_a_close_that_was_taken_for_a_duplicate_is_an_error() -> None:
    core = producing()
    core.close_stream(None, 9)
    (last,) = taken(core)
    ((_, settled),) = core.settle(last, Response(204, {"stream-next-offset": "1"}), 0.0)
    assert isinstance(settled, ProducerEpochUsed) and "higher epoch" in str(settled)


def test_the_incarnation_of_the_first_answer_is_sent_with_the_rest() -> None:
    core = producing(in_flight_max=1)
    given_to(core, "a", "b")
    (a,) = taken(core)
    core.settle(a, Response(200, {"stream-incarnation": "x-1"}), 0.0)
    (b,) = taken(core)
    assert core.request(b).headers["Stream-Incarnation"] == "x-1"


def test_there_is_room_up_to_a_limit() -> None:
    core = producing(pending_bytes_max=4)
    room = []
    for _ in range(3):
        given_to(core, "aa")
        room.append(core.room)
    taken(core)
    assert [*room, core.room] == [True, False, False, True]


@pytest.mark.parametrize(
    "broken",
    [{"epoch": -1}, {"batch_bytes_max": 0}, {"batch_messages_max": 0}, {"in_flight_max": 0}, {"linger_ms": -1}],
)
def test_options_that_make_no_sense_are_refused(broken: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(broken))):
        ProducerOptions("p", **broken)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="id is empty"):
        ProducerOptions("")
