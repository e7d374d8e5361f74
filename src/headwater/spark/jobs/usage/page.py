"""The page of a usage report: one HTML file without scripts, for light and dark screens and for paper."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from html import escape
from typing import Any

from headwater.spark.jobs.usage.measures import WINDOWS_MAX
from headwater.units import render_duration

Row = Mapping[str, Any]
CHARTS = ("messages", "bytes", "streams", "delay_p95")
BAR = "bytes"
STYLE = """
:root { color-scheme: light dark; font: 15px/1.45 system-ui, sans-serif; }
body { max-width: 1080px; margin: 2rem auto; padding: 0 1rem; }
h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; } h2 small { font-weight: normal; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; break-inside: avoid; }
th, td { text-align: left; padding: .3rem .7rem; border-bottom: 1px solid #8884; }
td { overflow-wrap: anywhere; } td.number { text-align: right; white-space: nowrap; }
meter { width: 6rem; margin-right: .7rem; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(460px, 1fr)); column-gap: 2rem; }
figure { margin: 0; break-inside: avoid; } figcaption { display: flex; justify-content: space-between; }
.chart { display: flex; align-items: flex-end; gap: 1px; height: 7rem; border-bottom: 1px solid; }
.chart i { flex: 1; background: steelblue; print-color-adjust: exact; } .chart i:hover { background: darkorange; }
"""


def render(title: str, facts: Row, windows: Sequence[Row], tables: Mapping[str, Sequence[Row]]) -> str:
    """A page with facts, a chart of each measure over time, and tables with the columns that their rows have."""
    parts = [
        _table([{"": _words(name), " ": value} for name, value in facts.items()]),
        f'<div class="charts">{"".join(_chart(name, windows) for name in CHARTS)}</div>',
        *(f"<h2>{escape(name)}</h2>{_table(rows)}" for name, rows in tables.items()),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n<body><h1>{escape(title)}</h1>\n"
        + "\n".join(parts)
        + f"\n<p>Made by headwater spark report on {shown(datetime.now(UTC))}.</p></body></html>\n"
    )


def _chart(name: str, windows: Sequence[Row]) -> str:
    """One column for each of the newest windows, those without messages included."""
    known = {row["begins"]: max(row[name] or 0, 0) for row in windows}
    last, step = max(known), timedelta(seconds=windows[0]["seconds"])
    times = [last - step * back for back in reversed(range(WINDOWS_MAX)) if last - step * back >= min(known)]
    values = [known.get(at, 0) for at in times]
    peak = max(values)
    columns = "".join(
        f'<i style="height:{100 * value / (peak or 1):.1f}%" title="{shown(at)}: {shown(value)}"></i>'
        for at, value in zip(times, values, strict=True)
    )
    note = f"in windows of {render_duration(step.total_seconds())}, at most {shown(peak)}"
    ends = f"<span>{shown(times[0])}</span><span>{shown(last)}</span>"
    return (
        f"<figure><h2>{_words(name)} <small>{note}</small></h2>"
        f'<div class="chart">{columns}</div><figcaption>{ends}</figcaption></figure>'
    )


def _table(rows: Sequence[Row]) -> str:
    heads = "".join(f"<th>{_words(name)}</th>" for name in rows[0])
    most = max(row.get(BAR, 0) for row in rows) or 1
    body = "".join(f"<tr>{''.join(_cell(name, value, most) for name, value in row.items())}</tr>" for row in rows)
    return f"<table><tr>{heads}</tr>{body}</table>"


def _cell(name: str, value: Any, most: int) -> str:
    if not isinstance(value, int | float):
        return f"<td>{escape(shown(value))}</td>"
    bar = f'<meter value="{value / most:.3f}"></meter>' if name == BAR else ""
    return f'<td class="number">{bar}{shown(value)}</td>'


def _words(name: str) -> str:
    return escape(name.replace("_", " "))


def shown(value: Any) -> str:
    """A value for a person.

    >>> shown(12_345), shown(1234.5678), shown(0.25), shown(None)
    ('12,345', '1,234.568', '0.25', '-')
    """
    match value:
        case None:
            return "-"
        case datetime():
            return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        case float():
            return f"{value:,.3f}".rstrip("0").rstrip(".")
        case int():
            return f"{value:,}"
    return str(value)
