"""The order of measurements: case by case, and in each round every server once, there and back (A B C, C B A, ...)."""

import sys
from dataclasses import dataclass
from statistics import median
from subprocess import SubprocessError

from benchmarks.servers import BenchmarkError, Server, Spec
from benchmarks.workloads import Case, Rig, Sample, Workload


@dataclass(frozen=True, slots=True)
class Result:
    """One sample, and what it was measured on."""

    workload: str
    case: str
    server: str
    round: int
    sample: Sample


class Results:
    """All samples of a run; figures are medians over rounds, ratios are medians of the ratios within each round."""

    def __init__(self) -> None:
        self.all: list[Result] = []

    def series(self, workload: str, case: str, server: str, key: str) -> dict[int, float]:
        return {
            result.round: result.sample.values[key]
            for result in self.all
            if (result.workload, result.case, result.server) == (workload, case, server) and key in result.sample.values
        }

    def figure(self, workload: str, case: str, server: str, key: str) -> float | None:
        values = self.series(workload, case, server, key)
        return median(values.values()) if values else None

    def ratio(self, workload: str, case: str, server: str, baseline: str, key: str) -> float | None:
        ours, theirs = (self.series(workload, case, name, key) for name in (server, baseline))
        pairs = [ours[turn] / theirs[turn] for turn in ours if theirs.get(turn)]
        return median(pairs) if pairs else None


def interleave(workload: Workload, specs: list[Spec], rig: Rig, results: Results) -> None:
    """Measure every case of one workload; each measurement has a fresh process and an empty directory."""
    for case in workload.cases(rig.scale):
        for turn in range(min(rig.scale.rounds, workload.rounds_max)):
            for spec in specs if turn % 2 == 0 else reversed(specs):
                sample = attempt(workload, case, spec, rig)
                results.all.append(Result(workload.name, case.label, spec.name, turn, sample))
                report(workload, case, spec, turn, sample)


def attempt(workload: Workload, case: Case, spec: Spec, rig: Rig) -> Sample:
    """Measure once; a failure under load is a result, and only a server that does not start ends the run."""
    with Server(spec, rig.scratch) as server:
        try:
            return workload.measure(case, server, rig)
        except (OSError, EOFError, BenchmarkError, SubprocessError) as error:
            return Sample(problems=[f"failed: {error}"])


def report(workload: Workload, case: Case, spec: Spec, turn: int, sample: Sample) -> None:
    figures = [
        f"{sample.values[figure.key]:,.{figure.digits}f} {figure.label}"
        for figure in workload.figures
        if figure.key in sample.values
    ]
    words = "; ".join((", ".join(figures), *sample.problems, *sample.notes))
    print(f"[{workload.name}] {case.label}, round {turn + 1}, {spec.name}: {words}", file=sys.stderr, flush=True)
