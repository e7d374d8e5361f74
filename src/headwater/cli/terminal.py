"""Colours, for terminals that show them."""

import os
import sys
from typing import TextIO

import click


def coloured(text: str, colour: str, file: TextIO | None = None) -> str:
    """Return the text in a colour if the file is a terminal and NO_COLOR is not set."""
    plain = os.environ.get("NO_COLOR") or not (file or sys.stdout).isatty()
    return text if plain else click.style(text, fg=colour)
