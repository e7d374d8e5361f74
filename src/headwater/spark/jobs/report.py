"""What a job says when it is done."""

from collections.abc import Mapping
from dataclasses import dataclass, field

Fact = str | int | float | bool | None


class JobFailed(Exception):
    """A job cannot go on, or should not; the message is one sentence for a person."""


@dataclass(frozen=True, slots=True)
class Report:
    """What was done, in numbers, and what was found wrong."""

    job: str
    facts: Mapping[str, Fact] = field(default_factory=dict)
    problems: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.problems
