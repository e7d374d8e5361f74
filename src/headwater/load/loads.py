"""The outcome of a load: counts, latencies, and how busy the generator was."""

import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

BUSY_SHARE_MAX = 0.92
SENDING_CORES = max(1, (os.cpu_count() or 2) // 2)
"""Half of the cores send; the other half is left to the server."""
SHARES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999, "max": 1.0}


class Latencies:
    """Durations counted by the microsecond: exact, and in memory that does not grow with the length of a run."""

    def __init__(self, durations_us: Iterable[int] = ()) -> None:
        self.counts = Counter(durations_us)

    def add(self, duration_us: int) -> None:
        self.counts[duration_us] += 1

    def merge(self, other: "Latencies") -> None:
        self.counts.update(other.counts)

    def percentile(self, share: float) -> float:
        """Return the time within which this share was done, in microseconds.

        >>> Latencies([4, 1, 3, 2]).percentile(0.5), Latencies([7]).percentile(1.0), Latencies().percentile(0.5)
        (3.0, 7.0, 0.0)
        """
        total = self.counts.total()
        rank = min(total - 1, int(total * share))
        for duration_us in sorted(self.counts):
            rank -= self.counts[duration_us]
            if rank < 0:
                return float(duration_us)
        return 0.0

    def percentiles(self) -> dict[str, float]:
        return {name: self.percentile(share) for name, share in SHARES.items()}


def percentiles(latencies_us: Iterable[int]) -> dict[str, float]:
    """Sum up latencies; the keys are those that the tables use."""
    return Latencies(latencies_us).percentiles()


@dataclass(slots=True)
class Tally:
    """What one process counted."""

    done: int = 0
    refused: int = 0
    broken: int = 0
    wrong: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    latencies: Latencies = field(default_factory=Latencies)


@dataclass(slots=True)
class Load:
    """The outcome of one load: only accepted requests count as done, everything else is a problem."""

    seconds: float
    done: int
    refused: int = 0
    broken: int = 0
    wrong: int = 0
    latencies_us: dict[str, float] = field(default_factory=dict)
    busy_share: float = 0.0
    cpu_seconds: float = 0.0
    unanswered_max: int = 0
    latencies: Latencies = field(default_factory=Latencies)

    @classmethod
    def of(cls, tallies: list[Tally]) -> "Load":
        """Add up what several processes counted."""
        latencies = Latencies()
        for tally in tallies:
            latencies.merge(tally.latencies)
        return cls(
            seconds=max(tally.seconds for tally in tallies),
            done=sum(tally.done for tally in tallies),
            refused=sum(tally.refused for tally in tallies),
            broken=sum(tally.broken for tally in tallies),
            wrong=sum(tally.wrong for tally in tallies),
            latencies_us=latencies.percentiles(),
            busy_share=max(tally.cpu_seconds / tally.seconds for tally in tallies),
            cpu_seconds=sum(tally.cpu_seconds for tally in tallies),
            latencies=latencies,
        )

    @property
    def rate(self) -> float:
        return self.done / self.seconds if self.seconds > 0 else 0.0

    def problems(self) -> list[str]:
        found = []
        if self.refused:
            found.append(f"{self.refused:,} requests were refused (not 2xx), {self.done:,} accepted")
        if self.broken:
            found.append(f"{self.broken:,} connections broke or timed out")
        if self.wrong:
            found.append(f"{self.wrong:,} responses had a different body than was written")
        return found

    def notes(self) -> list[str]:
        if self.busy_share <= BUSY_SHARE_MAX:
            return []
        return [f"the load generator was busy {self.busy_share:.0%} of the time: its limit, not the server's"]
