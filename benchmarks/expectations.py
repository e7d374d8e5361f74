"""What this server is expected to reach compared with the reference server, and whether this run confirms it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from benchmarks.real import MIXES
from benchmarks.rounds import Results

OURS, MEMORY, FILE = "headwater", "reference-memory", "reference-file"
ELECTRIC = "electric"
"""The name given with `--server electric=...`; docs/benchmarks.md has the command."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One expectation; `is_met` is None if this run did not measure what it needs."""

    text: str
    found: str
    is_met: bool | None

    def __str__(self) -> str:
        words = {True: "met", False: "NOT MET", None: "not measured"}[self.is_met]
        return f"- {words}: {self.text}" + (f" ({self.found})" if self.found else "")


@dataclass(frozen=True, slots=True)
class Ratio:
    """This server's rate divided by a peer's in the same case."""

    workload: str
    case: str
    peer: str
    minimum: float

    def judge(self, results: Results) -> Verdict:
        text = f"{self.workload}, {self.case}: at least {self.minimum:g} times {self.peer}"
        ratio = results.ratio(self.workload, self.case, OURS, self.peer, "rate")
        return Verdict(text, "", None) if ratio is None else Verdict(text, f"{ratio:.2f}x", ratio >= self.minimum)


_WRITING = ("producers", "json", "mixed")
RATIOS = (
    *(Ratio("appends", f"{streams}, 64 conn.", MEMORY, 1.2) for streams in ("1 stream", "1,000 streams")),
    *(Ratio("appends", f"{streams}, 256 conn.", MEMORY, 1.7) for streams in ("1 stream", "1,000 streams")),
    *(Ratio("appends", f"{streams}, 64 conn.", FILE, 20.0) for streams in ("1 stream", "1,000 streams")),
    Ratio("reads", "1 KB, 64 conn.", MEMORY, 2.0),
    *(Ratio("real", f"{MIXES[mix]}, 64 conn.", MEMORY, 1.5) for mix in _WRITING),
    *(Ratio("real", f"{MIXES[mix]}, {count} conn.", ELECTRIC, 0.8) for mix in _WRITING for count in (64, 16)),
    *(Ratio("real", f"{MIXES[mix]}, 1 conn.", ELECTRIC, 0.9) for mix in _WRITING),
    Ratio("real", f"{MIXES['get']}, 64 conn.", ELECTRIC, 1.3),
    Ratio("appends", "1 stream, 64 conn.", ELECTRIC, 0.9),
    Ratio("appends", "1 stream, 256 conn.", ELECTRIC, 1.0),
)


def fanout(results: Results) -> Verdict:
    text = "fanout, 1,000 readers: everything delivered at 100 messages/s, p99 below half of the reference's at 30"
    ours = "1,000 readers, 100 messages/s"
    share = results.figure("fanout", ours, OURS, "delivered_percent")
    p99_ms = results.figure("fanout", ours, OURS, "p99_ms")
    reference_ms = results.figure("fanout", "1,000 readers, 30 messages/s", MEMORY, "p99_ms")
    if share is None or p99_ms is None or reference_ms is None:
        return Verdict(text, "", None)
    found = f"{share:.1f} %, {p99_ms:.1f} ms and {reference_ms:.1f} ms"
    return Verdict(text, found, share >= 100.0 and p99_ms < reference_ms / 2)


def idle(results: Results) -> Verdict:
    text = "idle, 100,000 streams: at most 90 MB added"
    added_mb = results.figure("idle", "100,000 streams", OURS, "added_mb")
    return Verdict(text, "", None) if added_mb is None else Verdict(text, f"{added_mb:.1f} MB", added_mb <= 90.0)


def contents(results: Results) -> Verdict:
    text = "contents: everything that this server acknowledged could be read back, and nothing was refused"
    mine = [result for result in results.all if result.server == OURS]
    if not mine:
        return Verdict(text, "", None)
    bad = sum(bool(result.sample.problems) for result in mine)
    return Verdict(text, f"{bad} of {len(mine)} measurements have problems", bad == 0)


def verdicts(results: Results) -> Iterator[Verdict]:
    """Judge every expectation in the order of the tables."""
    others: tuple[Callable[[Results], Verdict], ...] = (fanout, idle, contents)
    yield from (ratio.judge(results) for ratio in RATIOS)
    yield from (judge(results) for judge in others)
