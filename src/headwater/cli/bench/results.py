"""The result of a measurement: figures and a check of every byte, and how they are printed."""

import math
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import click

from headwater.cli.printing import columns
from headwater.cli.terminal import coloured

GENERATOR = "one Python process (asyncio)"
BUSY = 0.9
STEPS_PER_E = 200
"""Latencies are counted in buckets half a percent wide."""
QUANTILES = {"p50_ms": 0.5, "p90_ms": 0.9, "p99_ms": 0.99, "p99_9_ms": 0.999}


class Latencies:
    """A histogram of durations, in constant memory."""

    def __init__(self) -> None:
        self._buckets: Counter[int] = Counter()
        self.count = 0

    def add(self, ns: int) -> None:
        self._buckets[int(math.log(max(ns, 1)) * STEPS_PER_E)] += 1
        self.count += 1

    def quantile_ms(self, share: float) -> float:
        """Return the time within which this share was done.

        >>> latencies = Latencies()
        >>> for ms in range(1, 101):
        ...     latencies.add(ms * 1_000_000)
        >>> round(latencies.quantile_ms(0.5)), round(latencies.quantile_ms(0.99)), Latencies().quantile_ms(0.5)
        (50, 99, 0.0)
        """
        wanted = math.ceil(share * self.count)
        for bucket in sorted(self._buckets):
            wanted -= self._buckets[bucket]
            if wanted <= 0:
                return math.exp((bucket + 0.5) / STEPS_PER_E) / 1e6
        return 0.0


@dataclass(slots=True)
class Check:
    """How many messages were compared with what was written, and what was wrong with them."""

    messages: int = 0
    lost: int = 0
    doubled: int = 0
    changed: int = 0

    @property
    def ok(self) -> bool:
        return not (self.lost or self.doubled or self.changed)

    def explain(self, data: bytes, count: int, message: Callable[[int], bytes]) -> None:
        """Count what is wrong with data whose hash differs; all messages have the same length."""
        size = len(message(0)) if count else 1
        expected = {message(number): number for number in range(count)}
        seen: Counter[int] = Counter()
        for at in range(0, len(data), size):
            number = expected.get(data[at : at + size])
            if number is None:
                self.changed += 1
            else:
                seen[number] += 1
        self.doubled += sum(times - 1 for times in seen.values())
        # A changed message is not counted as lost too.
        self.lost += max(count - len(seen) - self.changed, 0)
        if self.ok:
            # Every message is there once, so their order differs.
            self.changed += 1

    def __str__(self) -> str:
        if self.ok:
            return f"{self.messages:,} messages read back, none lost, doubled or changed"
        wrong = f"{self.lost:,} lost, {self.doubled:,} doubled, {self.changed:,} changed"
        return f"{self.messages:,} messages read back, {wrong}"


@dataclass(slots=True)
class Result:
    """One measurement."""

    workload: str
    url: str
    settings: dict[str, float]
    figures: dict[str, float] = field(default_factory=dict)
    check: Check = field(default_factory=Check)
    generator: str = GENERATOR
    generator_cpu: float = 0.0

    def measured(self, noun: str, count: int, byte_count: int, seconds: float, latencies: Latencies) -> None:
        """Compute the figures."""
        self.figures = {
            f"{noun}_per_second": round(count / seconds, 1),
            "mb_per_second": round(byte_count / seconds / 1e6, 3),
            **{name: round(latencies.quantile_ms(share), 3) for name, share in QUANTILES.items()},
        }

    def facts(self) -> dict[str, Any]:
        return asdict(self)


def show(result: Result, before: Mapping[str, Any] | None) -> None:
    """Print a measurement for a person, next to an earlier one if given."""
    settings = ", ".join(f"{name} {value:g}" for name, value in result.settings.items())
    click.echo(f"{result.workload} at {result.url}: {settings}")
    share = f"used {result.generator_cpu:.0%} of a core"
    limit = "; it was the bottleneck, not the server" if result.generator_cpu > BUSY else ""
    click.echo(f"The load came from {result.generator}, which {share}{limit}; benchmarks/run measures with wrk.")
    old: Mapping[str, float] = before["figures"] if before else {}
    rows = [_row(name, value, old.get(name)) for name, value in result.figures.items()]
    heads = ("", "NOW", "BEFORE", "RATIO")
    width = len(heads) if before else 2
    columns(heads[:width], [row[:width] for row in rows], (False, True, True, True)[:width], head=before is not None)
    verdict = coloured("ok", "green") if result.check.ok else coloured("WRONG", "red")
    click.echo(f"check  {verdict}: {result.check}")
    sys.stdout.flush()


def _row(name: str, value: float, before: float | None) -> list[str]:
    label = name.replace("_per_second", "/s").replace("mb/s", "MB/s").replace("_ms", " ms").replace("9_9", "9.9")
    ratio = "-" if not before else f"{value / before:.2f}x"
    return [label, f"{value:,.2f}", "-" if before is None else f"{before:,.2f}", ratio]
