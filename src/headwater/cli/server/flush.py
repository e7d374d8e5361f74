"""`headwater flush`."""

import json

import click

from headwater.cli.commands import JSON, verb
from headwater.cli.connecting import Server, connected
from headwater.cli.printing import say

FLUSH_SECONDS_MAX = 600.0


@verb("headwater flush", "headwater flush --all-tables")
@click.option("--all-tables", is_flag=True, help="Also write the table streams, which is otherwise minutes old.")
@JSON
@connected
def flush(server: Server, all_tables: bool, as_json: bool) -> None:
    """Write everything acknowledged so far to the lake."""
    with server.admin(FLUSH_SECONDS_MAX) as admin:
        positions = admin.flush(all_tables=all_tables)
    if as_json:
        click.echo(json.dumps({"positions": positions}))
    else:
        say(f"Everything up to position {max(positions.values()):,} is in the lake.")
