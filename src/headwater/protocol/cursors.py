"""Cursors: an interval number that live readers echo, so that a shared cache never answers one of them in a loop."""

import re

from headwater.protocol.limits import (
    CURSOR_EPOCH_SECONDS,
    CURSOR_INTERVAL_SECONDS,
    CURSOR_JITTER_SECONDS_MAX,
    SECOND_US,
)

_CURSOR = re.compile(r"[0-9]{1,18}")


def current(now_us: int) -> int:
    """The interval that `now_us` falls into."""
    return max(0, now_us // SECOND_US - CURSOR_EPOCH_SECONDS) // CURSOR_INTERVAL_SECONDS


def parse(text: str | None) -> int:
    """The cursor that a client echoes; -1 if it sent none, or one that the server cannot have issued."""
    return int(text) if text is not None and _CURSOR.fullmatch(text) else -1


def advance(now_us: int, client: int, jitter: float) -> int:
    """The cursor for the response: the current interval, or one above the client's. `jitter` is random, in [0, 1).

    >>> advance(CURSOR_EPOCH_SECONDS * SECOND_US, -1, 0.5), advance(CURSOR_EPOCH_SECONDS * SECOND_US, 7, 0.0)
    (0, 8)
    """
    interval = current(now_us)
    if client < interval:
        return interval
    seconds = 1 + int(jitter * CURSOR_JITTER_SECONDS_MAX)
    return client + -(-seconds // CURSOR_INTERVAL_SECONDS)
