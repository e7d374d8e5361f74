"""A server with a long history: how long it takes to start, how much memory it uses, and how much disk space."""

import random
import secrets
import time

from benchmarks import lake
from benchmarks.servers import Server, Spec
from benchmarks.watches import Watch
from benchmarks.workloads import Case, Figure, Rig, Sample, Scale
from headwater.load.loads import percentiles

STREAM_BYTES = 1_000
FILL_CONNECTIONS = 4
COLD_READS = 200
SEED = 1


class History:
    name = "history"
    title = f"Start with history in the lake, {STREAM_BYTES:,} B in each stream (no peer has a lake)"
    figures: tuple[Figure, ...] = (
        Figure("history_mb", "MB of history", 0),
        Figure("creations", "creations/s, flushes included", 0),
        Figure("flush_seconds", "s of the last flush", 2),
        Figure("filled_mb", "MB resident before the restart", 0),
        Figure("stop_seconds", "stop s", 2),
        Figure("start_seconds", "start again s", 2),
        Figure("start_cpu_seconds", "CPU s of the start", 2),
        Figure("resident_mb", "MB resident after it", 0),
        Figure("stream_bytes", "B/stream in memory", 0),
        *(Figure(f"{part}_mb", f"MB on disk, {part}", 0) for part in ("journal", "images", "lake")),
        Figure("image_mb", "MB of one image", 0),
        Figure("segments", "segments in the lake", 0),
        Figure("lake_per_byte", "bytes in the lake per byte", 2),
        *(Figure(f"{key}_ms", f"random cold reads, {key} ms", 2) for key in ("p50", "p99", "max")),
    )
    peers: tuple[str, ...] = ("headwater",)
    rounds_max = 1

    def cases(self, scale: Scale) -> list[Case]:
        return [Case(f"{scale.history_streams:,} streams", streams=scale.history_streams)]

    def suits(self, spec: Spec) -> bool:
        return lake.has_lake(spec)

    def measure(self, case: Case, server: Server, rig: Rig) -> Sample:
        prefix, empty_bytes = f"{server.base}/bench-{secrets.token_hex(4)}", server.rss_bytes()
        shares = [range(first, case.streams, FILL_CONNECTIONS) for first in range(FILL_CONNECTIONS)]
        watch, began_cpu = Watch(server), time.process_time()
        filling = lake.fill(server, [lake.creations(prefix, indexes, STREAM_BYTES) for indexes in shares])
        foreign_share = watch.foreign_share(time.process_time() - began_cpu)
        sample = Sample(notes=filling.notes())
        sample.values["flush_seconds"] = lake.flush(server)
        sample.notes += lake.settle(server)
        known = lake.status(server)["lake"]
        sample.values |= {
            "foreign_share": foreign_share,
            "history_mb": case.streams * STREAM_BYTES / 1e6,
            "creations": case.streams / filling.seconds,
            "filled_mb": server.rss_bytes() / 1e6,
            "segments": known["segments"],
            "lake_per_byte": known["bytes"] / case.streams / STREAM_BYTES,
        }
        sample.values["stop_seconds"] = server.stop()
        sample.values |= {f"{part}_mb": size / 1e6 for part, size in lake.disk_bytes(server).items()}
        images = [path.stat().st_size for path in lake.files(server.place / "data" / "images")]
        sample.values["image_mb"] = max(images, default=0) / 1e6
        sample.values["start_seconds"] = server.start()
        resident_bytes = server.rss_bytes()
        sample.values |= {
            "start_cpu_seconds": server.cpu_seconds(),
            "resident_mb": resident_bytes / 1e6,
            "stream_bytes": (resident_bytes - empty_bytes) / case.streams,
        }
        if lake.status(server)["streams"] != case.streams:
            sample.problems.append(f"{lake.status(server)['streams']:,} streams were there after the restart")
        read_some(case, server, prefix, sample)
        return sample


def read_some(case: Case, server: Server, prefix: str, sample: Sample) -> None:
    reader, choice = lake.Reader(server, prefix, STREAM_BYTES), random.Random(SEED)
    latencies_us = [reader.read(choice.randrange(case.streams)) for _ in range(COLD_READS)]
    sample.values |= {f"{key}_ms": us / 1e3 for key, us in percentiles(latencies_us).items()}
    sample.problems += reader.close()
