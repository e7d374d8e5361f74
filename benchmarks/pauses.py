"""The longest pause of a server with very many streams, as a light prober sees it during a mixed load."""

import secrets
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

from benchmarks.idle import create
from benchmarks.servers import Server, Spec
from benchmarks.streams import stem, stream_path
from benchmarks.workloads import Case, Figure, Rig, Sample, Scale
from headwater.load import messages
from headwater.load.loads import percentiles
from headwater.load.sockets import Connection, Job, work
from headwater.load.sources import Appends, Mixture
from headwater.load.targets import Target

CREATE_SECONDS_MAX = 600.0
PROBE_PERIOD_NS = 5_000_000
PROBE_ANSWER_SECONDS_MAX = 10.0
LOAD_CONNECTIONS = 16
LOAD_RATE = 2_000
QUIET_SECONDS_MAX = 5.0


class Pauses:
    name = "pauses"
    title = f"Pauses seen by a prober every 5 ms, beside {LOAD_RATE:,} requests/s (4 appends, 1 read)"
    figures: tuple[Figure, ...] = (
        Figure("p50_ms", "p50 ms", 2),
        Figure("p99_ms", "p99 ms", 2),
        Figure("p99.9_ms", "p99.9 ms", 2, higher_is_better=False),
        Figure("max_ms", "longest ms", 2, higher_is_better=False),
        Figure("quiet_max_ms", "longest ms without load", 2),
        Figure("load_rate", "load requests/s", 0),
    )
    peers: tuple[str, ...] = ("headwater", "reference-memory")
    rounds_max = 1

    def cases(self, scale: Scale) -> list[Case]:
        return [Case(f"{scale.paused_streams:,} streams", streams=scale.paused_streams)]

    def suits(self, spec: Spec) -> bool:
        return spec.is_started

    def measure(self, case: Case, server: Server, rig: Rig) -> Sample:
        prefix = f"{server.base}/bench-{secrets.token_hex(4)}"
        creation = create(server, prefix, case.streams, CREATE_SECONDS_MAX)
        probe = Probe(server.target, stream_path(prefix, 0), min(QUIET_SECONDS_MAX, rig.scale.pause_seconds))
        source = Mixture(Appends(server.target, stem(prefix), range(max(1, creation.done))))
        job = Job(server.target, [source] * LOAD_CONNECTIONS, rig.scale.pause_seconds, rate=LOAD_RATE)
        with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
            quiet = percentiles(pool.submit(measure_latencies, probe).result())
            probe.seconds = rig.scale.pause_seconds
            probing = pool.submit(measure_latencies, probe)
            tally = pool.submit(work, job).result()
            loaded = percentiles(probing.result())
        values = {f"{name}_ms": latency_us / 1e3 for name, latency_us in loaded.items()}
        values |= {"quiet_max_ms": quiet["max"] / 1e3, "load_rate": tally.done / tally.seconds}
        sample = Sample(values, creation.problems())
        if creation.done < case.streams:
            sample.problems.append(f"only {creation.done:,} streams were created within {CREATE_SECONDS_MAX:.0f} s")
        if tally.refused or tally.broken:
            sample.problems.append(f"{tally.refused:,} requests of the load were refused, {tally.broken:,} broke")
        return sample


@dataclass(slots=True)
class Probe:
    target: Target
    path: str
    seconds: float


def measure_latencies(probe: Probe) -> list[int]:
    """Send a HEAD each period; return the microseconds from when each was due until it was answered.

    Counted from the due time, a long pause delays every probe that it held up.
    """
    request = messages.request("HEAD", probe.path)
    connection = Connection(probe.target, timeout_seconds=PROBE_ANSWER_SECONDS_MAX)
    latencies_us = []
    began_ns = time.monotonic_ns()
    for turn in range(int(probe.seconds * 1e9) // PROBE_PERIOD_NS):
        due_ns = began_ns + turn * PROBE_PERIOD_NS
        time.sleep(max(0, due_ns - time.monotonic_ns()) / 1e9)
        connection.ask(request, is_head=True)
        latencies_us.append((time.monotonic_ns() - due_ns) // 1000)
    connection.close()
    return latencies_us
