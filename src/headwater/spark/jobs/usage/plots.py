"""Plots as SVG, drawn here: they need no script, take their colours from the page, and tell values when pointed at."""

from collections.abc import Callable, Sequence
from html import escape
from typing import NamedTuple

from headwater.spark.jobs.usage.numbers import ticks, time_ticks

WIDTH, HEIGHT = 480, 190
LEFT, RIGHT, TOP, BOTTOM = 56, 14, 10, 24
"""Pixels around the plot: numbers stand on the left, times below."""

Format = Callable[[float], str]


class Bar(NamedTuple):
    """A value from one time to another."""

    begin: float
    end: float
    value: float
    title: str


class Line(NamedTuple):
    """Values at times; `style` is its class on the page."""

    name: str
    style: str
    points: Sequence[tuple[float, float]]


class Frame:
    """Where values lie on a plot."""

    def __init__(self, first: float, last: float, high: float, form: Format, *, right: int = RIGHT) -> None:
        self._first, self._span = first, max(last - first, 1e-9)
        self._ticks = ticks(high)
        self._form, self._right = form, right

    def x(self, at: float) -> float:
        return LEFT + (WIDTH - LEFT - self._right) * (at - self._first) / self._span

    def y(self, value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / self._ticks[-1]

    def values(self) -> str:
        """The lines and numbers of the values."""
        parts = []
        for tick in self._ticks:
            y = self.y(tick)
            parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - self._right}" y1="{y:.1f}" y2="{y:.1f}"/>')
            parts.append(text(LEFT - 6, y + 3.5, self._form(tick), "end"))
        return "".join(parts)

    def times(self) -> str:
        """The times below."""
        last = self._first + self._span
        return "".join(text(self.x(at), HEIGHT - 7, label, "middle") for at, label in time_ticks(self._first, last))


def bars(values: Sequence[Bar], first: float, last: float, form: Format, what: str) -> str:
    """Values over time as bars."""
    frame = Frame(first, last, max((bar.value for bar in values), default=0), form)
    drawn = []
    for bar in values:
        x, width = frame.x(bar.begin), frame.x(bar.end) - frame.x(bar.begin)
        # A gap between two bars, where there is room for one.
        drawn.append(_column(x, max(width - min(1.0, width / 5), 0.5), frame.y(bar.value), bar.title))
    return _svg(what, frame.values() + "".join(drawn) + frame.times())


def lines(series: Sequence[Line], first: float, last: float, form: Format, what: str) -> str:
    """Values over time as lines, with their names at their ends."""
    high = max((value for line in series for _, value in line.points), default=0)
    frame = Frame(first, last, high, form, right=36)
    drawn: list[str] = []
    taken: list[float] = []
    for line in series:
        if not line.points:
            continue
        places = [(frame.x(at), frame.y(max(value, 0))) for at, value in line.points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        drawn.append(f'<polyline class="line {line.style}" points="{path}"/>')
        drawn += [
            f'<circle class="dot {line.style}" cx="{x:.1f}" cy="{y:.1f}" r="6">'
            f"<title>{escape(line.name)}: {escape(form(value))}</title></circle>"
            for (x, y), (_, value) in zip(places, line.points, strict=True)
        ]
        y = _free(places[-1][1] + 3.5, taken)
        taken.append(y)
        drawn.append(text(WIDTH - 32, y, line.name, "start", f"name {line.style}"))
    return _svg(what, frame.values() + "".join(drawn) + frame.times())


def columns(values: Sequence[tuple[str, int]], form: Format, what: str) -> str:
    """Counts of classes side by side, each from its label up to the next; the last one is only a label."""
    frame = Frame(0, max(len(values) - 1, 1), max((count for _, count in values), default=0), form)
    every = 1 + len(values) // 9
    drawn = []
    for index, (label, count) in enumerate(values):
        x, width = frame.x(index), frame.x(index + 1) - frame.x(index)
        if index + 1 < len(values):
            title = f"{label} to {values[index + 1][0]}: {form(count)}"
            drawn.append(_column(x + 1, max(width - 2, 1), frame.y(count), title))
        if index % every == 0:
            drawn.append(text(x, HEIGHT - 7, label, "middle"))
    return _svg(what, frame.values() + "".join(drawn))


def _column(x: float, width: float, y: float, title: str) -> str:
    height = max(HEIGHT - BOTTOM - y, 0.5)
    shape = (
        f'<rect class="bar" x="{x:.2f}" y="{HEIGHT - BOTTOM - height:.2f}" width="{width:.2f}" height="{height:.2f}">'
    )
    return f"{shape}<title>{escape(title)}</title></rect>"


def _free(y: float, taken: Sequence[float], height: float = 12) -> float:
    """A place for a name that covers no other one."""
    while any(abs(y - other) < height for other in taken):
        y -= height
    return y


def text(x: float, y: float, words: str, anchor: str, style: str = "tick") -> str:
    """A word on a plot."""
    return f'<text class="{style}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def _svg(what: str, inside: str) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(what)}">{inside}</svg>'
