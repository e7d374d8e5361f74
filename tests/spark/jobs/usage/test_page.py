"""The page of a usage report and its plots, from made-up measures; no Spark in here."""

import math
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree

import pytest

from headwater.spark.jobs.usage.measures import Totals, step_of
from headwater.spark.jobs.usage.page import page
from headwater.spark.jobs.usage.plots import Bar, Line, bars, columns, lines
from headwater.spark.jobs.usage.sections import Usage, sections

NOON = datetime(2025, 11, 16, 12, tzinfo=UTC)


def usage(windows: int = 96, *, event_time: str | None = "at", delays: bool = True) -> Usage:
    """Measures such as a day of a small shop may give."""
    rows: list[dict[str, Any]] = []
    for number in range(windows):
        busy = 1 + math.sin(number / windows * 2 * math.pi - 2) + 0.3 * math.sin(number * 1.7)
        messages = int(900 * max(busy, 0.05))
        delay = [0.04 + 0.03 * busy, 0.2 + 0.2 * busy, 0.6 + 0.7 * abs(math.sin(number / 5))]
        rows.append(
            {
                "begins": NOON + timedelta(seconds=900 * number),
                "messages": messages,
                "bytes": messages * 420,
                "streams": min(messages, 340),
                **{f"delay_p{p}": value if delays else None for p, value in zip((50, 95, 99), delay, strict=True)},
            }
        )
    messages = sum(row["messages"] for row in rows)
    top = [
        {
            "bucket": "shop",
            "stream": f"orders/{number:04}" if number else "orders/<all> & everything that has a long name/0001",
            "bytes": 9_000_000 // (number + 1),
            "messages": 21_000 // (number + 1),
            "sessions": 40 - number if number < 10 else None,
            "first_at": NOON,
            "last_at": NOON + timedelta(hours=23, minutes=number),
        }
        for number in range(12)
    ]
    share = {"streams": 1_200, "messages": messages, "bytes": messages * 420}
    quantiles = (0.06, 0.4, 1.3) if delays else None
    first, last = NOON.timestamp(), NOON.timestamp() + 900 * windows - 400
    span = Totals(
        1_200, messages, messages * 420, first, last, (310, 1_800, 9_000), messages if delays else 0, quantiles
    )
    return Usage(
        span,
        event_time,
        900,
        rows,
        300,
        {"sessions": 5_120, "seconds": (42.0, 900.0, 5_000.0), "messages": (9, 80, 400)},
        [(-1, 40), (0, 800), (1, 2_100), (2, 1_700), (3, 480)],
        [(5, 40), (6, 800), (7, 9_000), (8, 30_000), (9, 21_000), (10, 4_000), (11, 800), (13, 40)],
        [(-3, 300), (-2, 30_000), (-1, 41_000), (0, 2_000)] if delays else [],
        top,
        [{"bucket": "shop", **share}],
        [{"content_type": "application/json", **share}],
    )


class Checker(HTMLParser):
    """Sees that every element is closed, and notes what the page would load."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loads += [str(value) for name, value in attrs if name in ("src", "href") or tag == "script"]
        if tag not in ("meta", "line", "polyline"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("line", "polyline"):
            assert self.open.pop() == tag


@pytest.mark.parametrize(
    "measured", [usage(), usage(1), usage(3, event_time=None), usage(event_time=None, delays=False)]
)
def test_a_page_is_whole_and_loads_nothing(measured: Usage) -> None:
    made = page("Streams of <shop>", "somewhere", *sections(measured), foot="made by a test")
    checker = Checker()
    checker.feed(made)
    assert checker.open == [] and checker.loads == []
    assert "Streams of &lt;shop&gt;" in made and "orders/&lt;all&gt; &amp; everything" in made
    assert "prefers-color-scheme: dark" in made
    for svg in made.split("<svg")[1:]:
        ElementTree.fromstring("<svg" + svg.partition("</svg>")[0] + "</svg>")


def test_every_bar_tells_its_value_and_stays_inside() -> None:
    drawn = bars([Bar(0, 10, 5, "five"), Bar(10, 20, 0, "none"), Bar(20, 30, 9, "nine")], 0, 30, str, "numbers")
    shapes = [one for one in ElementTree.fromstring(drawn) if one.tag == "rect"]
    assert [shape[0].text for shape in shapes] == ["five", "none", "nine"]
    heights = [float(shape.attrib["height"]) for shape in shapes]
    assert heights[1] < heights[0] < heights[2] <= 190
    ends = [float(shape.attrib["x"]) + float(shape.attrib["width"]) for shape in shapes]
    assert ends == sorted(ends) and ends[-1] <= 480


def test_names_of_lines_do_not_cover_each_other() -> None:
    series = [
        Line(name, "first", [(0, value), (9, value)]) for name, value in (("p50", 1.0), ("p95", 1.01), ("p99", 1.02))
    ]
    drawn = ElementTree.fromstring(lines([*series, Line("none", "second", [])], 0, 9, str, "numbers"))
    places = sorted(float(one.attrib["y"]) for one in drawn if one.attrib.get("class", "").startswith("name"))
    assert len(places) == 3 and min(b - a for a, b in pairwise(places)) >= 11.9


def test_plots_of_nothing_are_empty_frames() -> None:
    for drawn in (bars([], 0, 1, str, "no bars"), lines([], 0, 1, str, "no lines"), columns([], str, "no columns")):
        assert "grid" in drawn and "rect" not in drawn and "polyline" not in drawn


@pytest.mark.parametrize("days", [0, 1, 30, 365, 3_650])
def test_a_page_has_room_for_all_windows(days: int) -> None:
    assert days * 86_400 / step_of(days * 86_400) <= 120
