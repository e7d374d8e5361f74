"""Sizes and durations as people write them: `512MiB`, `64KB`, `30s`, `5min`."""

import re
from collections.abc import Mapping
from typing import TypeVar

T = TypeVar("T", int, float)

_NUMBER = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([A-Za-z]*)")

_PREFIXES = "KMGTP"
_SIZES = (
    {"": 1, "b": 1}
    # As `docker` and `systemd` read it, a bare K is 1024 bytes.
    | {prefix.lower(): 1024**power for power, prefix in enumerate(_PREFIXES, 1)}
    | {f"{prefix.lower()}ib": 1024**power for power, prefix in enumerate(_PREFIXES, 1)}
    | {f"{prefix.lower()}b": 1000**power for power, prefix in enumerate(_PREFIXES, 1)}
)
_DURATIONS = {"ms": 0.001, "s": 1.0, "": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86400.0}

SIZE_EXAMPLES = "512MiB, 64KB or 1048576"
DURATION_EXAMPLES = "30, 500ms, 5min or 24h"


def parse_size(text: str) -> int:
    """Return the bytes of a size; `ValueError` if it is not a size.

    >>> parse_size("512MiB"), parse_size("64 kb"), parse_size("1.5K"), parse_size("1048576")
    (536870912, 64000, 1536, 1048576)
    """
    amount, factor = _split(text, _SIZES, f"a size; write it as {SIZE_EXAMPLES}")
    size = float(amount) * factor if "." in amount else int(amount) * factor
    if size != int(size):
        raise ValueError(f"{text!r} is not a whole number of bytes.")
    return int(size)


def parse_duration(text: str) -> float:
    """Return the seconds of a duration; `ValueError` if it is not a duration.

    >>> parse_duration("30"), parse_duration("500ms"), parse_duration("5 min"), parse_duration("1.5h")
    (30.0, 0.5, 300.0, 5400.0)
    >>> parse_duration(".5")
    0.5
    """
    amount, factor = _split(text, _DURATIONS, f"a duration; write it as {DURATION_EXAMPLES}")
    return float(amount) * factor


def _split(text: str, units: Mapping[str, T], noun: str) -> tuple[str, T]:
    """Return the number in a text, and the factor of its unit."""
    found = _NUMBER.fullmatch(text.strip())
    factor = None if found is None else units.get(found[2].casefold())
    if found is None or factor is None:
        raise ValueError(f"{text!r} is not {noun}.")
    return found[1], factor


def render_size(size: int) -> str:
    """Write a size exactly, in the largest binary unit that divides it.

    >>> render_size(536870912), render_size(1536), render_size(1000), render_size(0)
    ('512MiB', '1536', '1000', '0')
    >>> parse_size(render_size(64 * 1024))
    65536
    """
    for power, prefix in reversed(list(enumerate(_PREFIXES, 1))):
        if size and size % 1024**power == 0:
            return f"{size // 1024**power}{prefix}iB"
    return str(size)


def render_duration(seconds: float) -> str:
    """Write a duration exactly, in the largest unit that divides it.

    >>> render_duration(300.0), render_duration(75.0), render_duration(0.5), render_duration(86400)
    ('5min', '75s', '500ms', '1d')
    """
    for unit in ("d", "h", "min", "s"):
        if seconds >= _DURATIONS[unit] and seconds % _DURATIONS[unit] == 0:
            return f"{seconds / _DURATIONS[unit]:g}{unit}"
    return f"{seconds * 1000:g}ms"
