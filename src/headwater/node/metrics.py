"""What the node and its HTTP server count; every label has few, fixed values."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator

from headwater.prometheus import Labels, Metric, Sample

SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
COMMANDS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096)
"""Upper bounds of the buckets of times and of batch sizes."""


class Histogram:
    """Counts values by upper bound."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...] = SECONDS) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        return sum(self.counts)


class Metrics:
    """Counters that are cheap to raise where events happen; everything else is computed on request."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        """Finished requests by route and status."""
        self.request_seconds: dict[str, Histogram] = {}
        self.batch_commands = Histogram(COMMANDS)
        self.commit_seconds = Histogram()
        self.long_polls = 0
        self.sse_reads = 0
        self.refused_writes = 0
        """Writes refused for lack of room: in the queue, on the disk, or because the lake lags behind."""
        self.producer_duplicates = 0
        """Appends that had been accepted before, and so were answered and not written again."""

    def committed(self, commands: int, seconds: float) -> None:
        """Count a batch that has been decided."""
        self.batch_commands.observe(commands)
        self.commit_seconds.observe(seconds)

    def finished(self, route: str, status: int, seconds: float) -> None:
        """Count a request that has been answered."""
        self.requests[route, status] += 1
        histogram = self.request_seconds.get(route)
        if histogram is None:
            histogram = self.request_seconds[route] = Histogram()
        histogram.observe(seconds)


def histogram(name: str, help: str, values: Iterable[tuple[Labels, Histogram]]) -> Metric:
    return Metric(name, "histogram", help, [sample for labels, one in values for sample in _samples(labels, one)])


def _samples(labels: Labels, one: Histogram) -> Iterator[Sample]:
    below = 0
    for bound, count in zip((*one.bounds, None), tuple(one.counts), strict=True):
        below += count
        le = "+Inf" if bound is None else f"{bound:g}"
        yield Sample("_bucket", (*labels, ("le", le)), below)
    yield Sample("_sum", labels, one.sum)
    yield Sample("_count", labels, below)
