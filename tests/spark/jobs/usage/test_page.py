"""The page of a usage report, rendered from made-up measures without Spark."""

from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from typing import Any

import pytest

from headwater.spark.jobs.usage import WINDOWS_MAX, render, step_for

NOON = datetime(2025, 11, 16, 12, tzinfo=UTC)
STEP_SECONDS = 900


def window(number: int, messages: int, delay: float | None = 0.5) -> dict[str, Any]:
    begins = NOON + timedelta(seconds=STEP_SECONDS * number)
    counts = {"messages": messages, "bytes": 420 * messages, "streams": 3}
    return {"begins": begins, "seconds": STEP_SECONDS, **counts, "delay_p95": delay}


def rendered(*windows: dict[str, Any]) -> str:
    streams = [
        {"stream": "orders/<all> & more", "bytes": 9_000, "messages": 21, "delay_p50": None, "last_at": NOON},
        {"stream": "orders/1", "bytes": 3_000, "messages": 7, "delay_p50": 1.25, "last_at": NOON},
    ]
    return render("Usage of <shop>", {"messages": 12_345, "first_at": NOON}, windows, {"Largest streams": streams})


class Checker(HTMLParser):
    """Checks that every element is closed, and collects bars, texts and everything that the page would load."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []
        self.bars: list[tuple[str, str]] = []
        self.meters: list[str] = []
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.loads += [found[name] for name in ("src", "href") if name in found] + ([tag] if tag == "script" else [])
        if tag == "i":
            self.bars.append((found["style"], found["title"]))
        if tag == "meter":
            self.meters.append(found["value"])
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@pytest.mark.parametrize("windows", [[window(0, 5)], [window(1, 0, None), window(0, 0, None)]])
def test_a_page_is_well_formed_and_loads_nothing(windows: list[dict[str, Any]]) -> None:
    page = rendered(*windows)
    checker = Checker(page)
    assert checker.open == [] and checker.loads == []
    assert "Usage of &lt;shop&gt;" in page and "orders/&lt;all&gt; &amp; more" in page
    assert {"12,345", "2025-11-16 12:00:00 UTC", "1.25", "-"} <= set(checker.texts)


def test_a_table_has_a_bar_for_the_bytes_of_each_row() -> None:
    assert Checker(rendered(window(0, 5))).meters == ["1.000", "0.333"]


def test_a_chart_has_a_column_for_every_window_in_order_with_gaps_for_those_without_messages() -> None:
    bars = Checker(rendered(window(3, 10), window(0, 20))).bars[:4]
    assert bars == [
        ("height:100.0%", "2025-11-16 12:00:00 UTC: 20"),
        ("height:0.0%", "2025-11-16 12:15:00 UTC: 0"),
        ("height:0.0%", "2025-11-16 12:30:00 UTC: 0"),
        ("height:50.0%", "2025-11-16 12:45:00 UTC: 10"),
    ]


def test_a_chart_shows_the_newest_windows_only() -> None:
    bars = Checker(rendered(window(10_000, 10), window(0, 20))).bars
    assert len(bars) == 4 * WINDOWS_MAX
    assert bars[WINDOWS_MAX - 1][0] == "height:100.0%"


def test_a_delay_below_zero_has_no_column() -> None:
    assert Checker(rendered(window(0, 5, -3.0))).bars[-1] == ("height:0.0%", "2025-11-16 12:00:00 UTC: 0")


@pytest.mark.parametrize("days", [0, 1, 30, 365, 3_650])
def test_a_page_has_room_for_all_windows(days: int) -> None:
    assert days * 86_400 / step_for(days * 86_400) <= WINDOWS_MAX
