"""Offsets: byte positions, zero-padded so that they sort as strings.

Each family of URLs prints its own form; both forms are accepted everywhere. `-1` is the beginning, position 0; `now` is
the tail at the time the request is answered.
"""

import re
from enum import StrEnum

NOW = -1
"""The result of `parse` for `now`; never a position."""


class Form(StrEnum):
    """How a surface prints a position; each member is its own format string, so rendering needs no lookup."""

    FLAT = "0000000000000000_%015d0"
    """With a spare last digit: clients that add 1 to an offset, to read what follows it, still mean this position."""
    PLAIN = "%020d"

    __hash__ = str.__hash__  # Without a call in Python, since it is part of the keys of caches.


_TOKEN = re.compile(r"([0-9]{16})_([0-9]{16})|([0-9]{20})")
_DECIMAL = re.compile(r"[0-9]{1,20}")
_HALF, _SPARE = 10**16, 10


def render(position: int, form: Form) -> str:
    """The token of a position.

    >>> render(42, Form.FLAT), render(42, Form.PLAIN)
    ('0000000000000000_0000000000000420', '00000000000000000042')
    """
    return form % position


def parse(token: str, form: Form = Form.FLAT) -> int | None:
    """The position of a token, `NOW`, or None if it is not a valid offset of a surface with this form.

    >>> parse("-1"), parse("now") == NOW, parse("00000000000000000042"), parse("42"), parse("42", Form.PLAIN)
    (0, True, 42, None, 42)
    """
    if token == "-1":
        return 0
    if token == "now":
        return NOW
    return parse_position(token, form)


def parse_position(token: str, form: Form = Form.FLAT) -> int | None:
    """The position of a token that a response contained; surfaces with the plain form take any decimal.

    >>> parse_position("0000000000000000_0000000000000421"), parse_position("-1")
    (42, None)
    """
    match = _TOKEN.fullmatch(token)
    if match is None:
        return int(token) if form is Form.PLAIN and _DECIMAL.fullmatch(token) else None
    high, low, plain = match.groups()
    return int(plain) if plain is not None else (int(high) * _HALF + int(low)) // _SPARE
