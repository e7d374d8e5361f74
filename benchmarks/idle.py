"""Many idle streams: the memory of each, and how long a server with all of them takes to restart."""

import secrets
import time

from benchmarks.servers import BenchmarkError, Server, Spec
from benchmarks.streams import stem, stream_path
from benchmarks.workloads import Case, Figure, Rig, Sample, Scale
from headwater.load.loads import SENDING_CORES, Load
from headwater.load.sockets import Job, run, share
from headwater.load.sources import Creations

CREATE_CONNECTIONS = 32
CREATE_SECONDS_MAX = 120.0
SETTLE_SECONDS = 2.0
CHECKED_STREAMS = 500


class Idle:
    name = "idle"
    title = "Idle streams"
    figures: tuple[Figure, ...] = (
        Figure("added_mb", "MB added", 1, higher_is_better=False),
        Figure("stream_bytes", "B/stream", 0, higher_is_better=False),
        Figure("creations", "creations/s", 0, higher_is_better=True),
        Figure("stop_seconds", "stop s", 2, higher_is_better=False),
        Figure("start_seconds", "start again s", 2, higher_is_better=False),
    )
    peers: tuple[str, ...] = ("headwater", "headwater-memory", "reference-memory", "reference-file")
    rounds_max = 1

    def cases(self, scale: Scale) -> list[Case]:
        return [Case(f"{scale.idle_streams:,} streams", streams=scale.idle_streams)]

    def suits(self, spec: Spec) -> bool:
        return spec.is_started

    def measure(self, case: Case, server: Server, rig: Rig) -> Sample:
        prefix = f"{server.base}/bench-{secrets.token_hex(4)}"
        before = server.rss_bytes()
        load = create(server, prefix, case.streams, CREATE_SECONDS_MAX)
        time.sleep(SETTLE_SECONDS)
        added = server.rss_bytes() - before
        sample = Sample(
            {"creations": load.rate, "added_mb": added / 1e6, "stream_bytes": added / max(1, load.done)},
            load.problems(),
        )
        if load.done < case.streams:
            sample.problems.append(
                f"only {load.done:,} of {case.streams:,} streams were created within {CREATE_SECONDS_MAX:.0f} s; "
                "memory and restart are for those"
            )
        if server.spec.is_durable and load.done:
            restart(server, prefix, load.done, sample)
        return sample


def create(server: Server, prefix: str, streams: int, seconds: float) -> Load:
    """Create the streams by PUT, in order; give up after so many seconds."""
    counts, target = share(CREATE_CONNECTIONS, SENDING_CORES), server.target
    return run(
        [
            Job(target, [Creations(target, stem(prefix), range(first, streams, len(counts)))] * count, seconds)
            for first, count in enumerate(counts)
        ]
    )


def restart(server: Server, prefix: str, streams: int, sample: Sample) -> None:
    """Stop and start the server; one that fails to start keeps the figures measured so far."""
    sample.values["stop_seconds"] = server.stop()
    try:
        sample.values["start_seconds"] = server.start()
        sample.problems += missing(server, prefix, streams)
    except (BenchmarkError, OSError) as error:
        sample.problems.append(f"the restart failed: {error}")


def missing(server: Server, prefix: str, streams: int) -> list[str]:
    """Check whether some of the streams still exist after the restart."""
    chosen = range(0, streams, max(1, streams // CHECKED_STREAMS))
    with server.client() as client:
        lost = sum(client.send("HEAD", stream_path(prefix, index)).status != 200 for index in chosen)
    return [f"{lost:,} of {len(chosen):,} checked streams were missing after the restart"] if lost else []
