"""Parts of commands: groups, examples and sections of the help, and options that parse their values."""

import sys
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any

import click

from headwater.protocol import content_types
from headwater.units import parse_duration, parse_size

Callback = Callable[[click.Context, click.Parameter, str | None], object]
Decorator = Callable[[Callable[..., Any]], click.Command]

TERM_WIDTH_MAX = 30
"""Width of click's first column; a longer term has a line of its own."""

FAMILIAR = {
    "list": "ls",
    "delete": "rm",
    "remove": "rm",
    "make": "create",
    "new": "create",
    "get": "read",
    "stat": "show",
}
"""Verbs that other programs have, and ours for the same."""

JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON; errors are JSON on standard error.")


class Verbs(click.Group):
    """A group that also accepts earlier names of its commands, as hidden aliases."""

    def __init__(self, *arguments: Any, aliases: Mapping[str, str] | None = None, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.aliases = dict(aliases or {})

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        typed = args[0]
        name = self.aliases.get(typed, typed)
        if not ctx.resilient_parsing and not typed.startswith("-") and self.get_command(ctx, name) is None:
            near = self._nearest(ctx, typed)
            raise click.UsageError(f"There is no command {typed!r}; {near}.", ctx)
        return super().resolve_command(ctx, [name, *args[1:]])

    def _nearest(self, ctx: click.Context, typed: str) -> str:
        """Suggest the command that was meant, where one is likely."""
        listed = self.list_commands(ctx)
        near = [FAMILIAR[typed]] if FAMILIAR.get(typed) in listed else get_close_matches(typed, listed, n=1)
        return f"the nearest one is {near[0]}" if near else f"`{ctx.command_path} --help` lists all"

    def verb(self, *examples: str, name: str | None = None) -> Decorator:
        """Add a command of this group, with examples at the end of its help."""
        return self.command(name, epilog=epilog(*examples))


def verb(*examples: str) -> Decorator:
    """Make a command, with examples at the end of its help."""
    return click.command(epilog=epilog(*examples))


def epilog(*examples: str) -> str:
    """Return the end of a help text that shows these commands, one per line and unwrapped."""
    noun = "Example" if len(examples) == 1 else "Examples"
    return "\n".join(["\b", f"{noun}:", *(f"  {line}" for line in examples)])


def write_sections(formatter: click.HelpFormatter, sections: Mapping[str, Iterable[tuple[str, str]]]) -> None:
    """Write lists of terms and their explanations, each under its heading, with their columns aligned."""
    rows = {heading: list(found) for heading, found in sections.items()}
    width = min(TERM_WIDTH_MAX, max((len(term) for found in rows.values() for term, _ in found), default=0))
    for heading, found in rows.items():
        if found:
            with formatter.section(heading):
                formatter.write_dl([(term.ljust(width), text) for term, text in found])


def confirm(question: str, refusal: str) -> None:
    """Ask for confirmation on a terminal; elsewhere refuse, with a sentence that says how to confirm."""
    if not sys.stdin.isatty():
        raise click.UsageError(refusal)
    click.confirm(question, abort=True, err=True)


# -- Callbacks of options ----------------------------------------------------------------------------------------------


def as_seconds(context: click.Context, parameter: click.Parameter, text: str | None) -> float | None:
    """Parse a duration into seconds."""
    try:
        return None if text is None else parse_duration(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def as_whole_seconds(context: click.Context, parameter: click.Parameter, text: str | None) -> int | None:
    """Parse a duration of whole seconds."""
    seconds = as_seconds(context, parameter, text)
    if seconds is None or seconds == int(seconds):
        return None if seconds is None else int(seconds)
    raise click.BadParameter(f"{text!r} is not a whole number of seconds.")


def as_bytes(least: int, most: int) -> Callback:
    """Return a callback for a number of bytes within bounds."""

    def parse(context: click.Context, parameter: click.Parameter, text: str | None) -> int | None:
        try:
            found = None if text is None else parse_size(text)
        except ValueError as error:
            raise click.BadParameter(str(error)) from error
        if found is not None and not least <= found <= most:
            raise click.BadParameter(f"{text} is not between {least:,} and {most:,} bytes.")
        return found

    return parse


def as_content_type(context: click.Context, parameter: click.Parameter, text: str | None) -> str | None:
    """Validate a content type, because the server silently replaces an invalid one with its default."""
    if text is not None and not content_types.is_valid(text):
        raise click.BadParameter(f"{text!r} is not a content type; write it like text/plain or application/json.")
    return text
