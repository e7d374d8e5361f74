import pytest

from headwater.protocol import cursors
from headwater.protocol.limits import CURSOR_EPOCH_SECONDS, SECOND_US

EPOCH_US = CURSOR_EPOCH_SECONDS * SECOND_US


@pytest.mark.parametrize(("seconds", "interval"), [(-100, 0), (0, 0), (19.999999, 0), (20, 1), (3600, 180)])
def test_cursors_count_twenty_second_intervals(seconds: float, interval: int) -> None:
    assert cursors.current(EPOCH_US + int(seconds * SECOND_US)) == interval


@pytest.mark.parametrize(
    ("text", "cursor"),
    [("0", 0), ("42", 42), (None, -1), ("", -1), ("-1", -1), ("4x", -1), ("4\n", -1), ("\u0664", -1), ("9" * 19, -1)],
)
def test_a_cursor_that_we_never_gave_counts_as_none(text: str | None, cursor: int) -> None:
    assert cursors.parse(text) == cursor


@pytest.mark.parametrize("client", [-1, 0, 99])
def test_a_client_behind_gets_the_current_interval(client: int) -> None:
    assert cursors.advance(EPOCH_US + 2000 * SECOND_US, client, 0.999) == 100


@pytest.mark.parametrize(
    ("client", "jitter", "answer"),
    [(100, 0.0, 101), (100, 0.005, 101), (100, 0.006, 102), (100, 0.999999, 280), (5000, 0.0, 5001)],
)
def test_a_client_that_is_level_or_ahead_is_sent_on_by_one_to_180_intervals(
    client: int, jitter: float, answer: int
) -> None:
    assert cursors.advance(EPOCH_US + 2000 * SECOND_US, client, jitter) == answer
