"""What a load generator is and what it returns."""

import os
from dataclasses import dataclass, field
from typing import Protocol

BUSY_SHARE_MAX = 0.92
# Half of the cores send; the other half is left to the server.
SENDING_CORES = max(1, (os.cpu_count() or 2) // 2)


@dataclass(slots=True)
class Load:
    """The outcome of one load: accepted requests only count as done, everything else is a problem."""

    seconds: float
    done: int
    refused: int = 0
    broken: int = 0
    wrong: int = 0
    latencies_us: dict[str, float] = field(default_factory=dict)
    busy_share: float = 0.0
    cpu_seconds: float = 0.0
    unanswered_max: int = 0

    @property
    def rate(self) -> float:
        return self.done / self.seconds if self.seconds > 0 else 0.0

    def problems(self) -> list[str]:
        said = []
        if self.refused:
            said.append(f"{self.refused:,} requests were refused (not 2xx), {self.done:,} accepted")
        if self.broken:
            said.append(f"{self.broken:,} connections broke or timed out")
        if self.wrong:
            said.append(f"{self.wrong:,} answers had another body than was written")
        return said

    def notes(self) -> list[str]:
        if self.busy_share <= BUSY_SHARE_MAX:
            return []
        return [f"the load generator was busy {self.busy_share:.0%} of the time: its limit, not the server's"]


class Generator(Protocol):
    """Sends one kind of request for some seconds over some connections."""

    name: str

    def append(self, address: tuple[str, int], prefix: str, streams: int, connections: int, seconds: float) -> Load: ...

    def read(self, address: tuple[str, int], path: str, body: bytes, connections: int, seconds: float) -> Load: ...


def percentile(ordered: list[int], share: float) -> float:
    """Picks from a sorted list.

    >>> percentile([1, 2, 3, 4], 0.5)
    3.0
    """
    return float(ordered[min(len(ordered) - 1, int(len(ordered) * share))]) if ordered else 0.0


def percentiles(latencies_us: list[int]) -> dict[str, float]:
    """Sums up latencies; the keys are those that the tables use."""
    ordered = sorted(latencies_us)
    shares = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999, "max": 1.0}
    return {name: percentile(ordered, share) for name, share in shares.items()}
