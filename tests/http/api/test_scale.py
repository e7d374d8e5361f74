"""Many clients on one process: all are served, and nothing of them leaks."""

import os
import re
import resource
import selectors
import socket
import time
from collections.abc import Callable, Iterator
from typing import Self
from urllib.parse import urlsplit

import pytest

from headwater.testing import RunningServer, running_server

from ..processes import eventually, open_files, resident_bytes
from ..sockets import Wire, request

TEXT = {"Content-Type": "text/plain"}
MIB = 1024 * 1024
READERS = 1_000
MESSAGES = 50
POLLS = int(os.environ.get("TESTS_POLLS", "5000"))
"""Set it to 10000, with as many file descriptors allowed, for the full size."""
PATIENCE_SECONDS = 60.0


class Crowd:
    """Many connections in one thread, each with everything it has received."""

    def __init__(self, url: str, size: int) -> None:
        parts = urlsplit(url)
        self._selector = selectors.DefaultSelector()
        self.received: list[bytearray] = [bytearray() for _ in range(size)]
        self._sockets: list[socket.socket] = []
        for number in range(size):
            member = socket.create_connection((parts.hostname or "", parts.port or 0), timeout=PATIENCE_SECONDS)
            self._sockets.append(member)
            member.setblocking(False)
            self._selector.register(member, selectors.EVENT_READ, number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._selector.close()
        for member in self._sockets:
            member.close()

    def send(self, data: bytes) -> None:
        """Every member sends the same."""
        for member in self._sockets:
            assert member.send(data) == len(data)

    def wait(self, served: Callable[[bytearray], bool]) -> None:
        """Read until every member has got what it waits for."""
        waiting = {number for number, received in enumerate(self.received) if not served(received)}
        deadline = time.monotonic() + PATIENCE_SECONDS
        while waiting:
            assert time.monotonic() < deadline, f"{len(waiting)} of {len(self.received)} got less than they should"
            for key, _ in self._selector.select(1.0):
                assert isinstance(key.fileobj, socket.socket)
                data = key.fileobj.recv(1 << 16)
                if not data:
                    self._selector.unregister(key.fileobj)
                self.received[key.data] += data
                if served(self.received[key.data]):
                    waiting.discard(key.data)


@pytest.fixture(scope="module", autouse=True)
def many_files() -> Iterator[None]:
    """Allow this process, and the servers it starts, as many sockets as the system lets it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = max(READERS, POLLS) + 200
    if hard != resource.RLIM_INFINITY and hard < needed:
        pytest.skip(f"{needed} file descriptors are needed and {hard} are allowed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def alone() -> Iterator[RunningServer]:
    """A server for this module alone, so that its memory can be measured."""
    with running_server() as server:
        yield server


def payload(received: bytearray) -> str:
    """What a reader has read, in the order in which it came."""
    head, _, body = bytes(received).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert body.endswith(b"\r\n0\r\n\r\n"), "the response did not end as it should"
    text = re.sub(rb"(?:^|\r\n)[0-9a-f]+\r\n", b"", body).decode()
    return "".join(re.findall(r"^data:([^{].*)\n", text, re.MULTILINE))


def test_a_thousand_readers_of_one_stream_all_get_every_message(alone: RunningServer) -> None:
    path = "/v1/stream/popular"
    with Wire(alone.url) as wire:
        wire.ask("PUT", path, TEXT)
        files, memory = open_files(alone.pid), resident_bytes(alone.pid)
        with Crowd(alone.url, READERS) as crowd:
            crowd.send(request("GET", f"{path}?offset=-1&live=sse"))
            crowd.wait(lambda received: b"event: control\n" in received)
            for number in range(MESSAGES):
                closing = {"Stream-Closed": "true"} if number == MESSAGES - 1 else {}
                assert wire.ask("POST", path, {**TEXT, **closing}, b"message %d;" % number).status == 204
            crowd.wait(lambda received: received.endswith(b"\r\n0\r\n\r\n"))
            everything = "".join(f"message {number};" for number in range(MESSAGES))
            assert {payload(received) for received in crowd.received} == {everything}
        assert eventually(lambda: open_files(alone.pid) <= files)
        assert resident_bytes(alone.pid) - memory < 40 * MIB


def test_thousands_of_idle_long_polls_are_all_answered_by_one_append(alone: RunningServer) -> None:
    path = "/v1/stream/quiet"
    after: list[int] = []
    with Wire(alone.url) as wire:
        wire.ask("PUT", path, TEXT)
        files, memory = open_files(alone.pid), resident_bytes(alone.pid)
        for _ in range(3):
            with Crowd(alone.url, POLLS) as crowd:
                tail = wire.ask("HEAD", path).next_offset
                crowd.send(request("GET", f"{path}?offset={tail}&live=long-poll&timeout_ms=60000"))
                # The server answers other clients as if nothing waited.
                assert {wire.ask("HEAD", path).status for _ in range(20)} == {200}
                assert eventually(lambda: open_files(alone.pid) >= files + POLLS)
                assert wire.ask("POST", path, TEXT, b"the message").status == 204
                crowd.wait(lambda received: received.endswith(b"\r\n\r\nthe message"))
                assert all(received.startswith(b"HTTP/1.1 200 OK\r\n") for received in crowd.received)
            assert eventually(lambda: open_files(alone.pid) <= files)
            after.append(resident_bytes(alone.pid))
        # The allocator keeps some memory of the first crowd, but the next crowd reuses it and takes no more.
        assert after[-1] - after[0] < 16 * MIB, after
        assert after[-1] - memory < 150 * MIB, (memory, after)
