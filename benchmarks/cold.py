"""Reads of history from the lake: the first read, many reads of the same page, and one stream among very many."""

import random
import secrets
import time
from statistics import median

from benchmarks import lake
from benchmarks.lake import Reader
from benchmarks.servers import Server, Spec
from benchmarks.streams import stream_path
from benchmarks.watches import Watch
from benchmarks.workloads import Case, Figure, Rig, Sample, Scale
from headwater.load.loads import SENDING_CORES, percentiles
from headwater.load.sockets import Job, run, share
from headwater.load.sources import Reads

STREAM_BYTES = 1_000_000
SMALL_BYTES = 4_000
CONNECTIONS = 16
FILL_CONNECTIONS = 4
# Together they exceed the server's page cache and fit into its cache of decoded row groups: reading them in turn is
# served from memory or from row groups, but never from a cached page.
STREAMS = 40
PASSES = 5
REPLAY_SECONDS_MAX = 60.0
SEED = 1


class Cold:
    name = "cold"
    title = "Reads from the lake, in a folder (no peer has one)"
    figures: tuple[Figure, ...] = (
        Figure("first_ms", "first read after a start, ms", 2),
        Figure("hot_ms", f"{STREAMS} in turn, hot: median ms", 2),
        Figure("cold_ms", f"{STREAMS} in turn, cold, nothing cached: median ms", 2),
        Figure("again_ms", f"{STREAMS} in turn, cold, row groups cached: median ms", 2),
        Figure("hot_cpu_us", "hot: server CPU us/read", 0),
        Figure("cold_cpu_us", "cold, nothing cached: server CPU us/read", 0),
        Figure("again_cpu_us", "cold, row groups cached: server CPU us/read", 0),
        Figure("hot_rate", f"the same page, hot: reads/s, {CONNECTIONS} conn.", 0),
        Figure("cold_rate", f"the same page, cold: reads/s, {CONNECTIONS} conn.", 0),
        Figure("cold_mb_per_second", "the same page, cold: MB/s", 0),
        Figure("hot_per_cold", "the same page, hot / cold (reads/s)", 2),
        *(Figure(f"{key}_ms", f"{key} ms", 2) for key in ("p50", "p99", "max")),
        Figure("reads", "reads measured", 0),
        Figure("cpu_us", "server CPU us/read", 0),
        Figure("reads_of_store", "object store reads per read", 2),
        Figure("hot_seconds", "hot: seconds for all", 2),
        Figure("cold_seconds", "cold: seconds for all", 2),
        Figure("seconds_ratio", "hot / cold (time)", 2),
        Figure("replay_mb_per_second", "cold: MB/s", 0),
        Figure("store_reads", "object store reads for all of them", 0),
    )
    peers: tuple[str, ...] = ("headwater",)
    rounds_max = 3

    def cases(self, scale: Scale) -> list[Case]:
        among = f"4 KB, among {scale.cold_streams:,} streams, 1 conn."
        return [
            Case("1 MB of 1 KB messages", body_bytes=1_000),
            Case("1 MB of 100 B messages", body_bytes=100),
            Case(among, streams=scale.cold_streams),
            Case(f"1 MB, {scale.replays:,} at once", body_bytes=1_000, readers=scale.replays),
        ]

    def suits(self, spec: Spec) -> bool:
        return lake.has_lake(spec)

    def measure(self, case: Case, server: Server, rig: Rig) -> Sample:
        prefix = f"{server.base}/bench-{secrets.token_hex(4)}"
        if case.readers:
            return replay(case, server, prefix)
        return among_others(case, server, prefix, rig) if case.streams > 1 else catch_up(case, server, prefix, rig)


# -- One large stream -------------------------------------------------------------------------------------------------


def catch_up(case: Case, server: Server, prefix: str, rig: Rig) -> Sample:
    streams = range(STREAMS)
    filling = lake.fill(server, [lake.stream_of(prefix, index, STREAM_BYTES, case.body_bytes) for index in streams])
    sample = Sample(notes=filling.notes())
    read_in_turn(server, prefix, PASSES, "hot", sample)
    load(server, prefix, rig, "hot", sample)
    lake.chill(server)
    sample.values["first_ms"] = read_in_turn(server, prefix, 1, "cold", sample)[0] / 1e3
    read_in_turn(server, prefix, PASSES, "again", sample)
    load(server, prefix, rig, "cold", sample)
    if sample.values.get("cold_rate"):
        sample.values["hot_per_cold"] = sample.values["hot_rate"] / sample.values["cold_rate"]
    return sample


