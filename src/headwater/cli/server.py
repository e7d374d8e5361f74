"""`headwater status` and `headwater flush`."""

import json
from typing import Any

import click

from headwater.cli.commands import JSON, verb
from headwater.cli.connecting import Server, connected
from headwater.cli.printing import answer, coloured, facts, size, span

FLUSH_SECONDS_MAX = 600.0


@verb("headwater status", "headwater status --json | jq .lake")
@JSON
@connected
def status(server: Server, as_json: bool) -> None:
    """Show a server's version, health and usage."""
    with server.admin() as admin:
        answer = admin.status()
    if as_json:
        click.echo(json.dumps(answer))
        return
    lake, usage = answer.pop("lake", None), answer.pop("usage", {})
    rows = [("url", server.url), *_rows({name: value for name, value in answer.items() if name not in usage})]
    rows += [(_label(name), _share(name, **use)) for name, use in usage.items()]
    rows += [("lake", "none")] if lake is None else _rows(lake, "lake ")
    facts(rows)


def _rows(members: dict[str, Any], before: str = "") -> list[tuple[str, str]]:
    return [(_label(before + name), _shown(name, value)) for name, value in members.items()]


def _share(name: str, used: int, limit: int) -> str:
    """Write what is used of a limit.

    >>> _share("connections", 3, 20_000), _share("hot_bytes", 1536, 1 << 29)
    ('3 of 20,000', '1.5 KiB of 512.0 MiB')
    """
    return f"{_shown(name, used)} of {_shown(name, limit)}"


def _label(name: str) -> str:
    """Write the name of a fact; its unit is shown with the number.

    >>> _label("hot_bytes"), _label("lake bytes"), _label("uptime_seconds")
    ('hot size', 'lake size', 'uptime')
    """
    return name.removesuffix("_seconds").replace("_", " ").replace("bytes", "size")


def _shown(name: str, value: Any) -> str:
    match value:
        case "ready":
            return coloured("ready", "green")
        case "draining":
            return coloured("draining", "yellow")
        case None:
            return "none"
        case True if name == "memory":
            return "yes, nothing is kept"
        case bool():
            return "yes" if value else "no"
        case list() if name == "processes":
            return ", ".join(f"{one['name']} ({one['pid']})" for one in value)
        case dict():
            return ", ".join(f"{key}: {one:,}" for key, one in value.items()) or "none"
        case int() if name.endswith("bytes"):
            return size(value)
        case int() | float() if name.endswith("_seconds"):
            return span(value)
        case int() if name != "pid":
            return f"{value:,}"
    return str(value)


@verb("headwater flush", "headwater flush --all-tables")
@click.option("--all-tables", is_flag=True, help="Also write the table streams, which is otherwise minutes old.")
@JSON
@connected
def flush(server: Server, all_tables: bool, as_json: bool) -> None:
    """Write everything acknowledged so far to the lake."""
    with server.admin(FLUSH_SECONDS_MAX) as admin:
        positions = admin.flush(all_tables=all_tables)
    answer(as_json, {"positions": positions}, f"Everything up to position {max(positions.values()):,} is in the lake.")
