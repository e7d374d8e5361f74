"""Readers notice every event that is missing, repeated or changed."""

import pytest

from headwater.load.events import Tracker, event, warm_up
from headwater.load.loads import Latencies

SENT = [event(number, 1_000, 40) for number in range(6)]


def counts(data: bytes, cut: int = 1_000_000) -> tuple[int, int, int, int]:
    tracker = Tracker(Latencies(), 40)
    for at in range(0, len(data), cut):
        tracker.take(data[at : at + cut], 3_000)
    assert tracker.latencies.counts.total() == tracker.delivered
    return tracker.delivered, tracker.skipped, tracker.repeated, tracker.changed


@pytest.mark.parametrize(
    ("received", "found"),
    [
        (SENT, (6, 0, 0, 0)),
        ([warm_up(40), *SENT, warm_up(40)], (6, 0, 0, 0)),
        ([*SENT[:2], *SENT[4:]], (4, 2, 0, 0)),
        ([*SENT[:3], *SENT[1:]], (8, 0, 2, 0)),
        ([SENT[1], SENT[0], *SENT[2:]], (6, 1, 1, 0)),
        ([*SENT[:5], SENT[5][:-1] + b"!"], (5, 0, 0, 1)),
        ([*SENT[:5], b"?" * 40], (5, 0, 0, 1)),
        ([*SENT[:5], b"." * 39 + b"!"], (5, 0, 0, 1)),
    ],
)
def test_a_tracker_counts_by_number(received: list[bytes], found: tuple[int, int, int, int]) -> None:
    assert counts(b"".join(received)) == found
    assert all(counts(b"".join(received), cut) == found for cut in (1, 7, 39, 40, 41))


def test_latency_is_counted_from_when_an_event_was_due() -> None:
    tracker = Tracker(Latencies(), 40)
    tracker.take(event(0, 1_000_000, 40), 4_000_000)
    assert tracker.latencies.percentiles()["max"] == 3_000


def test_the_checksum_covers_every_byte_however_the_data_is_cut() -> None:
    sums = set()
    for cut in (1, 40, 100):
        tracker = Tracker(Latencies(), 40)
        for at in range(0, 240, cut):
            tracker.take(b"".join(SENT)[at : at + cut], 0)
        sums.add(tracker.checksum)
    other = Tracker(Latencies(), 40)
    other.take(b"".join([*SENT[:5], event(5, 1_001, 40)]), 0)
    assert len(sums) == 1 and other.checksum not in sums
