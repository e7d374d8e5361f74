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

    FLAT = "0000000000000000_%016d"
    PLAIN = "%020d"


_TOKEN = re.compile(r"([0-9]{16})_([0-9]{16})|([0-9]{20})")
_HALF = 10**16


def render(position: int, form: Form) -> str:
    """The token of a position.

    >>> render(42, Form.FLAT), render(42, Form.PLAIN)
    ('0000000000000000_0000000000000042', '00000000000000000042')
    """
    return form % position


def parse(token: str) -> int | None:
    """The position of a token, `NOW`, or None if it is not a valid offset.

    >>> parse("-1"), parse("now") == NOW, parse("00000000000000000042"), parse("42")
    (0, True, 42, None)
    """
    if token == "-1":
        return 0
    if token == "now":
        return NOW
    match = _TOKEN.fullmatch(token)
    if match is None:
        return None
    high, low, plain = match.groups()
    return int(plain) if plain is not None else int(high) * _HALF + int(low)
