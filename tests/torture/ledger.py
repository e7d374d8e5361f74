"""What clients were told: every message with its fate, stale reads, and when anything was acknowledged."""

import time
from collections.abc import Iterable
from enum import Enum
from itertools import pairwise


class Fate(Enum):
    """What became of a message, as far as its client knows."""

    ACKNOWLEDGED = "acknowledged"
    REFUSED = "refused"
    """The server said that it changed nothing."""
    UNKNOWN = "unknown"


class Ledger:
    """The fates of all messages by stream, in the order in which they were sent."""

    def __init__(self) -> None:
        self.streams: dict[str, dict[bytes, Fate]] = {}
        self.acknowledged = self.fresh_reads = 0
        self.stale: list[str] = []
        self.problems: list[str] = []
        self.acknowledged_at: list[float] = []

    def record(self, stream: str, message: bytes, fate: Fate) -> None:
        self.streams.setdefault(stream, {})[message] = fate
        if fate is Fate.ACKNOWLEDGED:
            self.acknowledged += 1
            self.acknowledged_at.append(time.monotonic())

    def longest_gap(self, since: float, until: float) -> float:
        """The longest time without any acknowledgement between two instants."""
        inside = [at for at in self.acknowledged_at if since <= at <= until]
        edges = [since, *inside, until]
        return max(after - before for before, after in pairwise(edges))

    def compare(self, stream: str, found: Iterable[bytes]) -> None:
        """Note what is lost, doubled, out of order, or there although the server had refused it."""
        fates, order = self.streams.get(stream, {}), list(found)
        counts: dict[bytes, int] = {}
        for message in order:
            counts[message] = counts.get(message, 0) + 1
        for message, fate in fates.items():
            count = counts.pop(message, 0)
            if fate is Fate.ACKNOWLEDGED and count == 0:
                self.problems.append(f"{stream}: {message!r} was acknowledged and is lost")
            if fate is Fate.REFUSED and count:
                self.problems.append(f"{stream}: {message!r} was refused and is there")
            if count > 1:
                self.problems.append(f"{stream}: {message!r} is there {count} times")
        self.problems += [f"{stream}: {message!r} was never sent" for message in counts]
        acknowledged = [message for message, fate in fates.items() if fate is Fate.ACKNOWLEDGED]
        kept = [message for message in order if fates.get(message) is Fate.ACKNOWLEDGED]
        if kept != acknowledged and sorted(kept) == sorted(acknowledged):
            self.problems.append(f"{stream}: the acknowledged messages are out of order")
