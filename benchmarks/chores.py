"""What the chores of a server cost its clients: latencies while it flushes, writes images and compacts, and without.

`python -m benchmarks.chores` lets a server that does no chores and one that does them all the time take turns, under
the same load: appends at a fixed rate, and a prober that sends a HEAD every 5 ms.
"""

import argparse
import secrets
import tempfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from urllib.parse import urlsplit

from benchmarks.client import Client
from benchmarks.pauses import Probe, measure_latencies
from benchmarks.streams import stem, stream_path
from headwater.load import messages
from headwater.load.loads import percentiles
from headwater.load.sockets import Job, work
from headwater.load.sources import Appends
from headwater.load.targets import Target
from headwater.testing import running_server

STREAMS, CONNECTIONS, RATE = 200, 16, 2_000
RECORD_BYTES = 300
SERVERS = {
    "without": ("--image-log-bytes", "4GiB", "--flush-bytes-max", "1GiB"),
    "with": ("--image-log-bytes", "1MiB", "--flush-bytes-max", "2MiB"),
}
SEGMENTS = "headwater_lake_flushed_segments_total"


def measure(flags: tuple[str, ...], seconds: float) -> dict[str, float]:
    """Latencies in milliseconds, and how many chores were done."""
    with tempfile.TemporaryDirectory(dir=Path(__file__).parent) as data, running_server(*flags, data=Path(data)) as one:
        parts = urlsplit(one.url)
        target = Target(parts.hostname or "", parts.port or 80)
        prefix = f"/v1/stream/bench-{secrets.token_hex(4)}"
        with Client((target.host, target.port), 30.0) as client:
            for index in range(STREAMS):
                client.must("PUT", stream_path(prefix, index), b"", messages.OCTETS)
            source = Appends(target, stem(prefix), range(STREAMS), record_bytes=RECORD_BYTES)
            job = Job(target, [source] * CONNECTIONS, seconds, rate=RATE)
            probe = Probe(target, stream_path(prefix, 0), seconds)
            with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
                probing, load = pool.submit(measure_latencies, probe), pool.submit(work, job).result()
                heads = percentiles(probing.result())
            assert not (load.refused or load.broken), "the load was refused"
            lines = client.must("GET", "/metrics").body.decode().splitlines()
        values = {f"HEAD, {name} ms": heads[name] / 1e3 for name in ("p50", "p99", "max")}
        appends = load.latencies.percentiles()
        values |= {f"append, {name} ms": appends[name] / 1e3 for name in ("p50", "p99", "max")}
        flushed = sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(SEGMENTS))
        return values | {"segments written": flushed}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0)
    given = parser.parse_args()
    found: dict[str, list[dict[str, float]]] = {name: [] for name in SERVERS}
    for _ in range(given.rounds):
        for name, flags in SERVERS.items():
            found[name].append(measure(flags, given.seconds))
    print("| | without chores | with chores | ratio |\n|---|---|---|---|")
    for what in found["with"][0]:
        without, busy = (median(one[what] for one in found[name]) for name in SERVERS)
        ratio = f"{busy / without:.2f}" if without else ""
        print(f"| {what} | {without:,.2f} | {busy:,.2f} | {ratio} |")


if __name__ == "__main__":
    main()
