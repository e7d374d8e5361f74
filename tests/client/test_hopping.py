"""What programs and producers do with several URLs: the next one at once, a delay when each has failed."""

import json

import pytest

from headwater.client.errors import OutcomeUnknown, ServerUnavailable, TransportFailed
from headwater.client.operations import Conditions, RequestTarget, append, append_once, create
from headwater.client.reading import Reader, ReadOptions
from headwater.client.retrying import Failures, RetryPolicy, attempt
from headwater.client.settings import ClientSettings
from headwater.client.tailing import ManyReader, followed
from headwater.client.wire import Request, Response, Route
from headwater.protocol.producers import Producer

from .cores import accepted, given_to, producing, taken
from .script import Line, Script

URL = "http://a/s"
POLICY = RetryPolicy(attempts_max=3, first_delay_seconds=1.0, dice=lambda: 0.0)
TARGET = RequestTarget(URL, POLICY)
DONE = Response(204, {"stream-next-offset": "1"})
REFUSED = TransportFailed("Connection refused.", sent=False, others=2)
RESET = TransportFailed("Connection reset.", sent=True, others=2)


def busy(code: str | None = None, *, after: int | None = None, failed: int = 0, others: int = 2) -> Response:
    """A 503 of one of three nodes."""
    body = b"" if code is None else json.dumps({"code": code, "detail": "Not now."}).encode()
    headers = {} if after is None else {"retry-after": str(after)}
    return Response(503, headers, body, Route("http://b/s", others, failed))


def tried(*answers: Line, repeatable: bool, policy: RetryPolicy = POLICY) -> Script:
    script = Script(answers)
    script.run(attempt(Request("POST", URL), policy, repeatable=repeatable))
    return script


@pytest.mark.parametrize("repeatable", [True, False])
def test_the_other_urls_are_tried_before_a_delay(repeatable: bool) -> None:
    script = tried(REFUSED, busy(), REFUSED, REFUSED, DONE, repeatable=repeatable)
    assert (len(script.requests), script.pauses) == (5, [0.5])


def test_a_failure_of_all_urls_is_one_of_the_policy() -> None:
    script = Script([RESET] * 20)
    with pytest.raises(TransportFailed):
        script.run(attempt(Request("GET", URL), POLICY, repeatable=True))
    assert (len(script.requests), script.pauses) == (9, [0.5, 1.0])


def test_urls_to_which_no_connection_is_made_are_given_up_earlier() -> None:
    policy = RetryPolicy(attempts_max=5, connect_attempts_max=2, first_delay_seconds=1.0, dice=lambda: 0.0)
    script = Script([REFUSED] * 20)
    with pytest.raises(TransportFailed):
        script.run(attempt(Request("GET", URL), policy, repeatable=True))
    assert len(script.requests) == 6


def test_a_refusal_that_every_node_would_give_is_waited_out_at_one() -> None:
    limited = Response(429, {"retry-after": "5"}, route=Route("http://b/s"))
    assert tried(limited, limited, DONE, repeatable=False).pauses == [5.0, 5.0]


def test_retry_after_is_honoured_when_each_url_has_asked_for_it() -> None:
    assert tried(busy(after=7), busy(after=7), busy(after=7), DONE, repeatable=False).pauses == [7.0]


def test_a_server_that_may_be_busy_for_a_while_has_others() -> None:
    policy = RetryPolicy(attempts_max=1, first_delay_seconds=1.0, busy_seconds=1.2, dice=lambda: 0.0)
    assert tried(*[busy()] * 6, DONE, repeatable=False, policy=policy).pauses == [0.5, 0.5]
    with pytest.raises(ServerUnavailable):
        tried(*[busy()] * 20, repeatable=False, policy=policy)


def test_progress_begins_a_new_round() -> None:
    failures = Failures(POLICY)
    assert [failures.next_delay(others=1) for _ in range(3)] == [0.0, 0.5, 0.0]
    failures.reset()
    assert [failures.next_delay(others=1) for _ in range(4)] == [0.0, 0.5, 0.0, 1.0]


# -- Outcomes ----------------------------------------------------------------------------------------------------------


