"""The report of the Spark benchmarks: a table, what was wrong, and the expectations."""

from collections.abc import Iterator

from benchmarks.expectations import Verdict
from benchmarks.rounds import Result, Results
from benchmarks.spark_reads import GET, GET_HOT, LAKE, LAKE_NARROW, LIVE, LIVE_HOT
from benchmarks.spark_sinks import SINK
from benchmarks.tables import aligned

BASELINES = {LAKE: GET, LAKE_NARROW: GET, LIVE: GET, LIVE_HOT: GET_HOT}
LAKE_ROWS_MIN = 1e6
PEER_RATIO_MIN = 5.0
SINK_ROWS_MIN = 200e3


def table(results: Results) -> str:
    """One line per contender: medians over the rounds, and the median of the ratios to its peer within each round."""
    rows = [["what", "on", "rows/s", "MB/s", "s", "CPU us/row", "times one GET per stream"]]
    seen = dict.fromkeys((result.workload, result.case, result.server) for result in results.all)
    for scene, case, contender in seen:
        figures = [results.figure(scene, case, contender, key) for key in ("rows", "mb", "seconds", "cpu_us")]
        cells = [
            "-" if figure is None else f"{figure:,.{digits}f}"
            for figure, digits in zip(figures, (0, 1, 2, 2), strict=True)
        ]
        peer = BASELINES.get(contender)
        ratio = results.ratio(scene, case, contender, peer, "rows") if peer else None
        rows.append([contender, case, *cells, f"{ratio:.2f}" if ratio else ""])
    return "\n".join(aligned(rows))


def remarks(results: Results) -> Iterator[str]:
    """List what was wrong with any measurement, and what explains its figures."""
    for result in results.all:
        for text in (*result.sample.problems, *result.sample.notes):
            yield f"- {result.server}, {result.case}, round {result.round}: {text}"


def line(result: Result) -> str:
    units = {"rows": "rows/s", "mb": "MB/s", "seconds": "s", "cpu_us": "us/row"}
    figures = ", ".join(
        f"{value:,.{0 if key == 'rows' else 2}f} {units[key]}" for key, value in result.sample.values.items()
    )
    words = "; ".join((figures or "failed", *result.sample.problems, *result.sample.notes))
    counted = f"round {result.round}" if result.round > 0 else "not counted"
    return f"[{result.workload}] {result.server}, {result.case}, {counted}: {words}"


def verdicts(results: Results, large: str, many: str, sink: str) -> Iterator[Verdict]:
    """Judge every expectation, given the labels of the cases that it refers to."""
    rows = results.figure("scan", large, LAKE, "rows")
    yield _at_least(f"lake scan of {large} messages: at least {LAKE_ROWS_MIN:,.0f} rows/s", rows, LAKE_ROWS_MIN)
    for peer in (GET, GET_HOT):
        ratio = results.ratio("scan", many, LAKE, peer, "rows")
        yield _at_least(f"lake scan of {many} messages: at least 5 times {peer}", ratio, PEER_RATIO_MIN, "x")
    rows = results.figure("sink", sink, SINK, "rows")
    yield _at_least(f"sink, {sink}: at least {SINK_ROWS_MIN:,.0f} rows/s", rows, SINK_ROWS_MIN)
    bad = sum(bool(result.sample.problems) for result in results.all)
    text = "contents: everything that was read or written was complete and unchanged"
    yield Verdict(text, f"{bad} of {len(results.all)} measurements have problems", bad == 0 if results.all else None)


def _at_least(text: str, found: float | None, minimum: float, unit: str = "") -> Verdict:
    if found is None:
        return Verdict(text, "", None)
    return Verdict(text, f"{found:,.2f}{unit}" if unit else f"{found:,.0f}", found >= minimum)
