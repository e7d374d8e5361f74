"""What commands print: aligned columns, colours and progress for people, JSON for programs."""

import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from types import TracebackType
from typing import TextIO, TypeVar

import click

from headwater.protocol.limits import LISTING_MAX

T = TypeVar("T")

BLOCK_ROWS = 1_000
"""Rows are aligned in blocks of this many, because all of them may not fit into memory."""
GAP = "  "
REDRAW_SECONDS = 0.2
BAR_CHARACTERS = 24

_ERASE = "\r\x1b[K"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def say(text: str) -> None:
    """Print a remark on a terminal; a program that reads the output does not get it."""
    if sys.stdout.isatty():
        click.echo(text)


def note(text: str) -> None:
    """Print a remark that a person must not miss, to standard error."""
    click.echo(text, err=True)


def answer(as_json: bool, facts: object, text: str) -> None:
    """Print what a command did: an object for a program, a remark for a person."""
    if as_json:
        click.echo(json.dumps(facts))
    else:
        say(text)


def coloured(text: str, colour: str, file: TextIO | None = None) -> str:
    """Return the text in a colour if the file is a terminal and NO_COLOR is not set."""
    plain = os.environ.get("NO_COLOR") or not (file or sys.stdout).isatty()
    return text if plain else click.style(text, fg=colour)


def columns(heads: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[bool], *, head: bool) -> None:
    """Print rows in columns, aligned to the right where `right` says so."""
    widths = [len(name) if head else 0 for name in heads]
    blocks = _blocks(rows)
    block = next(blocks, [])
    _widen(widths, block)
    if head:
        _print(heads, widths, right)
    while block:
        for row in block:
            _print(row, widths, right)
        block = next(blocks, [])
        _widen(widths, block)


def listing(
    as_json: bool,
    found: Iterable[T],
    facts: Callable[[T], object],
    row: Callable[[T], Sequence[str]],
    *,
    heads: Sequence[str],
    right: Sequence[bool],
) -> None:
    """Print what was found: JSON for a program, columns for a person, with a head on a terminal."""
    if as_json:
        json_list(map(facts, found))
    else:
        columns(heads, map(row, found), right, head=sys.stdout.isatty())


def facts(rows: Iterable[tuple[str, str]]) -> None:
    """Print names and values in two columns."""
    columns(("", ""), rows, (False, False), head=False)


def _blocks(rows: Iterable[Sequence[str]]) -> Iterator[list[Sequence[str]]]:
    source = iter(rows)
    while block := list(islice(source, BLOCK_ROWS)):
        yield block


def _widen(widths: list[int], block: list[Sequence[str]]) -> None:
    for row in block:
        widths[:] = map(max, widths, map(len, row))


def _print(row: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> None:
    cells = (
        cell.rjust(width) if on_right else cell.ljust(width)
        for cell, width, on_right in zip(row, widths, right, strict=True)
    )
    click.echo(GAP.join(cells).rstrip())


def json_list(values: Iterable[object]) -> None:
    """Print a JSON list with one value per line, as the values arrive."""
    opening = "["
    before = None
    for value in values:
        if before is not None:
            click.echo(f"{opening}{before},")
            opening = ""
        before = json.dumps(value, ensure_ascii=False)
    click.echo(f"{opening}{before or ''}]")


def page_of(limit: int | None) -> int | None:
    """Return the page size for a listing: at most the limit, and at most the largest page."""
    return None if limit is None else min(limit, LISTING_MAX)


def printable(name: str) -> str:
    """Return a name without control characters."""
    return "".join(letter if letter.isprintable() else "?" for letter in name)


def counted(number: int, noun: str) -> str:
    """Write a number with its noun.

    >>> counted(1, "message"), counted(1200, "message")
    ('1 message', '1,200 messages')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def size(count: int) -> str:
    """Write a number of bytes for a person.

    >>> size(999), size(1536), size(5 * 1024**4)
    ('999 B', '1.5 KiB', '5.0 TiB')
    """
    if count < 1024:
        return f"{count} B"
    amount, unit = count / 1024, "KiB"
    for larger in ("MiB", "GiB", "TiB", "PiB"):
        if amount < 1024:
            break
        amount, unit = amount / 1024, larger
    return f"{amount:.1f} {unit}"


def moment(at_us: int) -> str:
    """Write microseconds since 1970 as a time; as a number if no calendar reaches that far.

    >>> moment(1_763_251_200_000_000), moment(1_763_251_200_000_001), moment(2**62)
    ('2025-11-16T00:00:00Z', '2025-11-16T00:00:00.000001Z', '4611686018427387904')
    """
    try:
        return (_EPOCH + timedelta(microseconds=at_us)).isoformat().replace("+00:00", "Z")
    except OverflowError:
        return str(at_us)


def span(seconds: float) -> str:
    """Write an elapsed time for a person.

    >>> span(42.5), span(3_700), span(200_000)
    ('42 s', '1 h 1 min', '2 d 7 h')
    """
    whole = int(seconds)
    for unit, length, smaller, small in (("d", 86_400, "h", 3_600), ("h", 3_600, "min", 60), ("min", 60, "s", 1)):
        if whole >= length:
            return f"{whole // length} {unit} {whole % length // small} {smaller}"
    return f"{whole} s"


# -- Progress ----------------------------------------------------------------------------------------------------------


def bar(done: int, total: int) -> str:
    """Draw a bar.

    >>> bar(3, 12), bar(12, 12), bar(0, 0)
    ('[######..................]  25%', '[########################] 100%', '[........................]')
    """
    full = BAR_CHARACTERS * min(done, total) // total if total else 0
    drawn = f"[{'#' * full}{'.' * (BAR_CHARACTERS - full)}]"
    return f"{drawn} {100 * min(done, total) // total:3}%" if total else drawn


class Progress:
    """The progress of a command: one line on standard error, redrawn in place and erased at the end.

        with Progress("Verifying") as progress:
            for done, item in enumerate(items, 1):
                ...
                progress.update(done, len(items), item.name)

    Nothing is drawn where standard error is not a terminal. Threads may share a line.
    """

    def __init__(self, label: str = "") -> None:
        self._label = label
        self._enabled = sys.stderr.isatty()
        self._lock = threading.Lock()
        self._redraw_at = 0.0

    def show(self, text: str) -> None:
        """Show a text, for work of unknown length."""
        self._draw(text, now=False)

    def update(self, done: int, total: int, remark: str = "") -> None:
        """Show a bar with what is done of the total, followed by a remark."""
        self._draw(f"{bar(done, total)} {remark}".rstrip(), now=total > 0 and done >= total)

    def _draw(self, text: str, *, now: bool) -> None:
        if not self._enabled:
            return
        with self._lock:
            if now or time.monotonic() >= self._redraw_at:
                self._redraw_at = time.monotonic() + REDRAW_SECONDS
                # A line that wraps could not be erased.
                line = f"{self._label} {text}".strip()[: shutil.get_terminal_size().columns - 1]
                sys.stderr.write(f"{_ERASE}{coloured(line, 'cyan', sys.stderr)}")
                sys.stderr.flush()

    def __enter__(self) -> "Progress":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._enabled:
            with self._lock:
                self._enabled = False
                sys.stderr.write(_ERASE)
                sys.stderr.flush()
