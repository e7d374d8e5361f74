"""Clients that send many requests at once, and clients that wait."""

import time
from contextlib import ExitStack

import pytest

from ..http.sockets import Wire, chunked, request
from .siege import MIB, Attack, siege

pytestmark = pytest.mark.hostile

TEXT = {"Content-Type": "text/plain"}
PATH = "/v1/stream/waited-for"


def poll(path: str = PATH) -> bytes:
    return request("GET", f"{path}?offset=now&live=long-poll&timeout_ms=60000")


def make(url: str) -> None:
    with Wire(url) as wire:
        assert wire.ask("PUT", PATH, TEXT).status in (200, 201)


def append(url: str) -> None:
    with Wire(url) as wire:
        assert wire.ask("POST", PATH, TEXT, b"x").status == 204


def test_pipelines_of_long_polls_wait_one_by_one() -> None:
    def attack(url: str) -> None:
        make(url)
        with ExitStack() as open_wires:
            wires = [open_wires.enter_context(Wire(url)) for _ in range(20)]
            for wire in wires:
                wire.send(2000 * poll())
            with Wire(url) as asking:
                waiting = next(
                    line.split()[1]
                    for line in asking.ask("GET", "/metrics").body.decode().splitlines()
                    if line.startswith("headwater_live_readers ")
                )
                assert int(waiting) <= len(wires)
            append(url)
            for wire in wires:
                assert wire.receive().body == b"x"
        # The server does not read from a client with so many requests: it notices that the client left when it writes.
        for _ in range(3):
            append(url)
            time.sleep(0.1)

    with siege() as besieged:
        besieged.attack(
            "20 pipelines of 2,000 long-polls",
            attack,
            memory_mib=40,
            because="each of 20 connections has 64 requests in progress, and what one read delivered besides",
        )


def test_many_waiters_of_one_stream_are_woken_and_leave() -> None:
    def attack(url: str) -> None:
        make(url)
        with ExitStack() as open_wires:
            wires = [open_wires.enter_context(Wire(url)) for _ in range(600)]
            for number, wire in enumerate(wires):
                wire.send(request("GET", f"{PATH}?offset=now&live=sse") if number % 2 else poll())
            for wire in wires[1::2]:
                assert wire.receive_sse().event().kind == "control"
            append(url)
            for wire in wires[::2]:
                assert wire.receive().body == b"x"
            # Half of them wait again, and all leave at once.
            for wire in wires[::2]:
                wire.send(poll() + request("GET", PATH))

    with siege() as besieged:
        besieged.attack(
            "600 waiters of one stream", attack, memory_mib=40, because="each of 600 connections holds a request or two"
        )


def test_pipelines_of_writes_behind_a_long_poll_are_bounded() -> None:
    def attack(url: str) -> None:
        make(url)
        with ExitStack() as open_wires:
            wires = [open_wires.enter_context(Wire(url)) for _ in range(20)]
            for wire in wires:
                wire.send(poll() + 2000 * request("POST", "/v1/stream/none", TEXT, b"x"))
            time.sleep(0.5)

    with siege() as besieged:
        besieged.attack(
            "20 pipelines of 2,000 appends behind a long-poll",
            attack,
            memory_mib=40,
            because="each of 20 connections has 64 short answers, and what one read delivered besides",
        )


TINY = chunked(*[b"x"] * 20_000)
EMPTY_LINES = chunked(b"\r\n" * 100_000)
INPUTS = {
    "offers to upgrade": 1500
    * request("GET", "/v1/stream/none", {"Connection": "Upgrade", "Upgrade": "h2c", "Content-Length": "0"}),
    "chunks of one byte": 5 * (request("POST", PATH, {**TEXT, "Transfer-Encoding": "chunked"}) + TINY),
    "chunks of empty lines": 5 * (request("POST", PATH, {**TEXT, "Transfer-Encoding": "chunked"}) + EMPTY_LINES),
    "empty lines": b"\r\n" * 500_000 + request("GET", "/v1/stream/none"),
}


def sends(data: bytes) -> Attack:
    """Send it on some connections, and read all answers."""

    def attack(url: str) -> None:
        make(url)
        for _ in range(3):
            with Wire(url) as wire:
                wire.send(data + request("GET", "/healthz", {"Connection": "close"}))
                assert wire.rest().endswith(b"ok\n")

    return attack


@pytest.mark.parametrize("data", INPUTS.values(), ids=INPUTS)
def test_input_that_is_hard_to_cut_holds_up_nobody(data: bytes, request: pytest.FixtureRequest) -> None:
    with siege() as besieged:
        besieged.attack(
            request.node.callspec.id, sends(data), memory_mib=24, because=f"its input has {len(data) // MIB + 1} MiB"
        )
