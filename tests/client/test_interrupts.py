"""Appends that share a request when one of their callers is interrupted."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from headwater.client import Appended, OutcomeUnknown
from headwater.client.blocking import writing
from headwater.client.blocking.writing import Appender
from headwater.client.bodies import EncodedMessages
from headwater.client.operations import Conditions, RequestTarget
from headwater.client.retrying import RetryPolicy

SECONDS_MAX = 10


class HeldCarrier:
    """Answers requests when the test says so."""

    def __init__(self) -> None:
        self.started, self.release = threading.Semaphore(0), threading.Semaphore(0)
        self.failure: BaseException | None = None

    def run(self, program: Any) -> Appended:
        program.close()
        self.started.release()
        assert self.release.acquire(timeout=SECONDS_MAX)
        if self.failure is not None:
            raise self.failure
        return Appended("1")


@pytest.fixture
def carrier() -> HeldCarrier:
    return HeldCarrier()


@pytest.fixture
def appender(carrier: HeldCarrier) -> Appender:
    return Appender(carrier, RequestTarget("http://h/s", RetryPolicy()))  # type: ignore[arg-type]


def append(appender: Appender) -> Appended:
    return appender.append(EncodedMessages(b"x"), "text/plain", Conditions())


def test_appends_behind_an_interrupted_one_are_still_sent(
    carrier: HeldCarrier, appender: Appender, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(future: Any) -> Any:
        raise KeyboardInterrupt

    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(append, appender)
        assert carrier.started.acquire(timeout=SECONDS_MAX)
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(writing, "result_of", interrupted)
            append(appender)
        last = threads.submit(append, appender)
        while len(appender._gathering._queue) < 2:
            assert not last.done()
        carrier.release.release(2)
        assert first.result(SECONDS_MAX) == last.result(SECONDS_MAX) == Appended("1")


def test_an_interrupted_append_that_was_to_send_the_next_request_leaves_the_way_free(
    carrier: HeldCarrier, appender: Appender, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(future: Any) -> Any:
        future.result(SECONDS_MAX)
        raise KeyboardInterrupt

    with ThreadPoolExecutor(3) as threads:
        first = threads.submit(append, appender)
        assert carrier.started.acquire(timeout=SECONDS_MAX)
        with monkeypatch.context() as patch:
            patch.setattr(writing, "result_of", interrupted)
            second = threads.submit(append, appender)
            while not appender._gathering._queue:
                assert not second.done()
            carrier.release.release(2)
            assert isinstance(second.exception(SECONDS_MAX), KeyboardInterrupt)
        assert not appender._gathering._busy
        last = threads.submit(append, appender)
        assert first.result(SECONDS_MAX) == last.result(SECONDS_MAX) == Appended("1")


def test_appends_that_shared_an_interrupted_request_do_not_know_their_outcome(
    carrier: HeldCarrier, appender: Appender
) -> None:
    with ThreadPoolExecutor(3) as threads:
        first = threads.submit(append, appender)
        assert carrier.started.acquire(timeout=SECONDS_MAX)
        others = [threads.submit(append, appender) for _ in range(2)]
        while len(appender._gathering._queue) < 2:
            assert not any(other.done() for other in others)
        carrier.release.release()
        assert first.result(SECONDS_MAX) == Appended("1")
        assert carrier.started.acquire(timeout=SECONDS_MAX)
        carrier.failure = KeyboardInterrupt()
        carrier.release.release()
        errors = {type(other.exception(SECONDS_MAX)) for other in others}
    assert errors == {KeyboardInterrupt, OutcomeUnknown}
