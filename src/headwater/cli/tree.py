"""The command tree. A command's module is imported when the command is used, so that small commands start fast."""

import sys
from collections.abc import Sequence
from difflib import SequenceMatcher
from functools import partial
from importlib import import_module
from typing import Any

import click

from headwater.cli.commands import Verbs, write_sections
from headwater.cli.failures import report

SECTIONS = {
    "Streams": {
        "create": "streams.lifecycle",
        "append": "streams.appending",
        "read": "streams.reading",
        "tail": "streams.reading",
        "show": "streams.listing",
        "ls": "streams.listing",
        "close": "streams.lifecycle",
        "rm": "streams.lifecycle",
        "purge": "streams.lifecycle",
        "bucket": "buckets",
        "snapshot": "snapshots",
        "bootstrap": "snapshots",
    },
    "Server": {
        "serve": "serve",
        "status": "server",
        "doctor": "doctor.command",
        "bench": "bench.command",
        "backup": "backup",
    },
    "Lake": {
        "lake": "lake.command",
        "flush": "server",
        "spark": "spark.command",
    },
    "Cluster": {
        "cluster": "cluster.command",
    },
    "Access": {
        "token": "tokens.command",
        "login": "contexts.command",
        "context": "contexts.command",
    },
}
"""Each command and its module, in the sections and the order of the help."""
COMMANDS = {name: module for section in SECTIONS.values() for name, module in section.items()}
ALIASES = {"head": "show"}

SIMILARITY_MIN = 0.6
"""How similar an option must be to the one that was typed to be suggested; the dashes do not count."""


COLUMN_SPACING = 6
"""Width that click takes for the indentation and between the columns of a list."""


class Tree(Verbs):
    """A group that imports its commands on demand, and reports errors as JSON to programs that asked for JSON."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        try:
            found = getattr(import_module(f"headwater.cli.{COMMANDS[cmd_name]}"), cmd_name)
        except ModuleNotFoundError as error:
            return not_installed(cmd_name, error)
        assert isinstance(found, click.Command)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        room = formatter.width - max(map(len, COMMANDS)) - COLUMN_SPACING
        write_sections(
            formatter,
            {
                title: [
                    (name, found.get_short_help_str(room)) for name in names if (found := self.get_command(ctx, name))
                ]
                for title, names in SECTIONS.items()
            },
        )

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        run = partial(super().main, args, prog_name, complete_var, standalone_mode=False, **extra)
        if not standalone_mode:
            return run()
        words = list(sys.argv[1:] if args is None else args)
        try:
            code: object = run()
        except click.ClickException as error:
            _show(error, as_json="--json" in words)
            sys.exit(error.exit_code)
        except click.Abort:
            click.echo("Aborted.", err=True)
            sys.exit(1)
        sys.exit(code if isinstance(code, int) else 0)


def not_installed(name: str, error: ModuleNotFoundError) -> click.Command:
    """Return a command that says what to install, in place of a server command where only the client is installed."""
    package = (error.name or "headwater").partition(".")[0]
    if package == "headwater":
        raise error

    def run() -> None:
        raise click.ClickException(
            f"`headwater {name}` needs the package {package}, which is not installed; "
            "run `pip install 'headwater[server]'`."
        )

    lenient = {"ignore_unknown_options": True, "allow_extra_args": True}
    short = "Not installed; needs `pip install 'headwater[server]'`."
    return click.Command(name, lenient, run, help=short, short_help=short, add_help_option=False)


def _show(error: click.ClickException, *, as_json: bool) -> None:
    if isinstance(error, click.NoSuchOption) and error.possibilities:
        near = [one for one in error.possibilities if _similar(one, error.option_name)]
        error = click.NoSuchOption(error.option_name, error.message, near, error.ctx)
    if as_json:
        code = "usage" if isinstance(error, click.UsageError) else "failed"
        report(error.format_message(), code, None, as_json=True)
    else:
        error.show()


def _similar(option: str, typed: str) -> bool:
    """Return whether one option may be a misspelling of another.

    >>> _similar("--offset", "--ofset"), _similar("--lake", "--token")
    (True, False)
    """
    return SequenceMatcher(None, option.lstrip("-"), typed.lstrip("-")).ratio() >= SIMILARITY_MIN


@click.group(cls=Tree, aliases=ALIASES, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="headwater")
def main() -> None:
    """Durable streams over plain HTTP."""
