"""The three workloads: many writers, many live readers, many replays. Each checks everything that it reads."""

import math
import secrets
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, TypeVar

import click

from headwater.cli.printing import coloured, columns
from headwater.client import Client, ClientError, RequestRefused, Stream
from headwater.load import messages, records
from headwater.load.events import EVENT_BYTES_MIN, Tracker
from headwater.load.loads import SENDING_CORES, Latencies, Load
from headwater.load.messages import LoadFailed
from headwater.load.readers import Audience, Ending, Receipt
from headwater.load.records import RECORD_BYTES_MIN, Findings, Ledger
from headwater.load.sockets import Job, run, share, work
from headwater.load.sources import Appends, Broadcast, Page, Rotation, Source, stream_path
from headwater.load.targets import Target

T = TypeVar("T")
R = TypeVar("R")

BUSY = 0.9
QUANTILES = {"p50_ms": 0.5, "p90_ms": 0.9, "p99_ms": 0.99, "p99_9_ms": 0.999}
MESSAGE_BYTES_MIN = max(RECORD_BYTES_MIN, EVENT_BYTES_MIN)
FILL_BYTES = 1024 * 1024
THREADS = 8
"""How many requests of the client library are in flight; they are not measured."""
ANSWER_SECONDS_MAX = 60.0
SETTLE_SECONDS_MAX = 60.0
"""How long readers may take to receive the last event."""


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
        """Record what sent the load."""
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


@dataclass(frozen=True, slots=True)
class Bench:
    """What every measurement needs: the server, and the common options."""

    client: Client
    target: Target
    show: Callable[[str], None]
    seconds: float
    message_bytes: int
    keep: bool = False

    def job(self, sources: Sequence[Source], seconds: float | None = None, rate: float = 0.0) -> Job:
        """Return a job that ends with the first request that fails."""
        wanted = self.seconds if seconds is None else seconds
        return Job(self.target, list(sources), wanted, rate, fails_fast=True, answer_seconds_max=ANSWER_SECONDS_MAX)

    def run(self, jobs: list[Job], noun: str) -> Load:
        """Send the load, and show the progress."""
        began = time.monotonic()

        def report(done: int) -> None:
            left = max(began + self.seconds - time.monotonic(), 0)
            self.show(f"{done:,} {noun}, {left:.0f} s left")

        return run(jobs, report)


def append(bench: Bench, result: Result, streams: int, connections: int) -> None:
    """Append to streams with one writer each; the writers share connections."""
    target, size, count = bench.target, bench.message_bytes, min(connections, streams)
    stem = f"bench-{secrets.token_hex(4)}-"
    # Connection n writes every count-th stream from n on, and numbers its records in the same way.
    sources = [
        Appends(target, f"/{stem}", range(n, streams, count), 0, n, count, size, messages.TEXT) for n in range(count)
    ]
    parts = min(SENDING_CORES, count)
    jobs = [bench.job(sources[part::parts]) for part in range(parts)]
    with _streams(bench, [stream_path(stem, index) for index in range(streams)]) as opened:
        load = bench.run(jobs, "appends")
        numbers = [_sequences(index, streams, count) for index in range(streams)]
        findings = _each(partial(_read_back, bench), zip(opened, numbers, strict=True))
    _compare(result.check, load.done, findings)
    result.generated(parts, load.busy_share)
    result.measured("appends", load.done, load.done * size, load.seconds, load.latencies)


def _sequences(stream: int, streams: int, connections: int) -> range:
    """Return the numbers of the records of a stream, in order.

    >>> [list(_sequences(stream, streams=5, connections=2)[:3]) for stream in (0, 2, 3)]
    [[0, 6, 12], [2, 8, 14], [3, 7, 11]]
    """
    first = stream % connections
    return range(stream, 10**10, connections * len(range(first, streams, connections)))


def _read_back(bench: Bench, work: tuple[Stream, range]) -> Findings:
    stream, sequences = work
    bench.show(f"reading back {stream.url}")
    ledger = Ledger(bench.message_bytes, sequences)
    ledger.add(stream.read())
    return ledger.findings()


def fanout(bench: Bench, result: Result, readers: int, rate: float) -> None:
    """Deliver one stream, written at a steady rate, to many SSE readers."""
    name = f"bench-{secrets.token_hex(4)}-0"
    counts, size = share(readers, SENDING_CORES), bench.message_bytes
    total = max(int(rate * bench.seconds), 1)
    source = Broadcast(bench.target, f"/{name}", total, size)
    job = bench.job([source], math.inf, rate)
    with _streams(bench, [name]) as [stream], Audience(bench.target, f"/{name}", counts, size) as audience:
        bench.show(f"connecting {readers:,} readers")
        audience.await_ready()

        def report(done: int) -> None:
            bench.show(f"{done:,} events sent, {audience.delivered():,} delivered")

        began_ns = time.monotonic_ns()
        sent = work(job, report)
        stream.close_stream()
        receipts = audience.finish(Ending(sent.done, time.monotonic() + SETTLE_SECONDS_MAX, is_closed=True))
        stored = Tracker(Latencies(), size)
        stored.take(stream.read(), began_ns)
    judge_fanout(result.check, source, receipts, stored)
    delivered = sum(receipt.delivered for receipt in receipts)
    seconds = max((max(receipt.last_ns for receipt in receipts) - began_ns) / 1e9, 1e-9)
    latencies = Latencies()
    for receipt in receipts:
        latencies.merge(receipt.latencies)
    busiest = max(sent.cpu_seconds, *(receipt.cpu_seconds for receipt in receipts))
    result.generated(1 + len(counts), busiest / seconds)
    result.measured("deliveries", delivered, delivered * size, seconds, latencies)


