"""What a usage report shows: measures as tiles, plots and tables."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from headwater.spark.jobs.usage.measures import QUANTILES, Totals, moment
from headwater.spark.jobs.usage.numbers import count, duration, size
from headwater.spark.jobs.usage.page import Cell, plots, remark, section, table, tiles
from headwater.spark.jobs.usage.plots import Bar, Format, Line, bars, columns, lines

STYLES = ("first", "second", "third")
Row = dict[str, Any]


class Usage(NamedTuple):
    """Everything that was measured, small enough for a page."""

    span: Totals
    event_time: str | None
    step: int
    windows: list[Row]
    session_gap: int
    sessions: Row
    session_lengths: list[tuple[int, int]]
    sizes: list[tuple[int, int]]
    delays: list[tuple[int, int]]
    top: list[Row]
    buckets: list[Row]
    content_types: list[Row]


def sections(usage: Usage) -> list[str]:
    """The parts of the page."""
    return [_tiles(usage), _over_time(usage), _delays(usage), _sizes(usage), _top(usage), _parts(usage)]


def _tiles(usage: Usage) -> str:
    span = usage.span
    peak = max(row["messages"] for row in usage.windows) / usage.step
    facts = [
        ("streams", count(span.streams)),
        ("messages", count(span.messages)),
        ("payload", size(span.bytes)),
        ("a message, median", size(span.size_quantiles[0])),
        ("messages a second, on average", count(span.messages / span.seconds)),
        ("messages a second, at most", count(peak)),
        ("sessions", count(usage.sessions["sessions"])),
    ]
    delay = "between messages" if usage.event_time is None else "from event to message"
    median = "-" if span.delay_quantiles is None else duration(span.delay_quantiles[0])
    return tiles([*facts, (f"{delay}, median", median)])


def _over_time(usage: Usage) -> str:
    begin, end = _ends(usage)
    shown = []
    measured: tuple[tuple[str, Callable[[Row], float], Format], ...] = (
        ("Messages a second", lambda row: row["messages"] / usage.step, count),
        ("Bytes a second", lambda row: row["bytes"] / usage.step, size),
        ("Streams with messages", lambda row: float(row["streams"]), count),
        ("Bytes of a message, on average", lambda row: row["bytes"] / row["messages"], size),
    )
    for what, value, form in measured:
        drawn = [
            Bar(at, at + usage.step, value(row), f"{_at(at)}: {form(value(row))}")
            for row in usage.windows
            for at in [row["begins"].timestamp()]
        ]
        shown.append((what, bars(drawn, begin, end, form, what)))
    return section("Over time", remark(f"Windows of {duration(usage.step)}, times in UTC."), plots(shown))


def _ends(usage: Usage) -> tuple[float, float]:
    """From when to when the plots go: all windows, whole."""
    times = [row["begins"].timestamp() for row in usage.windows]
    return times[0], times[-1] + usage.step


def _at(seconds: float) -> str:
    return moment(seconds).strftime("%Y-%m-%d %H:%M:%S")


def _delays(usage: Usage) -> str:
    begin, end = _ends(usage)
    series = []
    for quantile, style in zip(QUANTILES, STYLES, strict=True):
        name = f"p{round(quantile * 100)}"
        known = [row for row in usage.windows if row[f"delay_{name}"] is not None]
        middle = [(row["begins"].timestamp() + usage.step / 2, row[f"delay_{name}"]) for row in known]
        series.append(Line(name, style, middle))
    title = "Time between messages of a stream"
    told = "From one message of a stream to the next."
    if usage.event_time is not None:
        title = "From event to message"
        told = (
            f"From the time in the field '{usage.event_time}' of a message to its commit; "
            f"{count(usage.span.timed)} of {count(usage.span.messages)} messages have one."
        )
    shown = [
        ("Quantiles over time", lines(series, begin, end, duration, title)),
        ("Messages by delay", columns(_powers(usage.delays, 10, duration), count, title)),
    ]
    quantiles = _quantiles("all messages", usage.span.delay_quantiles, duration)
    return section(title, remark(told + quantiles), plots(shown))


def _quantiles(what: str, found: Sequence[float] | None, form: Format) -> str:
    if found is None:
        return ""
    told = ", ".join(f"p{round(one * 100)} {form(value)}" for one, value in zip(QUANTILES, found, strict=True))
    return f" Of {what}: {told}."


def _powers(counts: list[tuple[int, int]], base: int, form: Format) -> list[tuple[str, int]]:
    """Classes from one power of the base up to the next, none left out in between; the last is where they end."""
    if not counts:
        return []
    known = dict(counts)
    return [(f"{form(base**power)}", known.get(power, 0)) for power in range(counts[0][0], counts[-1][0] + 2)]


def _sizes(usage: Usage) -> str:
    shown = [
        ("Messages by size", columns(_powers(usage.sizes, 2, size), count, "Sizes")),
        ("Sessions by length", columns(_powers(usage.session_lengths, 10, duration), count, "Lengths of sessions")),
    ]
    told = _quantiles("all messages", usage.span.size_quantiles, size).strip()
    gap = duration(usage.session_gap)
    sessions = f" A session is a time of a stream without a pause of {gap} or more."
    lengths = _quantiles("all sessions", usage.sessions["seconds"], duration)
    return section("Sizes and sessions", remark(told + sessions + lengths), plots(shown))


def _top(usage: Usage) -> str:
    heads = [Cell("stream", wide=True), Cell("", share=0), *(Cell(name, number=True) for name in ("bytes", "messages"))]
    heads += [Cell("sessions", number=True), Cell("first message"), Cell("last message")]
    most = max((row["bytes"] for row in usage.top), default=0) or 1
    rows = [
        [
            Cell(f"{row['bucket']}/{row['stream']}", wide=True),
            Cell(share=row["bytes"] / most),
            Cell(size(row["bytes"]), number=True),
            Cell(f"{row['messages']:,}", number=True),
            Cell(f"{row['sessions'] or 0:,}", number=True),
            Cell(_at(row["first_at"].timestamp())),
            Cell(_at(row["last_at"].timestamp())),
        ]
        for row in usage.top
    ]
    return section("Largest streams", table(heads, rows))


def _parts(usage: Usage) -> str:
    parts = [_shares(usage, "bucket", usage.buckets), _shares(usage, "content_type", usage.content_types)]
    return section("Buckets and content types", f'<div class="plots">{"".join(parts)}</div>')


def _shares(usage: Usage, name: str, rows: list[Row]) -> str:
    heads = [Cell(name.replace("_", " "), wide=True), Cell("", share=0)]
    heads += [Cell(one, number=True) for one in ("streams", "messages", "bytes")]
    told = [
        [
            Cell(str(row[name]), wide=True),
            Cell(share=row["bytes"] / max(usage.span.bytes, 1)),
            Cell(count(row["streams"]), number=True),
            Cell(count(row["messages"]), number=True),
            Cell(size(row["bytes"]), number=True),
        ]
        for row in rows
    ]
    return table(heads, told)
