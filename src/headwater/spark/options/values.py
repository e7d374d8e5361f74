"""Typed access to the options that a user gives to Spark.

Option names are case-insensitive. Every known option is read exactly once; any other is rejected by name.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import TypeVar

_SIZE = re.compile(r"(\d+)\s*(?:b|([kmgt])(?:i?b)?)?", re.IGNORECASE)
_DURATION = re.compile(
    r"(\d+(?:\.\d+)?)\s*(ms|milliseconds?|s|seconds?|m|min|minutes?|h|hours?|d|days?)", re.IGNORECASE
)
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}

T = TypeVar("T")
Word = TypeVar("Word", bound=str)


class OptionRefused(ValueError):
    """An option is invalid; the message is one sentence for the user."""


class OptionValues:
    """The options as given, parsed one at a time; each method returns None for an option that is absent or empty."""

    def __init__(self, options: Mapping[str, str], renamed: Mapping[str, str] | None = None) -> None:
        """`renamed` maps earlier names of options to their present ones, which take precedence."""
        self._options = {name.lower(): value for name, value in options.items()}
        for earlier, name in (renamed or {}).items():
            if (value := self._options.pop(earlier.lower(), None)) is not None:
                self._options.setdefault(name.lower(), value)
        self._known: dict[str, str] = {}
        self._prefixes: list[str] = []

    def text(self, name: str) -> str | None:
        """The value as given."""
        self._known[name.lower()] = name
        return self._options.get(name.lower()) or None

    def with_prefix(self, prefix: str) -> dict[str, str]:
        """All options whose names begin with a prefix, keyed by the rest of the name."""
        self._prefixes.append(prefix)
        return {
            name[len(prefix) :]: value for name, value in self._options.items() if name.startswith(prefix) and value
        }

    def words(self, name: str) -> list[str] | None:
        """A comma-separated list."""
        text = self.text(name)
        return None if text is None else [word.strip() for word in text.split(",") if word.strip()]

    def choice(self, name: str, choices: Sequence[Word]) -> Word | None:
        """One of a few words."""
        text = self.text(name)
        if text is None:
            return None
        for word in choices:
            if word == text.lower():
                return word
        raise OptionRefused(f"The option {name} must be one of {', '.join(choices)}, not {text!r}.")

    def flag(self, name: str) -> bool | None:
        """True or false."""
        text = self.choice(name, ("true", "false"))
        return None if text is None else text == "true"

    def number(self, name: str, least: int = 0) -> int | None:
        """A whole number."""
        return self._parsed(name, lambda text: _number(text, least), f"a whole number of at least {least}")

    def size_bytes(self, name: str) -> int | None:
        """A number of bytes: 1048576, 64k, 64m, 1g."""
        return self._parsed(name, _size_bytes, "a number of bytes such as 1048576, 64m or 1g")

    def duration_seconds(self, name: str) -> float | None:
        """A duration: 500ms, 10s, 2m, 1h, 7d."""
        return self._parsed(name, _duration_seconds, "a duration such as 500ms, 10s or 2m")

    def time_us(self, name: str) -> int | None:
        """An instant in microseconds since 1970, given in milliseconds or as ISO 8601 (UTC unless it names a zone)."""
        return self._parsed(name, _time_us, "a time, in milliseconds since 1970 or like 2026-11-16T10:30:00Z")

    def _parsed(self, name: str, parse: Callable[[str], T | None], form: str) -> T | None:
        text = self.text(name)
        if text is None:
            return None
        value = parse(text)
        if value is None:
            raise OptionRefused(f"The option {name} must be {form}, not {text!r}.")
        return value

    def refuse_unknown(self) -> None:
        """Reject any option that was given but never read."""
        for name in sorted(self._options):
            if name not in self._known and not any(name.startswith(prefix) for prefix in self._prefixes):
                near = get_close_matches(name, self._known, 1)
                hint = f"did you mean {self._known[near[0]]}?" if near else "see the guide for the available options."
                raise OptionRefused(f"There is no option {name!r}; {hint}")


def _number(text: str, least: int) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and int(text) >= least else None


def _size_bytes(text: str) -> int | None:
    match = _SIZE.fullmatch(text.strip())
    return None if match is None else int(match[1]) * _UNITS[(match[2] or "").lower()] or None


def _duration_seconds(text: str) -> float | None:
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        return None
    unit = match[2].lower()
    return float(match[1]) * (0.001 if unit.startswith(("ms", "mil")) else _SECONDS[unit[0]])


def _time_us(text: str) -> int | None:
    if text.isascii() and text.isdigit():
        return int(text) * 1000
    try:
        return microseconds(datetime.fromisoformat(text))
    except ValueError:
        return None


def or_default(value: T | None, default: T) -> T:
    """The value, or the default if it is None; unlike `or`, this keeps 0 and False.

    >>> or_default(0, 8), or_default(None, 8)
    (0, 8)
    """
    return default if value is None else value


def microseconds(at: datetime) -> int:
    """Microseconds since 1970, exactly; a time without a zone is in UTC.

    >>> microseconds(datetime(1970, 1, 2, microsecond=5))
    86400000005
    """
    since = (at if at.tzinfo else at.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
