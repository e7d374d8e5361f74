"""The page of a usage report: one file that needs nothing else, for light and dark screens and for paper."""

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

STYLE = """
:root { color-scheme: light dark; --paper: #f6f6f3; --card: #ffffff; --ink: #1d1d1b; --soft: #66665f; --edge: #e3e3dd;
  --accent: #2f6db3; --second: #b26a00; --third: #b3364b; }
@media (prefers-color-scheme: dark) { :root { --paper: #151513; --card: #1e1e1b; --ink: #ecebe4; --soft: #a2a197;
  --edge: #34342f; --accent: #74aef0; --second: #e3a44c; --third: #f07f8f; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); line-height: 1.45;
  font: 15px/1.45 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 36px 20px 64px; }
h1 { font-size: 26px; font-weight: 650; margin: 0 0 4px; letter-spacing: -0.01em; overflow-wrap: anywhere; }
h2 { font-size: 17px; font-weight: 650; margin: 36px 0 12px; }
h3 { font-size: 13px; font-weight: 600; margin: 0 0 8px; }
p { margin: 0 0 8px; } .soft { color: var(--soft); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(200px, 1fr)); gap: 12px; margin-top: 24px; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 420px), 1fr)); gap: 12px; }
.card { background: var(--card); border: 1px solid var(--edge); border-radius: 10px; padding: 14px 16px; min-width: 0; }
.tile b { display: block; font-size: 22px; font-weight: 650; font-variant-numeric: tabular-nums; white-space: nowrap; }
.tile span { color: var(--soft); font-size: 13px; }
svg { width: 100%; height: auto; display: block; overflow: visible; }
.grid { stroke: var(--edge); stroke-width: 1; } .tick { fill: var(--soft); font-size: 10.5px; }
.bar { fill: var(--accent); } .bar:hover { fill: var(--ink); }
.line { fill: none; stroke-width: 1.8; stroke-linejoin: round; } .dot { fill: transparent; }
.first { stroke: var(--accent); } .second { stroke: var(--second); stroke-dasharray: 6 2; }
.third { stroke: var(--third); stroke-dasharray: 2 2.5; } .dot { stroke: none; }
.dot.first:hover { fill: var(--accent); } .dot.second:hover { fill: var(--second); }
.dot.third:hover { fill: var(--third); }
.name { font-size: 10.5px; stroke: none; font-weight: 600; } .name.first { fill: var(--accent); }
.name.second { fill: var(--second); } .name.third { fill: var(--third); }
.scroll { overflow-x: auto; padding: 4px 0; }
table { border-collapse: collapse; width: 100%; font-size: 14px; font-variant-numeric: tabular-nums; }
th { text-align: left; font-weight: 600; color: var(--soft); font-size: 12.5px; }
th, td { padding: 7px 12px; border-bottom: 1px solid var(--edge); white-space: nowrap; }
tr:last-child td { border-bottom: 0; }
td.number, th.number { text-align: right; } td.wide { white-space: normal; overflow-wrap: anywhere; min-width: 150px; }
.share { width: 16%; min-width: 90px; } .share i { display: block; height: 9px; border-radius: 2px;
  background: var(--accent); }
footer { margin-top: 40px; font-size: 13px; color: var(--soft); }
@media print { body { background: #fff; } .card { break-inside: avoid; } }
"""


class Cell(NamedTuple):
    """What stands in a table: words, a number, or the share of a bar between 0 and 1."""

    text: str = ""
    number: bool = False
    share: float | None = None
    wide: bool = False


def tiles(facts: Sequence[tuple[str, str]]) -> str:
    """The few numbers that matter most."""
    shown = (f'<div class="card tile"><b>{escape(value)}</b><span>{escape(name)}</span></div>' for name, value in facts)
    return f'<div class="tiles">{"".join(shown)}</div>'


def plots(drawn: Sequence[tuple[str, str]]) -> str:
    """Plots side by side, each with what it shows."""
    shown = (f'<figure class="card" style="margin:0"><h3>{escape(what)}</h3>{svg}</figure>' for what, svg in drawn)
    return f'<div class="plots">{"".join(shown)}</div>'


def section(title: str, *parts: str) -> str:
    """A part of the page under a heading."""
    return f"<section><h2>{escape(title)}</h2>{''.join(parts)}</section>"


def remark(words: str) -> str:
    """A sentence about what is shown."""
    return f'<p class="soft">{escape(words)}</p>'


def table(heads: Sequence[Cell], rows: Sequence[Sequence[Cell]]) -> str:
    """A table."""
    head = "".join(f"<th{_kind(cell)}>{escape(cell.text)}</th>" for cell in heads)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f'<div class="card scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _kind(cell: Cell) -> str:
    if cell.share is not None:
        return ' class="share"'
    return ' class="number"' if cell.number else ' class="wide"' if cell.wide else ""


def _cell(cell: Cell) -> str:
    if cell.share is not None:
        return f'<td class="share"><i style="width:{100 * cell.share:.1f}%"></i></td>'
    return f"<td{_kind(cell)}>{escape(cell.text)}</td>"


def page(title: str, under: str, *parts: str, foot: str = "") -> str:
    """A whole page."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n<body><main>"
        f'<header><h1>{escape(title)}</h1><p class="soft">{escape(under)}</p></header>\n'
        + "\n".join(parts)
        + f"\n<footer>{escape(foot)}</footer></main></body></html>\n"
    )
