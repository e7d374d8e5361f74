"""The limits that the protocol or its clients rely on; changing one changes the protocol."""

from datetime import UTC, datetime, timedelta

import pytest

from headwater.protocol import limits


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("APPEND_BYTES_MAX", 16_777_216),
        ("NAME_BYTES_MAX", 122),
        ("NUMBER_MAX", 9_007_199_254_740_991),
        ("PRODUCERS_PER_STREAM_MAX", 10_000),
        ("PRODUCERS_FINISHED_MAX", 10_000),
        ("BULK_BYTES_MAX", 33_554_432),
        ("BULK_ROWS_MAX", 100_000),
        ("DESCRIBE_STREAMS_MAX", 100_000),
        ("SCAN_RANGES_MAX", 100_000),
        ("RANGES_COMMAS_MAX", 524_288),
        ("SCANS_MAX", 64),
        ("BULK_APPENDS_MAX", 16),
        ("CURSOR_INTERVAL_SECONDS", 20),
        ("CURSOR_JITTER_SECONDS_MAX", 3_600),
    ],
)
def test_a_limit_that_clients_know_of_stays(name: str, value: int) -> None:
    assert getattr(limits, name) == value


@pytest.mark.parametrize(
    ("name", "span"),
    [
        ("PRODUCER_IDLE_US", timedelta(days=7)),
        ("TOUCH_US_MAX", timedelta(minutes=1)),
        ("PIN_DEADLINE_US", timedelta(seconds=30)),
    ],
)
def test_a_span_of_time_is_as_long_as_it_says(name: str, span: timedelta) -> None:
    assert getattr(limits, name) == span // timedelta(microseconds=1)


def test_cursors_count_from_the_epoch_of_the_protocol() -> None:
    assert datetime(2024, 10, 9, tzinfo=UTC).timestamp() == limits.CURSOR_EPOCH_SECONDS
