"""What only a terminal gets: colours, and a line that says how far something is."""

import os
import sys
import time
from typing import TextIO

import click

REDRAW_SECONDS = 0.2


def coloured(text: str, colour: str, file: TextIO | None = None) -> str:
    """The text in a colour, if it goes to a terminal and NO_COLOR does not forbid it."""
    plain = os.environ.get("NO_COLOR") or not (file or sys.stdout).isatty()
    return text if plain else click.style(text, fg=colour)


class ProgressLine:
    """One line on standard error that is drawn over and over, and gone in the end; nothing where no terminal is."""

    def __init__(self) -> None:
        self._shown = sys.stderr.isatty()
        self._next_at = 0.0

    def show(self, text: str) -> None:
        if self._shown and time.monotonic() >= self._next_at:
            self._next_at = time.monotonic() + REDRAW_SECONDS
            sys.stderr.write(f"\r\x1b[K{coloured(text, 'cyan', sys.stderr)}")
            sys.stderr.flush()

    def clear(self) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def __enter__(self) -> "ProgressLine":
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()
