"""What commands print: aligned columns for people, JSON for programs."""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice

import click

from headwater.protocol.limits import LISTING_MAX

BLOCK_ROWS = 1_000
"""How many rows are aligned with each other; all of them may not fit into memory."""
GAP = "  "

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def say(text: str) -> None:
    """Print a remark on a terminal; a program that reads the output does not get it."""
    if sys.stdout.isatty():
        click.echo(text)


def note(text: str) -> None:
    """Print a remark that a person must not miss, to standard error."""
    click.echo(text, err=True)


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
    """How many entries of a listing to ask for at once: no more than are wanted, nor than a page has."""
    return None if limit is None else min(limit, LISTING_MAX)


def printable(name: str) -> str:
    """A name as one line, without control characters."""
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
