"""What a check of `headwater doctor` finds."""

from typing import Literal, NamedTuple

Verdict = Literal["ok", "warning", "problem"]


class Finding(NamedTuple):
    """The result of one check, and how to fix what it found."""

    check: str
    verdict: Verdict
    detail: str
    fix: str = ""
