"""The memory that a server needs for each idle connection, SSE reader, hot append and idle stream.

`python -m benchmarks.memory` starts one server, adds many of each in turn, and divides the growth of its resident
memory by their number. Readers come last: those that do not read would hold what is appended.
"""

import argparse
import resource
import socket
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.client import Client
from benchmarks.processes import rss_bytes
from headwater.load import messages
from headwater.testing import running_server

SETTLE_SECONDS = 1.0
WARM = 2_000
MESSAGE = b'{"text":"%b"}' % (b"x" * 180)


class Site:
    """A running server and the connections to it."""

    def __init__(self, pid: int, address: tuple[str, int], stack: ExitStack) -> None:
        self._pid, self._address, self._stack = pid, address, stack
        self._client = stack.enter_context(Client(address, 60.0))

    def rss_bytes(self) -> int:
        time.sleep(SETTLE_SECONDS)
        return rss_bytes(self._pid)

    def connect(self, request: bytes) -> None:
        """Open a connection that stays, and read the beginning of the response to its only request."""
        connection = self._stack.enter_context(socket.create_connection(self._address, 60.0))
        connection.sendall(request)
        assert connection.recv(65_536).startswith(b"HTTP/1.1 2"), "the server refused a request"

    def create(self, name: str) -> None:
        self._client.must("PUT", f"/v1/stream/{name}", b"", "application/json")

    def append(self, sequence: int) -> None:
        producer = {"Producer-Id": "producer-with-a-name", "Producer-Epoch": "0", "Producer-Seq": str(sequence)}
        headers = {"Content-Type": "application/json"} | producer
        self._client.connection.request("POST", "/v1/stream/memory/hot", MESSAGE, headers)
        response = self._client.connection.getresponse()
        response.read()
        assert response.status == 200, "the server refused an append"


def measure(site: Site, connections: int, readers: int, count: int) -> dict[str, float]:
    """Bytes of resident memory for one of each."""
    site.create("memory/hot")
    for number in range(WARM):
        site.append(number)
        site.create(f"warm/{number}")
    head = messages.request("HEAD", "/v1/stream/memory/hot")
    sse = messages.request("GET", "/v1/stream/memory/hot?offset=now&live=sse")

    def grown(action: Callable[[int], None], times: int) -> float:
        before = site.rss_bytes()
        for number in range(times):
            action(number)
        return (site.rss_bytes() - before) / times

    return {
        "hot append, beside its payload": grown(lambda number: site.append(WARM + number), count) - len(MESSAGE),
        "idle stream": grown(lambda number: site.create(f"idle/{number}"), count),
        "idle connection": grown(lambda _: site.connect(head), connections),
        "SSE reader": grown(lambda _: site.connect(sse), readers),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connections", type=int, default=2_000)
    parser.add_argument("--readers", type=int, default=1_000)
    parser.add_argument("--count", type=int, default=20_000, help="how many hot appends and idle streams")
    given = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with tempfile.TemporaryDirectory(dir=Path(__file__).parent) as data, ExitStack() as stack:
        server = stack.enter_context(running_server("--idle-seconds", "600", data=Path(data)))
        parts = urlsplit(server.url)
        site = Site(server.pid, (parts.hostname or "", parts.port or 80), stack)
        found = measure(site, given.connections, given.readers, given.count)
    print("| resident memory | bytes |\n|---|---|")
    for what, size in found.items():
        print(f"| {what} | {size:,.0f} |")


if __name__ == "__main__":
    main()
