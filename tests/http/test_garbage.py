"""What a connection leaves behind: nothing that only the garbage collector could free.

The collector visits an object once or twice and never again (`cli/serve.py`), so whatever ends in a reference cycle
would stay for as long as the server runs.
"""

import asyncio
import gc
import json
import time
from collections.abc import Callable
from contextlib import suppress

import pytest
import uvloop

from headwater.http.server import Server
from headwater.settings import Settings

from ..node.lake.lakes import Bench, bench
from .processes import eventually
from .sockets import Wire, request

MIB = 1024 * 1024
TEXT = {"Content-Type": "text/plain"}
FLAT, STREAM = "/v1/stream/shop/s", "/shop/s"
ROUNDS = 3

Client = Callable[[str], None]


def garbage_of(client: Client) -> list[object]:
    """What only the collector could free after some rounds of a client that comes and goes."""

    async def run() -> list[object]:
        async with bench() as node:
            server = Server(Settings(port=0))
            url = await server.listen()
            server.serve(node.node)
            in_thread = asyncio.get_running_loop().run_in_executor
            try:
                await in_thread(None, prepare, url, node)
                assert await in_thread(None, eventually, lambda: not server.connections)
                gc.collect()
                gc.disable()
                for _ in range(ROUNDS):
                    await in_thread(None, client, url)
                    assert await in_thread(None, eventually, lambda: not server.connections)
                    assert await in_thread(None, eventually, lambda: not node.node.tails.count)
                await asyncio.sleep(0.1)
                gc.set_debug(gc.DEBUG_SAVEALL)
                gc.collect()
                return list(gc.garbage)
            finally:
                gc.set_debug(0)
                gc.garbage.clear()
                gc.enable()
                await server.drain()

    found = uvloop.run(run())
    return [one for one in found if is_ours(type(one))]


def is_ours(kind: type) -> bool:
    return kind.__module__.startswith("headwater.") or kind.__name__ in {"Task", "HttpRequestParser", "async_generator"}


def prepare(url: str, node: Bench) -> None:
    """A stream with a snapshot, and as much after it as does not fit into the buffers of a socket."""
    with Wire(url) as wire:
        assert wire.ask("PUT", "/shop").status == 201
        assert wire.ask("PUT", FLAT, TEXT, b"a").status == 201
        offset = wire.ask("HEAD", FLAT).next_offset
        assert wire.ask("PUT", f"{STREAM}/snapshot/{offset}", TEXT, bytes(100_000)).status == 204
        for _ in range(10):
            assert wire.ask("POST", FLAT, TEXT, bytes(MIB)).status == 204


def poll(offset: str = "now") -> bytes:
    return request("GET", f"{FLAT}?offset={offset}&live=long-poll&timeout_ms=60000")


def asks(*data: bytes, answers: int = 0, rest: bool = False) -> Client:
    """A client that sends something, reads some answers or everything, and leaves."""

    def client(url: str) -> None:
        with Wire(url) as wire:
            for piece in data:
                wire.send(piece)
                time.sleep(0.02)
            for _ in range(answers):
                wire.receive()
            if rest:
                wire.rest()

    return client


def reads_no_answer(data: bytes) -> Client:
    """A client that leaves while the answer does not fit into its socket."""

    def client(url: str) -> None:
        with Wire(url, receive_buffer_bytes=4096) as wire:
            wire.send(data)
            wire.receive_head()
            time.sleep(0.1)

    return client


def publishes_a_snapshot(url: str) -> None:
    with Wire(url) as wire:
        wire.ask("POST", FLAT, TEXT, b"more")
        offset = wire.ask("HEAD", FLAT).next_offset
        assert wire.ask("PUT", f"{STREAM}/snapshot/{offset}", TEXT, bytes(300_000)).status == 204


def is_reset(data: bytes) -> Client:
    """A client that sends more than it will be allowed to, and does not read why."""

    def client(url: str) -> None:
        with Wire(url) as wire, suppress(OSError):
            wire.send(data)

    return client


OFFER = {"Connection": "Upgrade", "Upgrade": "h2c"}
SNAPSHOT = request("PUT", f"{STREAM}/snapshot/2", {"Content-Length": "300000"})
SHORT_POLL = poll().replace(b"60000", b"100")
LATEST = f"{STREAM}/snapshot/00000000000000000001"
SCAN = json.dumps({"ranges": [["shop/s", 1, 0, 10 * MIB]]}).encode()

