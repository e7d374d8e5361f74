"""What `--workers N` gains and costs: rates, and processor time per request in each kind of process.

`python -m benchmarks.workers` compares one process with N workers, in turn, so that a noisy machine affects both
equally. The rates are those of a machine whose cores also run the load generator: compare them with care where cores
are few. The processor times are measured with all connections at one worker, so that the cost of accepting an append
and that of applying another worker's can be told apart; they predict what more cores would do.
"""

import argparse
import asyncio
import secrets
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import msgspec

from benchmarks.client import Client
from benchmarks.generators import SocketGenerator
from benchmarks.processes import TICKS_PER_SECOND
from benchmarks.streams import stream_path
from headwater.load import messages
from headwater.testing import RunningServer, running_server

STREAMS = 100
CONNECTIONS = (64, 256)
PAGE = b"x" * 1000
ONE = "one process"
SENT = 32
"""How many connections append where processor time is measured."""


class Site(NamedTuple):
    """A running server and its processes by name."""

    server: RunningServer
    runtime: Path
    pids: dict[str, int]

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.server.url.removeprefix("http://").rpartition(":")
        return host, int(port)


@contextmanager
def running(workers: int) -> Iterator[Site]:
    """A server with an empty directory beside this file's: on a disk, not in memory."""
    with (
        tempfile.TemporaryDirectory(dir=Path(__file__).parent) as data,
        tempfile.TemporaryDirectory(dir="/tmp", prefix="b") as runtime,
        running_server("--workers", str(workers), data=Path(data), env={"TMPDIR": runtime}) as server,
    ):
        host, _, port = server.url.removeprefix("http://").rpartition(":")
        with Client((host, int(port)), 30.0) as client:
            status = msgspec.json.decode(client.read("/__headwater/status"))
        pids = {one["name"]: one["pid"] for one in status["processes"]}
        yield Site(server, Path(runtime), pids)


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND


def create(site: Site) -> str:
    prefix = f"/v1/stream/bench-{secrets.token_hex(4)}"
    with Client(site.address, 30.0) as client:
        for index in range(STREAMS):
            client.must("PUT", stream_path(prefix, index), b"", messages.OCTETS)
    return prefix


def rates(site: Site, seconds: float) -> dict[str, float]:
    """Requests in a second, by what they are."""
    found, generator = {}, SocketGenerator()
    for connections in CONNECTIONS:
        load = generator.append(site.address, create(site), STREAMS, connections, seconds)
        assert not load.problems(), load.problems()
        found[f"appends/s, {connections} connections"] = load.rate
    with Client(site.address, 30.0) as client:
        client.must("PUT", "/v1/stream/page", PAGE, messages.OCTETS)
    for connections in CONNECTIONS:
        load = generator.read(site.address, "/v1/stream/page", PAGE, connections, seconds)
        assert not load.problems(), load.problems()
        found[f"GETs/s, {connections} connections"] = load.rate
    return found


# -- Processor time per append, by role --------------------------------------------------------------------------------


def open_connections(site: Site, worker: str) -> int:
    """How many connections one worker has, by its own account."""
    [path] = site.runtime.glob(f"headwater-*/{worker}")
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(path))
        sock.sendall(b"facts\n")
        data = b"".join(iter(lambda: sock.recv(1 << 20), b""))
    facts: dict[str, Any] = msgspec.msgpack.decode(data)
    count = facts["status"]["connections"]
    assert isinstance(count, int)
    return count


def connect(site: Site, worker: str | None) -> list[socket.socket]:
    """Connections to one worker, or to the only process."""
    kept: list[socket.socket] = []
    while len(kept) < SENT:
        before = 0 if worker is None else open_connections(site, worker)
        sock = socket.create_connection(site.address)
        sock.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert sock.recv(4096).startswith(b"HTTP/1.1 200")
        if worker is None or open_connections(site, worker) > before:
            kept.append(sock)
        else:
            sock.close()
            time.sleep(0.01)
    return kept


async def append(sock: socket.socket, request: bytes, until: float) -> int:
    """Append over one connection, one request after another; how many there were."""
    loop, count = asyncio.get_running_loop(), 0
    sock.setblocking(False)
    while time.monotonic() < until:
        await loop.sock_sendall(sock, request)
        answer = await loop.sock_recv(sock, 4096)
        assert answer.startswith(b"HTTP/1.1 204"), answer
        count += 1
    return count


def costs(site: Site, seconds: float) -> dict[str, float]:
    """Microseconds of processor time for one append, by what a process has to do with it."""
    prefix, alone = create(site), "w0" not in site.pids
    socks = connect(site, None if alone else "w0")
    lines = ("POST {} HTTP/1.1", "Host: localhost", f"Content-Type: {messages.OCTETS}", "Content-Length: 100", "", "")
    head = "\r\n".join(lines)
    requests = [head.format(stream_path(prefix, index)).encode() + b"x" * 100 for index in range(STREAMS)]

    async def all_of_them() -> int:
        until = time.monotonic() + seconds
        return sum(await asyncio.gather(*(append(sock, requests[at], until) for at, sock in enumerate(socks))))

    before = {name: cpu_seconds(pid) for name, pid in site.pids.items()}
    count = asyncio.run(all_of_them())
    used = {name: (cpu_seconds(pid) - before[name]) / count * 1e6 for name, pid in site.pids.items()}
    for sock in socks:
        sock.close()
    if alone:
        return {"CPU us/append, where it is accepted": sum(used.values())}
    return {
        "CPU us/append, where it is accepted": used["w0"],
        "CPU us/append, in each other worker": used["w1"],
        "CPU us/append, in the sequencer": used["sequencer"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0)
    chosen = parser.parse_args()
    many = f"{chosen.workers} workers"
    found: dict[str, dict[str, list[float]]] = {}
    for _ in range(chosen.rounds):
        for name, workers in ((ONE, 1), (many, chosen.workers)):
            with running(workers) as site:
                figures = rates(site, chosen.seconds) | costs(site, chosen.seconds)
            for figure, value in figures.items():
                found.setdefault(figure, {ONE: [], many: []})[name].append(value)
    print(f"{'':<40}{ONE:>14}{many:>14}")
    for figure, values in found.items():
        cells = [f"{median(values[name]):,.1f}" if values[name] else "" for name in (ONE, many)]
        print(f"{figure:<40}{cells[0]:>14}{cells[1]:>14}")


if __name__ == "__main__":
    main()
