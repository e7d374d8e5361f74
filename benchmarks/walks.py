"""The walk of one request through the code: python -m benchmarks.walks

Counts the modules of this package that a request enters, and how often a call leads from one top-level package to
another, on a server without compiled modules. A reader who follows the request opens as many files, and changes the
floor as often. The first request of a kind fills caches, so the second one is counted.
"""

import os

os.environ["HEADWATER_PURE"] = "1"

import asyncio
import sys
import tempfile
import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar

import httpx2

import headwater
from benchmarks.in_process import LINES
from headwater.cli.composition import open_node
from headwater.http.connection.connection import Connection
from headwater.http.server import Server
from headwater.http.table.endpoints import ENDPOINTS
from headwater.http.table.router import Router
from headwater.settings import Settings
from headwater.spark.options.source import parse_source
from headwater.spark.source.source import BatchReader
from headwater.testing import running_server
from headwater.testing.nats import running_nats

ROOT = str(Path(headwater.__file__).parent) + "/"
NAME = b"/v1/stream/walk-%d"
JSON = b"Content-Type: application/json\r\n"


class Walk:
    """The modules that are entered while it is open, in their order on each thread."""

    open: ClassVar["Walk | None"] = None

    def __init__(self) -> None:
        self.steps: dict[int, list[str]] = {}

    def __enter__(self) -> "Walk":
        Walk.open = self
        return self

    def __exit__(self, *_: object) -> None:
        Walk.open = None

    def enter(self, module: str) -> None:
        steps = self.steps.setdefault(threading.get_ident(), [])
        if not steps or steps[-1] != module:
            steps.append(module)

    @property
    def files(self) -> int:
        return len({module for steps in self.steps.values() for module in steps})

    @property
    def crossings(self) -> int:
        floors = [[module.split("/")[0] for module in steps] for steps in self.steps.values()]
        return sum(one != other for steps in floors for one, other in pairwise(steps))


def note(frame: FrameType, event: str, _: Any) -> None:
    file = frame.f_code.co_filename
    if event == "call" and Walk.open is not None and file.startswith(ROOT):
        Walk.open.enter(file[len(ROOT) :])


def request(method: bytes, path: bytes, lines: bytes = b"", body: bytes = b"") -> bytes:
    length = b"Content-Length: %d\r\n" % len(body) if method in (b"POST", b"PUT") else b""
    return b"%b %b HTTP/1.1\r\n%b%b%b\r\n%b" % (method, path, LINES, lines, length, body)


def append(n: int) -> bytes:
    return request(b"POST", NAME % n, JSON, b'{"n":1}')


WALKS: dict[str, Callable[[int], bytes]] = {
    "append": append,
    "read": lambda n: request(b"GET", NAME % n + b"?offset=-1"),
    "SSE begins": lambda n: request(b"GET", NAME % n + b"?offset=-1&live=sse"),
    "fork": lambda n: request(b"PUT", b"/v1/stream/fork-%d" % n, JSON + b"Stream-Forked-From: " + NAME % n + b"\r\n"),
    "flush": lambda n: request(b"POST", b"/__headwater/flush"),
}


async def measure(settings: Settings, walks: dict[str, Callable[[int], bytes]]) -> None:
    """Serve from this process, and print the walk of each request."""
    node, server = open_node(settings), Server(settings)
    node.start()
    server.serve(node)
    router = Router(ENDPOINTS, server.context.flat_prefixes)
    listener = await asyncio.get_running_loop().create_server(
        lambda: Connection(server.context, router, None), "127.0.0.1", 0
    )
    port = listener.sockets[0].getsockname()[1]

    async def ask(data: bytes) -> tuple[bytes, Walk]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.sleep(0.01)  # The server has accepted it.
        with Walk() as walk:
            writer.write(data)
            answer = await reader.read(65536)
        writer.close()
        return answer, walk

    async def take(data: bytes) -> Walk:
        answer, walk = await ask(data)
        if not answer.startswith(b"HTTP/1.1 20"):
            raise SystemExit(f"A request was refused: {answer[:300]!r}")
        return walk

    async with asyncio.timeout(30):
        while b" 503 " in (await ask(request(b"GET", b"/readyz")))[0]:
            await asyncio.sleep(0.05)
    for name, make in walks.items():
        for n in (1, 2):
            if "append" in name:
                await take(request(b"PUT", NAME % n, JSON))
            else:
                await take(append(n))
            walk = await take(make(n))
        show(name, walk)


def measure_batch(url: str) -> None:
    """Plan and read a batch as Spark's driver and one task do; the server is another process."""
    with httpx2.Client(base_url=url, headers={"Content-Type": "application/json"}) as client:
        client.put("/v1/stream/walk", content="[1]").raise_for_status()
    for _ in range(2):
        with Walk() as walk:
            reader = BatchReader(parse_source({"url": url, "streams": "_default/walk"}))
            rows = [row for partition in reader.partitions() for row in reader.read(partition)]
        assert rows
    show("Spark batch", walk)


def show(name: str, walk: Walk) -> None:
    print(f"| {name} | {walk.files} | {walk.crossings} |", flush=True)
    if "--list" in sys.argv:
        print("\n".join(f"  {step}" for steps in walk.steps.values() for step in steps))


def main() -> None:
    threading.setprofile(note)
    sys.setprofile(note)
    print("| walk | files | crossings |\n|---|---|---|")
    with tempfile.TemporaryDirectory() as data, running_nats() as nats, running_server() as server:
        asyncio.run(measure(Settings(data=data), WALKS))
        lake = str(Path(data) / "shared")
        clustered = Settings(cluster=nats.url, cluster_log_bytes=256 << 20, lake=lake, node="n1")
        asyncio.run(measure(clustered, {"cluster append": append}))
        measure_batch(server.url)


if __name__ == "__main__":
    main()
