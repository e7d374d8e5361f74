"""`headwater status` and `headwater flush`: how a server does, and a push for its lake."""

import json
from typing import Any

import click

from headwater.cli.connecting import JSON, Server, connected
from headwater.cli.printing import columns, say, size
from headwater.cli.terminal import coloured

FLUSH_SECONDS_MAX = 600.0


@click.command()
@JSON
@connected
def status(server: Server, as_json: bool) -> None:
    """Say what a server is and how it does."""
    told = server.ask("GET", "/__headwater/status")
    if as_json:
        click.echo(json.dumps(told))
        return
    lake = told.pop("lake", None)
    rows = [("url", server.url), *_rows(told)]
    rows += [("lake", "none")] if lake is None else _rows(lake, "lake ")
    columns(("", ""), rows, (False, False), head=False)


def _rows(facts: dict[str, Any], before: str = "") -> list[tuple[str, str]]:
    return [(_label(before + name), _told(name, value)) for name, value in facts.items()]


def _label(name: str) -> str:
    """What stands before a fact; units are told beside the number.

    >>> _label("hot_bytes"), _label("lake bytes"), _label("uptime_seconds")
    ('hot size', 'lake size', 'uptime')
    """
    return name.removesuffix("_seconds").replace("_", " ").replace("bytes", "size")


def _told(name: str, value: Any) -> str:
    match value:
        case "ready":
            return coloured("ready", "green")
        case "draining":
            return coloured("draining", "yellow")
        case bool():
            return "yes, nothing is kept" if value else "no"
        case dict():
            return ", ".join(f"{key}: {one:,}" for key, one in value.items()) or "none"
        case int() if name.endswith("bytes"):
            return size(value)
        case int() | float() if name.endswith("_seconds"):
            return span(value)
        case int() if name != "pid":
            return f"{value:,}"
    return str(value)


def span(seconds: float) -> str:
    """A time that passed, for a person.

    >>> span(42.5), span(3_700), span(200_000)
    ('42 s', '1 h 1 min', '2 d 7 h')
    """
    whole = int(seconds)
    for unit, length, smaller, small in (("d", 86_400, "h", 3_600), ("h", 3_600, "min", 60), ("min", 60, "s", 1)):
        if whole >= length:
            return f"{whole // length} {unit} {whole % length // small} {smaller}"
    return f"{whole} s"


@click.command()
@JSON
@connected
def flush(server: Server, as_json: bool) -> None:
    """Put everything acknowledged so far into the lake."""
    told = server.ask("POST", "/__headwater/flush", FLUSH_SECONDS_MAX)
    if as_json:
        click.echo(json.dumps(told))
    else:
        say(f"Everything up to position {max(told['positions'].values()):,} is in the lake.")
