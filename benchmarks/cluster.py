"""What a cluster costs and gives: one process beside three nodes on three NATS servers, all on this machine.

`python -m benchmarks.cluster` lets them take turns, so that a noisy machine affects both equally. All connections go to
one node. The processor time of that node, of a node that only follows, and of the NATS servers is given per append, so
that one can compute what machines of their own would do.
"""

import argparse
import secrets
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple
from urllib.parse import urlsplit

from benchmarks.client import Client
from benchmarks.generators import SocketGenerator
from benchmarks.processes import TICKS_PER_SECOND
from benchmarks.streams import stream_path
from headwater.load import messages
from headwater.testing import running_server
from headwater.testing.clusters import running_cluster

STREAMS = 100
CONNECTIONS = (1, 16, 64, 256)
PAGE = b"x" * 1000


class Site(NamedTuple):
    """Where requests are sent, and the processes by the part they play."""

    address: tuple[str, int]
    pids: dict[str, list[int]]

    def cpu_seconds(self) -> dict[str, float]:
        return {part: sum(map(cpu_seconds, pids)) for part, pids in self.pids.items()}


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND


def address_of(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    return parts.hostname or "127.0.0.1", parts.port or 80


@contextmanager
def one_process() -> Iterator[Site]:
    with tempfile.TemporaryDirectory(dir=Path(__file__).parent) as data, running_server(data=Path(data)) as server:
        yield Site(address_of(server.url), {"accepts": [server.pid]})


@contextmanager
def cluster_of_three() -> Iterator[Site]:
    with tempfile.TemporaryDirectory(dir=Path(__file__).parent) as folder, running_cluster(Path(folder)) as cluster:
        nats = [server.process.pid for server in cluster.nats.servers if server.process is not None]
        first, *others = cluster.nodes
        pids = {"accepts": [first.pid], "a follower": [others[0].pid], "NATS, all three": nats}
        yield Site(address_of(first.url), pids)


SITES: dict[str, Callable[[], AbstractContextManager[Site]]] = {
    "one process": one_process,
    "cluster of three": cluster_of_three,
}


def create(site: Site) -> str:
    prefix = f"/v1/stream/bench-{secrets.token_hex(4)}"
    with Client(site.address, 30.0) as client:
        for index in range(STREAMS):
            client.must("PUT", stream_path(prefix, index), b"", messages.OCTETS)
    return prefix


def measure(site: Site, seconds: float) -> dict[str, float]:
    """Rates, latencies, and microseconds of processor time for a request."""
    found: dict[str, float] = {}
    generator = SocketGenerator()
    for connections in CONNECTIONS:
        prefix, before = create(site), site.cpu_seconds()
        load = generator.append(site.address, prefix, STREAMS, connections, seconds)
        assert not load.problems(), load.problems()
        what = f"appends, {connections} connections"
        found[f"{what}: a second"] = load.rate
        found[f"{what}: p50 ms"] = load.latencies.percentile(0.5) / 1000
        found |= cpu_us(what, site, before, load.rate * seconds)
    path = f"/v1/stream/page-{secrets.token_hex(4)}"
    with Client(site.address, 30.0) as client:
        client.must("PUT", path, PAGE, messages.OCTETS)
    for connections in CONNECTIONS[2:]:
        before = site.cpu_seconds()
        load = generator.read(site.address, path, PAGE, connections, seconds)
        assert not load.problems(), load.problems()
        what = f"GETs, {connections} connections"
        found[f"{what}: a second"] = load.rate
        found |= cpu_us(what, site, before, load.rate * seconds)
    return found


def cpu_us(what: str, site: Site, before: dict[str, float], requests: float) -> dict[str, float]:
    """Microseconds of processor time for a request, by part."""
    used = site.cpu_seconds()
    return {f"{what}: us, {part}": 1e6 * (used[part] - before[part]) / requests for part in used}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0)
    given = parser.parse_args()
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in SITES}
    for _ in range(given.rounds):
        for name, running in SITES.items():
            with running() as site:
                rounds[name].append(measure(site, given.seconds))
    print("| what | " + " | ".join(SITES) + " |\n|---|" + "---|" * len(SITES))
    for what in rounds["cluster of three"][0]:
        cells = [f"{median(one[what] for one in found):,.1f}" if what in found[0] else "" for found in rounds.values()]
        print(f"| {what} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
