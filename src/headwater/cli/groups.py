"""Groups of commands: earlier names that still work, and help in sections."""

from collections.abc import Iterable, Mapping
from typing import Any

import click

TERM_WIDTH_MAX = 30
"""Width of click's first column; a longer term has a line of its own."""


class Verbs(click.Group):
    """A group whose commands also answer to their earlier names, which the help does not list."""

    def __init__(self, *arguments: Any, aliases: Mapping[str, str] | None = None, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.aliases = dict(aliases or {})

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        return super().resolve_command(ctx, [self.aliases.get(args[0], args[0]), *args[1:]])


def write_sections(formatter: click.HelpFormatter, sections: Mapping[str, Iterable[tuple[str, str]]]) -> None:
    """Write lists of terms and their explanations, each under its heading, with their columns aligned."""
    rows = {heading: list(found) for heading, found in sections.items()}
    width = min(TERM_WIDTH_MAX, max((len(term) for found in rows.values() for term, _ in found), default=0))
    for heading, found in rows.items():
        if found:
            with formatter.section(heading):
                formatter.write_dl([(term.ljust(width), text) for term, text in found])
