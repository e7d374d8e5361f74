"""The report: one table per workload, then what went wrong, as Markdown that is also readable as plain text."""

from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.rounds import Results
from benchmarks.servers import Spec
from benchmarks.workloads import Case, Figure, Scale, Workload

# Half a core on a machine with two: above that, figures say more about other processes than about the server.
FOREIGN_SHARE_MAX = 0.25


@dataclass(frozen=True, slots=True)
class Table:
    """One workload: a line per case and figure, a column per server, ratios to the baseline in parentheses."""

    workload: Workload
    specs: list[Spec]
    baseline: str
    results: Results

    def render(self, scale: Scale) -> str:
        rows = [["case", "figure", *(spec.name for spec in self.specs)]]
        for case in self.workload.cases(scale):
            label = case.label
            for figure in self.workload.figures:
                cells = [self._cell(case, figure, spec.name) for spec in self.specs]
                if any(text != "-" for text in cells):
                    rows.append([label, figure.label, *cells])
                    label = ""
        return "\n".join((f"## {self.workload.title}", "", *aligned(rows), "", *self._remarks())).rstrip()

    def _cell(self, case: Case, figure: Figure, server: str) -> str:
        value = self.results.figure(self.workload.name, case.label, server, figure.key)
        if value is None:
            return "-"
        text = f"{value:,.{figure.digits}f}"
        if figure.higher_is_better is None or server == self.baseline:
            return text
        ratio = self.results.ratio(self.workload.name, case.label, server, self.baseline, figure.key)
        return f"{text} ({ratio:.2f}x)" if ratio is not None else text

    def _remarks(self) -> Iterator[str]:
        """List what was wrong with any measurement, and what explains its figures."""
        seen: dict[tuple[str, str], list[str]] = {}
        for result in self.results.all:
            if result.workload == self.workload.name and (found := result.sample.problems + result.sample.notes):
                text = "; ".join(found)
                seen.setdefault((result.server, result.case), []).append(f"round {result.round + 1}: {text}")
        for (server, case), texts in seen.items():
            yield f"- {server}, {case}: {' / '.join(texts)}"
        yield from self._noise()

    def _noise(self) -> Iterator[str]:
        mine = [result.sample.values for result in self.results.all if result.workload == self.workload.name]
        noisy = sum(values.get("foreign_share", 0.0) > FOREIGN_SHARE_MAX for values in mine)
        if noisy:
            share = f"{FOREIGN_SHARE_MAX:.0%}"
            yield f"- noise: in {noisy} of {len(mine)} measurements other processes used over {share} of the machine"


def aligned(rows: list[list[str]]) -> Iterator[str]:
    """Pad the cells, so that the table is readable as plain text.

    >>> print("\\n".join(aligned([["case", "figure", "us"], ["x", "y", "1"]])))
    | case | figure | us |
    | ---- | ------ | -: |
    | x    | y      |  1 |
    """
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for index, row in enumerate(rows):
        left = [text.ljust(width) for text, width in zip(row[:2], widths[:2], strict=True)]
        right = [text.rjust(width) for text, width in zip(row[2:], widths[2:], strict=True)]
        yield f"| {' | '.join(left + right)} |"
        if index == 0:
            rule = ["-" * width for width in widths[:2]] + ["-" * (width - 1) + ":" for width in widths[2:]]
            yield f"| {' | '.join(rule)} |"
