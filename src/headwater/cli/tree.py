"""The command tree. A command's module is loaded when the command is wanted, so that small ones start fast."""

from importlib import import_module

import click

COMMANDS = {
    "serve": "serve",
    "create": "streams.managing",
    "append": "streams.appending",
    "read": "streams.reading",
    "tail": "streams.reading",
    "head": "streams.managing",
    "ls": "streams.managing",
    "close": "streams.managing",
    "rm": "streams.managing",
    "bucket": "buckets",
    "snapshot": "snapshots",
    "bootstrap": "snapshots",
    "status": "operating",
    "flush": "operating",
    "bench": "bench.command",
    "doctor": "doctor.command",
    "lake": "lake.sql",
    "spark": "spark.command",
    "backup": "backup",
}
"""Each command and the module that has it, in the order in which they are listed."""


class Tree(click.Group):
    """A group whose commands are imported one by one."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        found = getattr(import_module(f"headwater.cli.{COMMANDS[cmd_name]}"), cmd_name)
        assert isinstance(found, click.Command)
        return found


@click.group(cls=Tree, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="headwater")
def main() -> None:
    """Durable streams over plain HTTP."""
