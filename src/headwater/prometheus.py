"""Metrics as values, and their page in the text format of Prometheus."""

from collections.abc import Iterable
from typing import Literal, NamedTuple

Labels = tuple[tuple[str, str], ...]

Join = Literal["sum", "max", "min"]
"""How the values of several workers become one: "max" if each has a copy of the same, "min" if the worst one counts."""


class Sample(NamedTuple):
    """One line: the suffix of the metric's name, the labels, the value."""

    suffix: str
    labels: Labels
    value: float


class Metric(NamedTuple):
    """A metric with its help, its kind and its samples."""

    name: str
    kind: str
    help: str
    samples: list[Sample]
    join: Join = "sum"


def gauge(name: str, help: str, value: float, *, join: Join = "sum") -> Metric:
    return Metric(name, "gauge", help, [Sample("", (), value)], join)


def counter(name: str, help: str, value: float, *, join: Join = "sum") -> Metric:
    return Metric(name, "counter", help, [Sample("", (), value)], join)


def render(metrics: Iterable[Metric]) -> str:
    """The page that Prometheus reads.

    >>> print(render([gauge("headwater_streams", "Streams.", 3)]), end="")
    # HELP headwater_streams Streams.
    # TYPE headwater_streams gauge
    headwater_streams 3
    """
    lines: list[str] = []
    for metric in metrics:
        lines += f"# HELP {metric.name} {metric.help}\n", f"# TYPE {metric.name} {metric.kind}\n"
        for sample in metric.samples:
            labels = ",".join(f'{name}="{value}"' for name, value in sample.labels)
            braced = f"{{{labels}}}" if labels else ""
            lines.append(f"{metric.name}{sample.suffix}{braced} {_number(sample.value)}\n")
    return "".join(lines)


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))
