"""The report of a job."""

from collections.abc import Mapping
from dataclasses import dataclass, field

Fact = str | int | float | bool | None


class JobFailed(Exception):
    """The job cannot or must not continue; the message is one sentence for a person."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a job did, in numbers, and the problems that it found."""

    job: str
    facts: Mapping[str, Fact] = field(default_factory=dict)
    problems: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.problems