def test_a_plain_write_with_an_unknown_outcome_is_not_repeated() -> None:
    script = Script([busy("outcome_unknown"), DONE])
    with pytest.raises(OutcomeUnknown, match=r"^POST http://b/s .* 503: Not now\. The write may or may not") as caught:
        script.run(append(TARGET, "text/plain", b"x", Conditions()))
    assert len(script.requests) == 1
    assert isinstance(caught.value.__cause__, ServerUnavailable)


def test_a_plain_write_that_changed_nothing_is_repeated() -> None:
    script = Script([busy("log_unavailable"), busy("draining"), DONE])
    script.run(append(TARGET, "text/plain", b"x", Conditions()))
    assert len(script.requests) == 3 and not script.pauses


def test_a_numbered_write_with_an_unknown_outcome_is_repeated() -> None:
    script = Script([busy("outcome_unknown"), busy("outcome_unknown"), DONE])
    script.run(append_once(TARGET, "text/plain", b"x", Producer("p", 0, 0)))
    assert script.result.duplicate and len(script.requests) == 3
    with pytest.raises(OutcomeUnknown):
        Script([busy("outcome_unknown")] * 20).run(append_once(TARGET, "text/plain", b"x", Producer("p", 0, 0)))


def test_a_stream_that_was_created_with_an_unknown_outcome_counts_as_new() -> None:
    script = Script([busy("outcome_unknown"), Response(200, {"stream-next-offset": "0"})])
    script.run(create(TARGET, "text/plain", if_exists="fail"))
    assert script.result.new


def test_an_error_names_the_url_and_says_that_all_failed() -> None:
    with pytest.raises(ServerUnavailable) as caught:
        tried(*[busy("log_unavailable", failed=3)] * 9, repeatable=True)
    assert str(caught.value) == "POST http://b/s was answered with 503: Not now; all 3 URLs failed."
    assert caught.value.url == "http://b/s"


# -- Producers and readers ---------------------------------------------------------------------------------------------


def test_a_producer_repeats_a_write_at_the_next_url_at_once() -> None:
    core = producing(in_flight_max=1)
    given_to(core, "a")
    for outcome in (REFUSED, busy("log_unavailable")):
        (batch,) = taken(core, 5.0)
        assert core.settle(batch, outcome, 5.0) == [] and core.wake_at(5.0) == 5.0
    (batch,) = taken(core, 5.0)
    core.settle(batch, RESET, 5.0)
    assert core.wake_at(5.0) == 5.5
    (batch,) = taken(core, 5.5)
    assert batch.seq == 0
    assert len(core.settle(batch, accepted(batch), 5.5)) == 1


@pytest.mark.parametrize(("code", "in_doubt"), [("outcome_unknown", True), ("log_unavailable", False), (None, True)])
def test_a_producer_knows_which_writes_may_have_happened(code: str | None, in_doubt: bool) -> None:
    core = producing(in_flight_max=1)
    given_to(core, "a")
    (batch,) = taken(core)
    core.settle(batch, busy(code), 0.0)
    assert batch.in_doubt == in_doubt


@pytest.mark.parametrize("failure", [REFUSED, RESET, busy()])
def test_a_reader_asks_the_next_url_at_once(failure: Line) -> None:
    page = Response(200, {"stream-next-offset": "1", "stream-up-to-date": "true"}, b"a")
    script = Script([failure, failure, page])
    chunks = script.run(Reader(URL, POLICY, ReadOptions(None)).run())
    assert [chunk.data for chunk in chunks] == [b"a"]
    assert len(script.requests) == 3 and not script.pauses
    late = Script([failure] * 3 + [page])
    late.run(Reader(URL, POLICY, ReadOptions(None)).run())
    assert late.pauses == [0.5]


@pytest.mark.parametrize("failure", [REFUSED, RESET, busy()])
def test_a_reader_of_many_streams_asks_the_next_url_at_once(failure: Line) -> None:
    script = Script([failure, failure, failure])
    streams = followed(ClientSettings(["http://a", "http://b"], follow_retry=POLICY), {"s": None})
    script.run(ManyReader("http://a/__headwater/tail", POLICY, streams, "raise").run())
    assert len(script.requests) == 4 and script.pauses == [0.5]
