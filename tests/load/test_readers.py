"""The audience of a stream receives every event, also when the server ends live reads."""

import time

import pytest

from headwater.client import Client
from headwater.load.events import event
from headwater.load.messages import LoadFailed
from headwater.load.readers import Audience, Ending, Receipt
from headwater.load.targets import Target
from headwater.testing import running_server

EVENTS = 40


def attend(url: str, *, closes: bool) -> list[Receipt]:
    """Send events to two processes of readers, and return what they received."""
    with Client(url) as client:
        stream = client.stream("events", content_type="text/plain")
        stream.create()
        with Audience(Target.of_url(url, {}), "/events", [2, 1]) as audience:
            audience.await_ready()
            for number in range(EVENTS):
                stream.append(event(number))
                time.sleep(0.02)
            assert audience.delivered() <= 3 * EVENTS
            if closes:
                stream.close_stream()
            receipts = audience.finish(Ending(EVENTS, time.monotonic() + 20.0, is_closed=closes))
        stream.delete()
    return receipts


@pytest.mark.parametrize("closes", [False, True])
def test_readers_whose_live_reads_end_resume_and_miss_nothing(closes: bool) -> None:
    with running_server("--sse-seconds", "0.2") as server:
        receipts = attend(f"{server.url}/v1/stream", closes=closes)
    assert [receipt.delivered for receipt in receipts] == [2 * EVENTS, EVENTS]
    assert sum(receipt.resumed for receipt in receipts) >= 3
    for receipt in receipts:
        assert (receipt.skipped, receipt.repeated, receipt.changed, receipt.missing, receipt.waiting) == (0,) * 5
        assert receipt.latencies.counts.total() == receipt.delivered


def test_a_missing_stream_fails_the_audience() -> None:
    with (
        running_server() as server,
        Audience(Target.of_url(server.url, {}), "/v1/stream/none", [1]) as audience,
        pytest.raises(LoadFailed, match="404"),
    ):
        audience.await_ready()


def test_events_that_do_not_arrive_are_missing_at_the_deadline() -> None:
    with running_server() as server, Client(f"{server.url}/v1/stream") as client:
        stream = client.stream("short", content_type="text/plain")
        stream.create()
        with Audience(Target.of_url(f"{server.url}/v1/stream", {}), "/short", [2]) as audience:
            audience.await_ready()
            stream.append(event(0))
            [receipt] = audience.finish(Ending(3, time.monotonic() + 1.0, is_closed=False))
    assert (receipt.delivered, receipt.missing, receipt.waiting) == (2, 4, 2)