def read_in_turn(server: Server, prefix: str, passes: int, kind: str, sample: Sample) -> list[int]:
    """Read the streams in turn, `passes` times."""
    reader = Reader(server, prefix, STREAM_BYTES)
    began = lake.metric(server, "process_cpu_seconds_total")
    latencies_us = [reader.read(index) for _ in range(passes) for index in range(STREAMS)]
    used_seconds = lake.metric(server, "process_cpu_seconds_total") - began
    sample.values[f"{kind}_ms"] = median(latencies_us) / 1e3
    sample.values[f"{kind}_cpu_us"] = used_seconds / len(latencies_us) * 1e6
    sample.problems += reader.close()
    return latencies_us


def load(server: Server, prefix: str, rig: Rig, kind: str, sample: Sample) -> None:
    """Read one stream repeatedly."""
    path, body = stream_path(prefix, 0), lake.content(0, STREAM_BYTES)
    rig.generator.read(server.address, path, body, CONNECTIONS, rig.scale.warm_seconds)
    watch = Watch(server)
    done = rig.generator.read(server.address, path, body, CONNECTIONS, rig.scale.seconds)
    sample.values |= {
        f"{kind}_rate": done.rate,
        f"{kind}_mb_per_second": done.rate * STREAM_BYTES / 1e6,
    }
    share = watch.foreign_share(done.cpu_seconds)
    sample.values["foreign_share"] = max(sample.values.get("foreign_share", 0.0), share)
    sample.problems += done.problems()


# -- One small stream among many --------------------------------------------------------------------------------------


def among_others(case: Case, server: Server, prefix: str, rig: Rig) -> Sample:
    shares = [range(first, case.streams, FILL_CONNECTIONS) for first in range(FILL_CONNECTIONS)]
    filling = lake.fill(server, [lake.creations(prefix, indexes, SMALL_BYTES) for indexes in shares])
    lake.chill(server)
    reader, choice = Reader(server, prefix, SMALL_BYTES), random.Random(SEED)
    watch, began_cpu, latencies_us = Watch(server), time.process_time(), []
    end = time.monotonic() + rig.scale.seconds
    while time.monotonic() < end:
        latencies_us.append(reader.read(choice.randrange(case.streams)))
    sample = Sample({f"{key}_ms": us / 1e3 for key, us in percentiles(latencies_us).items()}, notes=filling.notes())
    sample.values |= {
        "first_ms": latencies_us[0] / 1e3,
        "reads": len(latencies_us),
        "cpu_us": watch.server_seconds() / len(latencies_us) * 1e6,
        "reads_of_store": lake.store_reads(server) / len(latencies_us),
        "foreign_share": watch.foreign_share(time.process_time() - began_cpu),
    }
    sample.problems += reader.close()
    return sample


# -- All clients at once ----------------------------------------------------------------------------------------------


def replay(case: Case, server: Server, prefix: str) -> Sample:
    filling = lake.fill(server, [lake.stream_of(prefix, 0, STREAM_BYTES, case.body_bytes)])
    sample = Sample(notes=filling.notes())
    sample.values["hot_seconds"] = replay_once(case, server, prefix, sample)
    lake.chill(server)
    seconds = replay_once(case, server, prefix, sample)
    sample.values |= {
        "cold_seconds": seconds,
        "seconds_ratio": sample.values["hot_seconds"] / seconds,
        "replay_mb_per_second": case.readers * STREAM_BYTES / seconds / 1e6,
        "store_reads": lake.store_reads(server),
    }
    return sample


def replay_once(case: Case, server: Server, prefix: str, sample: Sample) -> float:
    """Let all clients read the stream once at the same time, and compare every body."""
    path, body = stream_path(prefix, 0), lake.content(0, STREAM_BYTES)
    counts = share(case.readers, SENDING_CORES)
    request = server.target.request("GET", f"{path}?offset=-1")
    watch = Watch(server)
    done = run([Job(server.target, [Reads(request, body, left=count)] * count, REPLAY_SECONDS_MAX) for count in counts])
    sample.problems += done.problems()
    if done.done < case.readers:
        sample.problems.append(f"only {done.done:,} of {case.readers:,} clients received the stream")
    sample.values["foreign_share"] = watch.foreign_share(done.cpu_seconds)
    return done.seconds