CLIENTS: dict[str, Client] = {
    "asks and leaves": asks(request("GET", f"{FLAT}?offset=now"), request("HEAD", FLAT), answers=1),
    "asks for what is not there": asks(request("GET", "/v1/stream/none"), request("PUT", "/%ff"), answers=2),
    "appends": asks(*3 * [request("POST", FLAT, TEXT, b"x")], answers=3),
    "appends and leaves at once": asks(20 * request("POST", FLAT, TEXT, b"x")),
    "leaves within a head": asks(b"GET /v1/stream/s HTTP/1.1\r\nHost:"),
    "leaves within a body": asks(request("POST", FLAT, {"Content-Length": "100"}) + b"x"),
    "leaves within a chunk": asks(request("POST", FLAT, {"Transfer-Encoding": "chunked"}) + b"5\r\nab"),
    "is refused": asks(b"nonsense\r\n\r\n", rest=True),
    "is refused for its headers": asks(request("GET", FLAT, {"X": "x" * 40_000}), rest=True),
    "is refused for its body": is_reset(request("POST", FLAT, {"Content-Length": str(100 * MIB)}) + bytes(MIB)),
    "is refused for its chunks": is_reset(request("POST", FLAT, {"Transfer-Encoding": "chunked"}) + b"zz\r\n\r\n"),
    "is told to continue": asks(request("POST", FLAT, {"Content-Length": "5", "Expect": "100-continue"}), answers=1),
    "closes after its request": asks(request("GET", "/healthz", {"Connection": "close"}), rest=True),
    "offers to upgrade": asks(50 * request("POST", "/v1/stream/none", {**TEXT, **OFFER}, b"x"), answers=50),
    "offers to upgrade and leaves": asks(request("POST", FLAT, {**TEXT, **OFFER, "Content-Length": "9"}) + b"x"),
    "leaves a long-poll": asks(poll()),
    "leaves a long-poll with requests behind it": asks(poll() + request("GET", FLAT) + 30 * poll()),
    "waits for a long-poll": asks(SHORT_POLL, answers=1),
    "leaves a long-poll with a snapshot behind it": asks(SHORT_POLL + request("GET", FLAT) + SNAPSHOT),
    "leaves an SSE read": asks(request("GET", f"{FLAT}?offset=now&live=sse")),
    "does not read an SSE read": reads_no_answer(request("GET", f"{FLAT}?offset=-1&live=sse")),
    "does not read a page": reads_no_answer(30 * request("GET", FLAT)),
    "publishes a snapshot": publishes_a_snapshot,
    "uploads a snapshot too far": asks(request("PUT", f"{STREAM}/snapshot/{10**12}", TEXT, bytes(300_000)), answers=1),
    "uploads a snapshot anew": asks(request("PUT", LATEST, TEXT, bytes(300_000)), answers=1),
    "uploads a snapshot of nothing": asks(request("PUT", "/shop/none/snapshot/1", TEXT, bytes(300_000)), answers=1),
    "leaves within a snapshot": asks(SNAPSHOT + bytes(2000), bytes(2000)),
    "is refused within a snapshot": is_reset(
        request("PUT", f"{STREAM}/snapshot/2", {"Transfer-Encoding": "chunked"}) + b"1\r\nx\r\nzz\r\n"
    ),
    "downloads a snapshot": asks(request("GET", LATEST), answers=1),
    "downloads a bootstrap": asks(request("GET", f"{STREAM}/bootstrap"), answers=1),
    "leaves within a bootstrap": reads_no_answer(request("GET", f"{STREAM}/bootstrap")),
    "leaves within two bootstraps": reads_no_answer(2 * request("GET", f"{STREAM}/bootstrap")),
    "leaves within a scan": reads_no_answer(2 * request("POST", "/__headwater/scan", {}, SCAN)),
    "describes streams": asks(request("POST", "/__headwater/describe", {}, b'{"prefix": "shop/"}'), answers=1),
    "flushes": asks(request("POST", "/__headwater/flush"), request("GET", f"{FLAT}?offset=-1"), answers=2),
    "forks": asks(request("PUT", f"{FLAT}-fork", {"Stream-Forked-From": FLAT}), answers=1),
    "makes a bucket": asks(
        request("PUT", "/shop-2"), request("GET", "/shop-2"), request("DELETE", "/shop-2"), answers=3
    ),
    "asks for numbers": asks(request("GET", "/metrics"), request("GET", "/__headwater/status"), answers=2),
}


@pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)
def test_a_client_that_comes_and_goes_leaves_nothing_for_the_garbage_collector(client: Client) -> None:
    assert garbage_of(client) == []
