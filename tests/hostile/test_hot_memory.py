"""Clients that fill the memory for hot data with what takes the most of it."""

import json
from collections.abc import Callable, Iterator
from itertools import count, islice
from pathlib import Path

import pytest

from headwater.testing import running_server

from ..http.sockets import Wire, request
from .siege import MIB, memory_bytes

pytestmark = pytest.mark.hostile

HOT_BYTES_MAX = 24 * MIB
MEMORY_FACTOR = 2
"""How many times its setting the hot data may take in memory, whatever it consists of."""
FRAGMENT_BYTES = 24 * MIB
"""What the allocator keeps of requests that are over."""
REQUESTS_MAX = 4_000
"""Far more requests than fill the memory."""

PIPELINED = 32

JSON, TEXT = "application/json", "text/plain"
NEVER_FLUSHED = ("--flush-bytes-max=1TiB", "--flush-journal-bytes=1TiB", "--flush-seconds=1d")
"""As if the lake were offline."""

Requests = Iterator[bytes]


def one_digit_messages(path: str) -> Requests:
    body = b"[" + b",".join([b"1"] * 100_000) + b"]"
    while True:
        yield request("POST", path, {"Content-Type": JSON}, body)


def twenty_byte_appends(path: str) -> Requests:
    frame = (20).to_bytes(4, "big") + b"x" * 20
    while True:
        yield request("POST", f"{path}/append-batch", {"Content-Type": TEXT}, frame * 512)


def appends_of_a_producer_with_a_long_name(path: str) -> Requests:
    for first in count(0, PIPELINED):
        headers = {"Content-Type": TEXT, "Producer-Id": "p" * 255, "Producer-Epoch": "0"}
        yield b"".join(
            request("POST", path, {**headers, "Producer-Seq": str(seq)}, b"x" * 20)
            for seq in range(first, first + PIPELINED)
        )


@pytest.mark.parametrize(
    ("content_type", "requests", "responses"),
    [
        (JSON, one_digit_messages, 1),
        (TEXT, twenty_byte_appends, 1),
        (TEXT, appends_of_a_producer_with_a_long_name, PIPELINED),
    ],
)
def test_hot_data_takes_no_more_memory_than_a_small_multiple_of_its_limit(
    content_type: str, requests: Callable[[str], Requests], responses: int, tmp_path: Path
) -> None:
    path = "/bucket/tiny"
    flags = f"--hot-bytes-max={HOT_BYTES_MAX}", *NEVER_FLUSHED
    with running_server(*flags, data=tmp_path) as server, Wire(server.url) as wire:
        assert wire.ask("PUT", "/bucket").status == 201
        for name in (path, "/bucket/warm"):
            assert wire.ask("PUT", name, {"Content-Type": content_type}).status == 201
        wire.send(next(requests("/bucket/warm")))
        assert {wire.receive().status for _ in range(responses)} <= {200, 204}
        before_bytes = memory_bytes(server.pid, "VmRSS")
        statuses = set()
        for posts in islice(requests(path), REQUESTS_MAX):
            wire.send(posts)
            statuses = {wire.receive().status for _ in range(responses)}
            if 503 in statuses:
                break
        assert 503 in statuses
        with Wire(server.url) as other:  # A large append that has no room is refused before its body, and closes.
            charged_bytes = json.loads(other.ask("GET", "/__headwater/status").body)["hot_bytes"]
        grown_bytes = memory_bytes(server.pid, "VmRSS") - before_bytes
    print(f"{grown_bytes / MIB:.1f} MiB of memory for {charged_bytes / MIB:.1f} MiB charged")
    assert charged_bytes >= HOT_BYTES_MAX
    assert grown_bytes <= MEMORY_FACTOR * HOT_BYTES_MAX + FRAGMENT_BYTES
