"""Options as people give them to Spark: words without regard to case, each read once, none left over.

Whoever reads options asks for every one that there is; what nobody asked for is refused by its name.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from difflib import get_close_matches

_SIZE = re.compile(r"(\d+)\s*(?:b|([kmgt])(?:i?b)?)?", re.IGNORECASE)
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|milliseconds?|s|seconds?|m|min|minutes?|h|hours?)", re.IGNORECASE)
_SECONDS = {"s": 1, "m": 60, "h": 3600}
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


class OptionRefused(ValueError):
    """An option makes no sense; the message is one sentence for a person."""


class Given:
    """The options that were given."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = {name.lower(): value for name, value in options.items()}
        self._asked: dict[str, str] = {}
        self._prefixes: list[str] = []

    def text(self, name: str) -> str | None:
        """A value as it was given; None if it was not, or is empty."""
        self._asked[name.lower()] = name
        return self._options.get(name.lower()) or None

    def below(self, prefix: str) -> dict[str, str]:
        """All options whose names begin with a prefix, by what comes behind it."""
        self._prefixes.append(prefix)
        return {
            name[len(prefix) :]: value for name, value in self._options.items() if name.startswith(prefix) and value
        }

    def words(self, name: str) -> list[str] | None:
        """Values joined by commas."""
        text = self.text(name)
        return None if text is None else [word.strip() for word in text.split(",") if word.strip()]

    def choice(self, name: str, choices: tuple[str, ...]) -> str | None:
        """One of a few words."""
        text = self.text(name)
        if text is not None and text.lower() not in choices:
            raise OptionRefused(f"The option {name} is one of {', '.join(choices)}, not {text!r}.")
        return None if text is None else text.lower()

    def flag(self, name: str) -> bool | None:
        """True or false."""
        text = self.choice(name, ("true", "false"))
        return None if text is None else text == "true"

    def number(self, name: str, least: int = 0) -> int | None:
        """A whole number."""
        text = self.text(name)
        if text is None:
            return None
        if not text.isascii() or not text.isdigit() or int(text) < least:
            raise OptionRefused(f"The option {name} is a whole number, {least} or more, not {text!r}.")
        return int(text)

    def size_bytes(self, name: str) -> int | None:
        """A number of bytes: 1048576, 64k, 64m, 1g."""
        text = self.text(name)
        if text is None:
            return None
        match = _SIZE.fullmatch(text.strip())
        if match is None or int(match[1]) == 0:
            raise OptionRefused(f"The option {name} is a number of bytes such as 1048576, 64m or 1g, not {text!r}.")
        return int(match[1]) * _UNITS[(match[2] or "").lower()]

    def duration_seconds(self, name: str) -> float | None:
        """A stretch of time: 500ms, 10s, 2m, 1h."""
        text = self.text(name)
        if text is None:
            return None
        match = _DURATION.fullmatch(text.strip())
        if match is None:
            raise OptionRefused(f"The option {name} is a time such as 500ms, 10s or 2m, not {text!r}.")
        unit = match[2].lower()
        milliseconds = unit.startswith(("ms", "mil"))
        return float(match[1]) * (0.001 if milliseconds else _SECONDS[unit[0]])

    def time_us(self, name: str) -> int | None:
        """An instant, in microseconds since 1970: milliseconds since then, or ISO 8601 (in UTC if it does not say)."""
        text = self.text(name)
        if text is None:
            return None
        if text.isascii() and text.isdigit():
            return int(text) * 1000
        try:
            at = datetime.fromisoformat(text)
        except ValueError:
            raise OptionRefused(
                f"The option {name} is a time, in milliseconds since 1970 or like 2026-11-16T10:30:00Z, not {text!r}."
            ) from None
        since = (at if at.tzinfo else at.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
        return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds

    def refuse_others(self) -> None:
        """Refuse what was given and never asked for."""
        for name in sorted(self._options):
            if name not in self._asked and not any(name.startswith(prefix) for prefix in self._prefixes):
                near = get_close_matches(name, self._asked, 1)
                hint = f"did you mean {self._asked[near[0]]}?" if near else "see the guide for those that there are."
                raise OptionRefused(f"There is no option {name!r}; {hint}")
