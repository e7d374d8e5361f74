"""What commands print: aligned text for people, JSON for machines."""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice

import click

BLOCK_ROWS = 1_000
"""Rows that are aligned with each other; there may be more than memory holds."""
GAP = "  "

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def say(text: str) -> None:
    """One line for whoever looks at a terminal; nothing where the output is read by a program."""
    if sys.stdout.isatty():
        click.echo(text)


def columns(heads: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[bool], *, head: bool) -> None:
    """Print rows in columns, those of numbers with their right ends in line."""
    widths = [len(name) if head else 0 for name in heads]
    blocks = _blocks(rows)
    first = next(blocks, [])
    _widen(widths, first)
    if head:
        _print(heads, widths, right)
    while first:
        for row in first:
            _print(row, widths, right)
        first = next(blocks, [])
        _widen(widths, first)


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
    """Print a JSON list, a value on each line, as they come."""
    begun = "["
    before = None
    for value in values:
        if before is not None:
            click.echo(f"{begun}{before},")
            begun = ""
        before = json.dumps(value, ensure_ascii=False)
    click.echo(f"{begun}{before or ''}]")


def size(count: int) -> str:
    """Bytes for a person.

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
    """Microseconds since 1970 as a time; as they are where no calendar reaches.

    >>> moment(1_763_251_200_000_000), moment(1_763_251_200_000_001), moment(2**62)
    ('2025-11-16T00:00:00Z', '2025-11-16T00:00:00.000001Z', '4611686018427387904')
    """
    try:
        return (_EPOCH + timedelta(microseconds=at_us)).isoformat().replace("+00:00", "Z")
    except OverflowError:
        return str(at_us)
