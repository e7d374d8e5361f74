"""Flushes: how fast hot appends become files of the lake, how large they are, and how long the event loop blocks."""

import secrets
import threading
import time
from collections.abc import Iterator
from typing import NamedTuple

from benchmarks import lake
from benchmarks.servers import Server, Spec
from benchmarks.streams import stream_path
from benchmarks.watches import Watch
from benchmarks.workloads import Case, Figure, Rig, Sample, Scale
from headwater.load import messages
from headwater.load.loads import percentiles
from headwater.load.sockets import Connection
from headwater.load.targets import Target

MESSAGE_BYTES = 100
FEW_STREAMS = 1_000
FILL_CONNECTIONS = 4
CHECKED_STREAMS = 200
QUIET_SECONDS = 2.0
PROBE_PERIOD_NS = 5_000_000
PROBE_ANSWER_SECONDS_MAX = 10.0
PROBE_SECONDS_MAX = 300


class Flush:
    name = "flush"
    title = f"One flush to a lake in a folder, messages of {MESSAGE_BYTES} B (no peer has a lake)"
    figures: tuple[Figure, ...] = (
        Figure("appended_mb", "MB appended", 1),
        Figure("appends", "appends/s before it", 0),
        Figure("seconds", "flush s", 2),
        Figure("mb_per_second", "MB/s", 1),
        Figure("rows_per_second", "rows/s", 0),
        Figure("cpu_us", "server CPU us/row", 2),
        Figure("lake_per_byte", "bytes in the lake per byte", 2),
        Figure("disk_per_byte", "bytes on disk per byte, at rest", 2),
        *(Figure(f"{part}_mb", f"of that, MB {part}", 1) for part in ("journal", "images", "lake")),
        *(Figure(f"{key}_ms", f"HEAD during it, {key} ms", 2) for key in ("p50", "p99", "max")),
        Figure("behind_ms", "HEAD during it, most ms behind schedule", 2),
        Figure("quiet_max_ms", "HEAD before it, max ms", 2),
    )
    peers: tuple[str, ...] = ("headwater",)
    rounds_max = 3

    def cases(self, scale: Scale) -> list[Case]:
        messages_each = scale.flush_mb * 1_000_000 // MESSAGE_BYTES // FEW_STREAMS
        return [
            Case(f"{FEW_STREAMS:,} streams, {messages_each:,} messages each", FEW_STREAMS, messages=messages_each),
            Case(f"{scale.flush_streams:,} streams, 1 message each", scale.flush_streams, messages=1),
        ]

    def suits(self, spec: Spec) -> bool:
        return lake.has_lake(spec)

    def measure(self, case: Case, server: Server, rig: Rig) -> Sample:
        prefix, size = f"{server.base}/bench-{secrets.token_hex(4)}", case.messages * MESSAGE_BYTES
        filling = lake.fill(server, [appends(prefix, first, case, size) for first in range(FILL_CONNECTIONS)])
        sample = Sample(notes=filling.notes())
        appended, rows = case.streams * size, case.streams * case.messages
        if lake.status(server)["hot_bytes"] < appended:
            sample.problems.append("the server flushed part of it before the measured flush; append less")
        prober = Prober(server.target, stream_path(prefix, 0))
        time.sleep(QUIET_SECONDS)
        quiet, watch = prober.seen(), Watch(server)
        seconds = lake.flush(server)
        cpu_seconds, foreign_share = watch.server_seconds(), watch.foreign_share(0.0)
        seen = prober.stop()[len(quiet) :]
        sample.values |= {
            "appended_mb": appended / 1e6,
            "appends": rows / filling.seconds,
            "seconds": seconds,
            "mb_per_second": appended / seconds / 1e6,
            "rows_per_second": rows / seconds,
            "cpu_us": cpu_seconds / rows * 1e6,
            "foreign_share": foreign_share,
            "lake_per_byte": lake.status(server)["lake"]["bytes"] / appended,
            "quiet_max_ms": max(probe.answer_us for probe in quiet) / 1e3,
            "behind_ms": max(probe.behind_us for probe in seen) / 1e3,
        }
        answers_us = percentiles([probe.answer_us for probe in seen])
        sample.values |= {f"{key}_ms": us / 1e3 for key, us in answers_us.items()}
        sample.notes += lake.settle(server)
        sizes = lake.disk_bytes(server)
        sample.values |= {f"{part}_mb": size / 1e6 for part, size in sizes.items()}
        sample.values["disk_per_byte"] = sum(sizes.values()) / appended
        reader = lake.Reader(server, prefix, size)
        for index in range(0, case.streams, max(1, case.streams // CHECKED_STREAMS)):
            reader.read(index)
        sample.problems += reader.close()
        return sample


def appends(prefix: str, first: int, case: Case, size: int) -> Iterator[bytes]:
    """Create one connection's share of the streams, and append to them in turn."""
    indexes = range(first, case.streams, FILL_CONNECTIONS)
    if case.messages == 1:
        yield from lake.creations(prefix, indexes, size)
        return
    paths = [stream_path(prefix, index) for index in indexes]
    bodies = [lake.content(index, size) for index in indexes]
    for path in paths:
        yield messages.request("PUT", path, b"", messages.TEXT)
    for at in range(0, size, MESSAGE_BYTES):
        for path, body in zip(paths, bodies, strict=True):
            yield messages.request("POST", path, body[at : at + MESSAGE_BYTES], messages.TEXT)


class Probe(NamedTuple):
    """How long the response took, and how long after its due time the probe was complete.

    A probe that starts late because the previous response was late does not count as slow, but it is behind schedule.
    """

    answer_us: int
    behind_us: int


class Prober:
    """A thread that sends a HEAD each period until it is stopped; the main thread only waits."""

    def __init__(self, target: Target, path: str) -> None:
        self._connection = Connection(target, timeout_seconds=PROBE_ANSWER_SECONDS_MAX)
        self._request = messages.request("HEAD", path)
        self._probes: list[Probe] = []
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def seen(self) -> list[Probe]:
        return list(self._probes)

    def stop(self) -> list[Probe]:
        self._stopped.set()
        self._thread.join(PROBE_ANSWER_SECONDS_MAX)
        self._connection.close()
        return self.seen()

    def _run(self) -> None:
        began_ns = time.monotonic_ns()
        for turn in range(PROBE_SECONDS_MAX * 1_000_000_000 // PROBE_PERIOD_NS):
            due_ns = began_ns + turn * PROBE_PERIOD_NS
            if self._stopped.wait(max(0, due_ns - time.monotonic_ns()) / 1e9):
                return
            sent_ns = time.monotonic_ns()
            self._connection.ask(self._request, is_head=True)
            now_ns = time.monotonic_ns()
            self._probes.append(Probe((now_ns - sent_ns) // 1000, (now_ns - due_ns) // 1000))
