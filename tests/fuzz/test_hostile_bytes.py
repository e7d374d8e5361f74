"""A server under hostile bytes: it stays up, blames the client, keeps serving others, and leaks nothing.

TESTS_FUZZ_SECONDS makes it longer; TESTS_FUZZ_SEED, which is printed, repeats a run.
"""

import asyncio
import os
import re
import secrets
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from urllib.parse import urlsplit

import pytest

from headwater.testing import RunningServer, running_server

from ..http.processes import eventually, open_files, resident_bytes
from ..http.sockets import Wire, request
from .attacks import Attack, make

SECONDS = float(os.environ.get("TESTS_FUZZ_SECONDS", "20"))
SEED = os.environ.get("TESTS_FUZZ_SEED") or secrets.token_hex(4)
ATTACKERS = 40
ANSWER_SECONDS = 30.0
"""How long a server with time-outs of seconds may leave a connection open, on a machine that is busy."""
MIB = 1024 * 1024
TEXT = {"Content-Type": "text/plain"}

STATUS = re.compile(rb"HTTP/1\.1 ([0-9]{3}) [A-Za-z -]*\r\nServer: headwater/")
RESET = struct.pack("ii", 1, 0)
"""What SO_LINGER is set to so that a close becomes a reset."""

pytestmark = pytest.mark.fuzz


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    limits = {"header": "1", "body": "1", "idle": "1.5", "slow-reader": "1", "sse": "8", "long-poll": "0.5"}
    flags = [text for name, seconds in limits.items() for text in (f"--{name}-seconds", seconds)]
    with running_server(*flags) as server:
        yield server


class HealthyClient(threading.Thread):
    """A client that uses the server as intended, and counts the rounds in which everything was right."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url
        self._over = threading.Event()
        self.rounds = 0
        self.problem: BaseException | None = None

    def run(self) -> None:
        try:
            while not self._over.is_set():
                self._round(f"/v1/stream/healthy/{self.rounds}")
                self.rounds += 1
        except BaseException as error:
            self.problem = error

    def stop(self) -> None:
        self._over.set()
        self.join(60)

    def _round(self, path: str) -> None:
        with Wire(self._url) as wire, Wire(self._url) as reader:
            assert wire.ask("PUT", path, TEXT).status == 201
            events = reader.open_sse(f"{path}?offset=-1&live=sse")
            assert events.event().control["upToDate"] is True
            for number in range(5):
                tail = wire.ask("POST", path, TEXT, b"%d" % number).next_offset
                data, control = events.events(2)
                assert (data.data, control.control["streamNextOffset"]) == (str(number), tail)
                assert wire.ask("GET", f"{path}?offset=-1").body == b"01234"[: number + 1]
            wire.send(request("GET", f"{path}?offset=now&live=long-poll&timeout_ms=60000") + request("DELETE", path))
            assert wire.receive().status == 404
            assert wire.receive().status == 204
            assert all(event.kind == "control" for event in events.rest())


async def carry_out(attack: Attack, host: str, port: int) -> bytes:
    """Send all of it, and return what came back until the server closed the connection, which it must do in time."""
    reader, writer = await asyncio.open_connection(host, port)
    received = b""
    try:
        with suppress(ConnectionError):
            for piece in attack.pieces:
                writer.write(piece)
                await writer.drain()
                if attack.pauses:
                    await asyncio.sleep(0.005)
            if attack.end in ("leave", "reset"):
                return received
            if attack.end == "read":
                with suppress(OSError):  # The server may have closed the connection already.
                    writer.write_eof()
            async with asyncio.timeout(ANSWER_SECONDS):
                while data := await reader.read(1 << 16):
                    received += data
    finally:
        with suppress(OSError):
            if attack.end == "reset":
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            writer.close()
            await writer.wait_closed()
    return received


def judge(received: bytes, seed: str) -> list[int]:
    """The statuses of all responses; none may blame the server."""
    assert not received or received.startswith(b"HTTP/1.1 "), f"attack {seed}: {received[:300]!r}"
    statuses = [int(status) for status in STATUS.findall(received)]
    for status in statuses:
        # 501 and 505 are the client's mistakes, although their numbers say otherwise.
        assert status < 500 or status in (501, 505), f"attack {seed} was answered with {status}: {received[:2000]!r}"
    return statuses


async def storm(url: str, seconds: float) -> tuple[int, Counter[int]]:
    """Many attackers at once, for some time; returns how often they attacked and which statuses they got."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or 0
    numbers, statuses = count(), Counter[int]()
    deadline = time.monotonic() + seconds

    async def attacker() -> None:
        while time.monotonic() < deadline:
            seed = f"{SEED}:{next(numbers)}"
            try:
                statuses.update(judge(await carry_out(make(seed), host, port), seed))
            except TimeoutError:
                raise AssertionError(f"attack {seed} got neither an answer nor an end: {make(seed)}") from None

    async with asyncio.TaskGroup() as group:
        for _ in range(ATTACKERS):
            group.create_task(attacker())
    return next(numbers), statuses


def test_hostile_bytes_do_no_harm(server: RunningServer) -> None:
    print(f"TESTS_FUZZ_SEED={SEED}")
    asyncio.run(storm(server.url, min(2.0, SECONDS / 10)))  # Let caches fill and the allocator settle.
    assert eventually(lambda: no_connections(server), 20)
    files, memory = open_files(server.pid), resident_bytes(server.pid)
    healthy = HealthyClient(server.url)
    healthy.start()
    try:
        attacks, statuses = asyncio.run(storm(server.url, SECONDS))
    finally:
        healthy.stop()
        print(f"the server logged: {server.output()[-5000:]}")
    print(f"{attacks} attacks, {healthy.rounds} healthy rounds meanwhile, answered with {sorted(statuses.items())}")
    if healthy.problem is not None:
        raise healthy.problem
    assert healthy.rounds > SECONDS / 5
    assert server.process.poll() is None, server.output()
    assert "Traceback" not in server.output(), server.output()[-5000:]
    assert statuses[400] > 0
    assert statuses[200] + statuses[204] > 0
    assert eventually(lambda: open_files(server.pid) <= files, 20), f"{open_files(server.pid)} files, {files} before"
    # Streams that were created and never deleted are not a leak.
    allowed = 64 * MIB + attacks * 2048
    assert resident_bytes(server.pid) - memory < allowed, f"{resident_bytes(server.pid)} bytes, {memory} before"
    HealthyClient(server.url)._round("/v1/stream/healthy/last")


def no_connections(server: RunningServer) -> bool:
    """Whether the server has only its own files open, whose number is constant in memory mode."""
    before = open_files(server.pid)
    time.sleep(0.5)
    return open_files(server.pid) == before < 40


def test_an_attack_is_made_from_its_seed_alone() -> None:
    assert [make(f"{SEED}:{number}") for number in range(50)] == [make(f"{SEED}:{number}") for number in range(50)]
