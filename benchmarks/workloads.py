"""Workloads: cases to measure, the figures of each measurement, and the servers that a workload makes sense for."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from benchmarks.generators import Generator
from benchmarks.servers import Server, Spec


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is measured; QUICK shows that the command works, its figures mean nothing."""

    rounds: int = 3
    seconds: float = 4.0
    warm_seconds: float = 1.0
    connections: tuple[int, ...] = (1, 16, 64, 256)
    real_connections: tuple[int, ...] = (1, 16, 64)
    streams: tuple[int, ...] = (1, 1000)
    readers: tuple[int, ...] = (200, 1000)
    message_rates: tuple[int, ...] = (30, 100)
    idle_streams: int = 100_000
    paused_streams: int = 1_000_000
    pause_seconds: float = 30.0
    listed_streams: int = 1_000_000
    cold_streams: int = 100_000
    replays: int = 1_000
    flush_mb: int = 50
    flush_streams: int = 100_000
    history_streams: int = 1_000_000


QUICK = Scale(
    rounds=1,
    seconds=1.0,
    connections=(1, 64),
    real_connections=(64,),
    readers=(200,),
    idle_streams=5_000,
    paused_streams=10_000,
    pause_seconds=5.0,
    listed_streams=10_000,
    cold_streams=2_000,
    replays=100,
    flush_mb=5,
    flush_streams=5_000,
    history_streams=10_000,
)


@dataclass(frozen=True, slots=True)
class Case:
    """One row of a table; each workload uses the fields that it needs."""

    label: str
    streams: int = 1
    connections: int = 1
    body_bytes: int = 0
    readers: int = 0
    rate: int = 0
    messages: int = 0
    mix: str = ""


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of a sample: its name, and how it is printed and compared (None: not compared)."""

    key: str
    label: str
    digits: int
    higher_is_better: bool | None = None


@dataclass(slots=True)
class Sample:
    """One measurement of one case on one server in one round; notes explain figures, problems are faults."""

    values: dict[str, float] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Rig:
    """What every measurement of a run shares."""

    scale: Scale
    generator: Generator
    scratch: Path


class Workload(Protocol):
    name: str
    title: str
    figures: tuple[Figure, ...]
    peers: tuple[str, ...]
    rounds_max: int

    def cases(self, scale: Scale) -> list[Case]: ...

    def suits(self, spec: Spec) -> bool: ...

    def measure(self, case: Case, server: Server, rig: Rig) -> Sample: ...
