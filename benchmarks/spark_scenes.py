"""A scene of the Spark benchmarks: contenders for one job on one set of data, each measured once per round."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import SparkSession

from benchmarks import processes, servers
from benchmarks.servers import Server, Spec
from benchmarks.spark_data import Known, Shape
from benchmarks.workloads import Sample

OURS = next(spec for spec in servers.known() if spec.name == "headwater")
HOT = ("--flush-bytes-max", str(1 << 34), "--hot-bytes-max", str(1 << 34), "--flush-journal-bytes", str(1 << 40))
"""Options of a server that flushes nothing by itself."""


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is measured."""

    warm_rounds: int
    rounds: int
    large: Shape
    many: Shape
    sink_rows: int
    tiny_rows: int
    flushes: int = 24


FULL = Scale(2, 3, Shape(1_000, 1_000, 100), Shape(50_000, 10, 5), 1_000_000, 100_000)
QUICK = Scale(1, 1, Shape(100, 1_000, 50), Shape(5_000, 10, 5), 100_000, 10_000, flushes=8)


@dataclass(frozen=True, slots=True)
class Rig:
    """What every measurement of a run shares."""

    spark: SparkSession
    scale: Scale
    scratch: Path

    @contextmanager
    def server(self, name: str, *flags: str, module: str = "headwater") -> Iterator[Server]:
        """Run a fresh server with its own data directory."""
        command = tuple(module if word == "headwater" else word for word in OURS.command)
        with Server(Spec(name, (*command, *flags)), self.scratch) as server:
            yield server

    @property
    def tasks(self) -> int:
        return self.spark.sparkContext.defaultParallelism


class Contender(NamedTuple):
    """One way to do a job, called with the number of the round; those below 0 let Spark compile, and do not count."""

    name: str
    measure: Callable[[int], Sample]


class Scene(NamedTuple):
    """A line of the report: `open` prepares what the contenders need, and removes it."""

    name: str
    case: Callable[[Scale], str]
    open: Callable[[Rig], AbstractContextManager[list[Contender]]]


class Stopwatch:
    """Started right before the work and stopped right after it; counts the CPU time of Spark and of the servers."""

    def __init__(self) -> None:
        self._began, self._cpu_began = time.monotonic(), processes.cpu_seconds(os.getpid())
        self._seconds = self._cpu_seconds = 0.0

    def stop(self) -> "Stopwatch":
        self._seconds = time.monotonic() - self._began
        self._cpu_seconds = processes.cpu_seconds(os.getpid()) - self._cpu_began
        return self

    @property
    def times(self) -> tuple[float, float]:
        """Elapsed seconds, and seconds of CPU time."""
        return self._seconds, self._cpu_seconds

    def sample(self, known: Known, problems: list[str]) -> Sample:
        """Return a sample of work on a known number of rows."""
        values = {
            "rows": known.rows / self._seconds,
            "mb": known.bytes / self._seconds / 1e6,
            "seconds": self._seconds,
            "cpu_us": self._cpu_seconds / known.rows * 1e6,
        }
        return Sample(values, problems)
