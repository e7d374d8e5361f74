"""Incarnations: a stream's life is named by the log position of its creation, printed with the journal's id."""

FOREIGN = -1
"""What `parse` answers for a text that no life in this journal can have."""


def render(log_id: str, incarnation: int) -> str:
    """The printed form.

    >>> render("9f2c", 7)
    '9f2c-7'
    """
    return f"{log_id}-{incarnation}"


def parse(log_id: str, text: str) -> int:
    """The incarnation that a client sends back; `FOREIGN` if it is not of this journal.

    >>> parse("9f2c", "9f2c-7"), parse("9f2c", "0000-7"), parse("9f2c", "9f2c-07")
    (7, -1, -1)
    """
    ours, _, digits = text.rpartition("-")
    plain = digits.isascii() and digits.isdigit() and len(digits) <= 19 and str(int(digits)) == digits
    return int(digits) if ours == log_id and plain else FOREIGN
