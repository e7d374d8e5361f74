"""The result of a measurement: figures and a check of every byte, and how they are printed."""

import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import click

from headwater.cli.printing import columns
from headwater.cli.terminal import coloured
from headwater.load.loads import Latencies

BUSY = 0.9
QUANTILES = {"p50_ms": 0.5, "p90_ms": 0.9, "p99_ms": 0.99, "p99_9_ms": 0.999}


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
    generator: str = ""
    generator_cpu: float = 0.0
    """How much of a core the busiest process of the generator used."""

    def generated(self, processes: int, busy_share: float) -> None:
        """Note what sent the load."""
        self.generator = "one Python process (epoll)" if processes == 1 else f"{processes} Python processes (epoll)"
        self.generator_cpu = round(busy_share, 3)

    def measured(self, noun: str, count: int, byte_count: int, seconds: float, latencies: Latencies) -> None:
        """Compute the figures."""
        self.figures = {
            f"{noun}_per_second": round(count / seconds, 1),
            "mb_per_second": round(byte_count / seconds / 1e6, 3),
            **{name: round(latencies.percentile(share) / 1e3, 3) for name, share in QUANTILES.items()},
        }

    def facts(self) -> dict[str, Any]:
        return asdict(self)


def show(result: Result, before: Mapping[str, Any] | None) -> None:
    """Print a measurement for a person, next to an earlier one if given."""
    settings = ", ".join(f"{name} {value:g}" for name, value in result.settings.items())
    click.echo(f"{result.workload} at {result.url}: {settings}")
    busiest = "which" if result.generator.startswith("one") else "the busiest of which"
    limit = "; it was the bottleneck, not the server" if result.generator_cpu > BUSY else ""
    used = f"{busiest} used {result.generator_cpu:.0%} of a core"
    click.echo(f"The load came from {result.generator}, {used}{limit}; benchmarks/run measures with wrk.")
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
