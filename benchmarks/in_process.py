"""What the usual requests cost without sockets and disk: python -m benchmarks.in_process [--rounds N]

Sixty-four connections, whose transports keep nothing, get their requests in turn, as in one turn of an event loop; the
log is in memory. With HEADWATER_PURE=1 the same in Python alone. The best round counts: others were interrupted.
"""

import argparse
import asyncio
import gc
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import uvloop

from headwater.cli.composition import open_node
from headwater.compiled import is_compiled
from headwater.http.connection.connection import Connection
from headwater.http.connection.fast.short_path import short_path
from headwater.http.server import Server
from headwater.http.table.endpoints import ENDPOINTS
from headwater.http.table.router import Router
from headwater.settings import Settings

CONNECTIONS = 64
LINES = b"Host: localhost\r\nUser-Agent: in-process/1\r\nAccept: */*\r\n"
BODY = b'{"n":%d,"role":"assistant","text":"' + b"lorem ipsum dolor sit amet, " * 8 + b'"}'
LAST = b"0000000000000000_%015d0" % (9 * len(BODY % 0))
ORIGIN = b"Origin: http://localhost:5173\r\n"
TTL = b"Stream-TTL: 3600\r\n"


class Kind(NamedTuple):
    """A kind of request, and what its streams are created with."""

    make: Callable[[int, int], bytes]
    create: bytes = b""
    reads: bool = False


def path(client: int) -> bytes:
    return b"/v1/stream/client-%d/run" % client


def append(client: int, n: int, lines: bytes = b"", messages: int = 1) -> bytes:
    body = BODY % (n % 10)
    if messages > 1:
        body = b"[%b]" % b",".join([body] * messages)
    length = b"Content-Type: application/json\r\n%bContent-Length: %d\r\n" % (lines, len(body))
    return b"POST %b HTTP/1.1\r\n%b%b\r\n%b" % (path(client), LINES, length, body)


def produce(client: int, n: int, lines: bytes = b"") -> bytes:
    producer = b"Producer-Id: writer-%d\r\nProducer-Epoch: 0\r\nProducer-Seq: %d\r\n" % (client, n)
    return append(client, n, producer + lines)


def read(client: int, n: int, lines: bytes = b"") -> bytes:
    return b"GET %b?offset=%b HTTP/1.1\r\n%b%b\r\n" % (path(client), LAST, LINES, lines)


KINDS = {
    "append JSON with producer headers": Kind(produce),
    "the same, with `Origin`": Kind(partial(produce, lines=ORIGIN)),
    "the same, stream with `Stream-TTL`": Kind(produce, TTL),
    "append JSON": Kind(append),
    "append JSON, with `Origin`": Kind(partial(append, lines=ORIGIN)),
    "append JSON, stream with `Stream-TTL`": Kind(append, TTL),
    "append an array of 4 messages": Kind(partial(append, messages=4)),
    "GET the last message": Kind(read, reads=True),
    "GET, with `Origin`": Kind(partial(read, lines=ORIGIN), reads=True),
    "GET, stream with `Stream-TTL`": Kind(read, TTL, reads=True),
}


class Transport:
    """Counts what is written, and keeps the last of it."""

    def __init__(self) -> None:
        self.count, self.last = 0, b""

    def write(self, data: bytes) -> None:
        self.count, self.last = self.count + 1, data

    def set_write_buffer_limits(self, high: int) -> None: ...

    def get_extra_info(self, name: str) -> Any:
        return "127.0.0.1", 1


async def measure(kind: Kind, rounds: int) -> float:
    """The microseconds of one request."""
    settings = Settings(memory=True)
    node, server = open_node(settings), Server(settings)
    node.start()
    server.serve(node)
    router = Router(ENDPOINTS, server.context.flat_prefixes)
    pairs = [(Connection(server.context, router, short_path(server.context, router)), Transport()) for _ in range(64)]
    for connection, transport in pairs:
        connection.connection_made(transport)  # type: ignore[arg-type]

    async def take(requests: list[bytes]) -> float:
        wanted, began = pairs[-1][1].count + 1, time.perf_counter()
        for (connection, _), request in zip(pairs, requests, strict=True):
            connection.data_received(request)
        while pairs[-1][1].count < wanted:
            await asyncio.sleep(0)
        return time.perf_counter() - began

    create = b"PUT %b HTTP/1.1\r\n%b%bContent-Type: application/json\r\nContent-Length: 0\r\n\r\n"
    await take([create % (path(client), LINES, kind.create) for client in range(CONNECTIONS)])
    if kind.reads:
        for n in range(10):
            await take([append(client, n) for client in range(CONNECTIONS)])
    gc.freeze()
    seconds = [await take([kind.make(client, n) for client in range(CONNECTIONS)]) for n in range(rounds)]
    if not pairs[0][1].last.startswith(b"HTTP/1.1 20"):
        raise SystemExit(f"A request was refused: {pairs[0][1].last[:300]!r}")
    return min(seconds) / CONNECTIONS * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.in_process", description=__doc__)
    parser.add_argument("--rounds", type=int, default=2000)
    rounds = parser.parse_args().rounds
    print(f"| us per request | {'compiled' if is_compiled() else 'in Python alone'} |\n|---|---|")
    for name, kind in KINDS.items():
        print(f"| {name} | {uvloop.run(measure(kind, rounds)):.1f} |")


if __name__ == "__main__":
    main()