def judge_fanout(check: Check, source: Broadcast, receipts: list[Receipt], stored: Tracker) -> None:
    """Compare what the readers received, and what the stream holds, with what was sent."""
    if any(receipt.waiting for receipt in receipts):
        raise LoadFailed(f"readers lagged by more than {SETTLE_SECONDS_MAX:g} s, so use fewer")
    check.messages += source.sent + sum(receipt.delivered for receipt in receipts)
    check.lost += stored.skipped + max(0, source.sent - stored.following)
    check.lost += sum(receipt.skipped + receipt.missing for receipt in receipts)
    check.doubled += stored.repeated + sum(receipt.repeated for receipt in receipts)
    check.changed += stored.changed + bool(stored.rest) + sum(receipt.changed for receipt in receipts)
    if check.ok:
        # The numbers and the padding are right; the checksums cover the rest.
        checksums = [stored.checksum, *(checksum for receipt in receipts for checksum in receipt.checksums)]
        check.changed += sum(checksum != source.checksum for checksum in checksums)


def replay(bench: Bench, result: Result, clients: int, message_count: int) -> None:
    """Read one stream from beginning to end with many clients, again and again."""
    name, size = f"bench-{secrets.token_hex(4)}-0", bench.message_bytes
    content = b"".join(records.record(0, number, size) for number in range(message_count))
    step = max(FILL_BYTES // size, 1) * size
    with _streams(bench, [name]) as [stream]:
        for at in range(0, len(content), step):
            bench.show(f"writing {at // size:,} of {message_count:,} messages")
            stream.append(content[at : at + step])
        pages = list(_pages(bench.target, name, stream))
        ledger = Ledger(size, range(message_count))
        ledger.add(b"".join(page.body for page in pages))
        _compare(result.check, message_count, [ledger.findings()])
        jobs = [bench.job([Rotation(pages) for _ in range(count)]) for count in share(clients, SENDING_CORES)]
        load = bench.run(jobs, "replays")
    result.check.messages += load.done * message_count
    result.check.changed += load.wrong
    result.generated(len(jobs), load.busy_share)
    result.measured("replays", load.done, load.done * len(content), load.seconds, load.latencies)


def _pages(target: Target, name: str, stream: Stream) -> Iterator[Page]:
    """Read a stream page by page; every repeated request must return the same page."""
    offset = "-1"
    while True:
        chunk = stream.page(offset)
        assert chunk is not None, "only a request with an ETag is answered with 304"
        yield Page(target.request("GET", f"/{name}?offset={offset}"), chunk.data)
        if chunk.up_to_date or chunk.closed or chunk.next_offset == offset:
            return
        offset = chunk.next_offset


# -- Shared by the workloads -------------------------------------------------------------------------------------------


@contextmanager
def _streams(bench: Bench, names: list[str]) -> Iterator[list[Stream]]:
    """Create streams, and delete them at the end."""
    streams = [bench.client.stream(name) for name in names]

    def create(stream: Stream) -> None:
        bench.show(f"creating {stream.url}")
        stream.create(messages.TEXT)

    def delete(stream: Stream) -> None:
        bench.show(f"deleting {stream.url}")
        # After a failure, some of them may not exist.
        with suppress(RequestRefused):
            stream.delete()

    try:
        _each(create, streams)
        yield streams
    finally:
        if not bench.keep:
            with suppress(ClientError):
                _each(delete, streams)


def _each(function: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """Call a function for each item, several at a time; the first failure cancels the rest."""
    pool = ThreadPoolExecutor(THREADS)
    try:
        return list(pool.map(function, items))
    finally:
        pool.shutdown(cancel_futures=True)


def _compare(check: Check, acknowledged: int, findings: list[Findings]) -> None:
    """Compare what was read back with what was acknowledged."""
    found = sum(one.found for one in findings)
    torn = sum(one.torn for one in findings)
    check.messages += acknowledged
    # A torn record is not counted as lost too; one that was never acknowledged is one too many.
    check.lost += max(acknowledged - found - torn, sum(one.skipped for one in findings) - torn, 0)
    check.doubled += sum(one.doubled for one in findings) + max(found - acknowledged, 0)
    check.changed += torn + sum(one.misplaced for one in findings)
