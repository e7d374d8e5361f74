"""Which requests are retried, and how often."""

import pytest

from headwater.client.errors import Conflict, OutcomeUnknown, ServerUnavailable, TransportFailed
from headwater.client.operations import Conditions, RequestTarget, append, close, create, delete
from headwater.client.retrying import RetryPolicy, attempt
from headwater.client.wire import Request, Response

from .script import LOST, UNREACHABLE, Line, Script

POLICY = RetryPolicy(attempts_max=3, first_delay_seconds=1.0, dice=lambda: 0.0)
TARGET = RequestTarget("http://h/s", POLICY)
DONE = Response(204, {"stream-next-offset": "1"})
FOUND = Response(200, {"stream-next-offset": "0"})


def tried(*answers: Line, repeatable: bool) -> Script:
    script = Script(answers)
    script.run(attempt(Request("POST", "http://h/s"), POLICY, repeatable=repeatable))
    return script


@pytest.mark.parametrize("status", [408, 429, 500, 503])
@pytest.mark.parametrize("repeatable", [True, False])
def test_what_the_server_did_not_do_is_sent_again(status: int, repeatable: bool) -> None:
    assert len(tried(Response(status), Response(status), DONE, repeatable=repeatable).requests) == 3


@pytest.mark.parametrize("status", [400, 403, 404, 409, 410, 412, 413, 501])
def test_what_the_server_refuses_is_not_sent_again(status: int) -> None:
    assert len(tried(Response(status), repeatable=True).requests) == 1


def test_what_was_never_sent_is_sent_again() -> None:
    assert len(tried(UNREACHABLE, UNREACHABLE, DONE, repeatable=False).requests) == 3


def test_a_write_in_doubt_is_not_sent_again() -> None:
    with pytest.raises(OutcomeUnknown):
        tried(LOST, DONE, repeatable=False)


@pytest.mark.parametrize("status", [502, 504])
def test_an_answer_that_was_lost_on_the_way_leaves_a_write_in_doubt(status: int) -> None:
    assert len(tried(Response(status), DONE, repeatable=True).requests) == 2
    script = tried(Response(status), repeatable=False)
    assert len(script.requests) == 1 and script.result.response.status == status


def test_attempts_come_to_an_end() -> None:
    with pytest.raises(TransportFailed):
        tried(LOST, LOST, LOST, repeatable=True)
    with pytest.raises(ServerUnavailable):
        tried(*[Response(503)] * 3, repeatable=True)


def test_retry_after_is_honoured_up_to_a_limit() -> None:
    script = tried(Response(503, {"retry-after": "5"}), Response(503, {"retry-after": "86400"}), DONE, repeatable=True)
    assert script.pauses == [5.0, 60.0]


def test_pauses_grow_to_a_maximum_and_are_never_nothing() -> None:
    policy = RetryPolicy(attempts_max=2_000, first_delay_seconds=0.1, delay_seconds_max=3.0)
    delays = [policy.delay_seconds(failures) for failures in range(1, 2_000)]
    assert all(0.05 <= delay <= 3.0 for delay in delays)
    assert all(1.5 <= delay <= 3.0 for delay in delays[6:])


@pytest.mark.parametrize(
    "broken",
    [
        {"attempts_max": 0},
        {"first_delay_seconds": 0},
        {"first_delay_seconds": 2, "delay_seconds_max": 1},
        {"multiplier": 0.5},
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(broken: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(reversed(broken))):
        RetryPolicy(**broken)  # type: ignore[arg-type]


# -- Each kind of request ----------------------------------------------------------------------------------------------


def test_an_append_is_not_sent_again_when_its_answer_is_lost() -> None:
    script = Script([LOST, DONE])
    with pytest.raises(OutcomeUnknown):
        script.run(append(TARGET, "text/plain", b"x", Conditions()))
    assert len(script.requests) == 1


def test_closing_may_be_done_twice() -> None:
    script = Script([LOST, DONE])
    script.run(close(TARGET))
    assert script.result.next_offset == "1"


def test_a_stream_that_was_made_by_a_lost_attempt_counts_as_new() -> None:
    lost, found = Script([LOST, FOUND]), Script([FOUND])
    lost.run(create(TARGET, "text/plain"))
    found.run(create(TARGET, "text/plain"))
    assert lost.result.new and not found.result.new


def test_a_stream_that_must_be_new_and_is_not_is_a_conflict() -> None:
    with pytest.raises(Conflict):
        Script([FOUND]).run(create(TARGET, "text/plain", if_exists="fail"))
    script = Script([LOST, FOUND])
    script.run(create(TARGET, "text/plain", if_exists="fail"))
    assert script.result.new


def test_a_stream_that_was_deleted_by_a_lost_attempt_is_deleted() -> None:
    Script([LOST, Response(404)]).run(delete(TARGET))
