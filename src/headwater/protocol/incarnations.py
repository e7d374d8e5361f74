"""Incarnations: the log position at which a stream was created, printed together with the log's id."""

FOREIGN = -1
"""The result of `parse` for a text that no stream of this log can have had."""


def render(log_id: str, incarnation: int) -> str:
    """The printed form.

    >>> render("9f2c", 7)
    '9f2c-7'
    """
    return f"{log_id}-{incarnation}"


def parse(log_id: str, text: str) -> int:
    """The incarnation that a client sent back; `FOREIGN` if it belongs to another log.

    >>> parse("9f2c", "9f2c-7"), parse("9f2c", "0000-7"), parse("9f2c", "9f2c-07")
    (7, -1, -1)
    """
    ours, _, digits = text.rpartition("-")
    plain = digits.isascii() and digits.isdigit() and len(digits) <= 19 and str(int(digits)) == digits
    return int(digits) if ours == log_id and plain else FOREIGN
