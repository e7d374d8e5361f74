"""Clients that ask for much and read slowly, or not at all."""

import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from ..http.sockets import Wire, request
from .siege import MIB, siege

pytestmark = pytest.mark.hostile

TEXT, JSON = {"Content-Type": "text/plain"}, {"Content-Type": "application/json"}


def fill(url: str, path: str, count: int) -> None:
    """Make a stream of so many mebibytes of text, unless it exists."""
    with Wire(url) as wire:
        if wire.ask("PUT", path, TEXT).status == 201:
            for _ in range(16 * count):
                assert wire.ask("POST", path, TEXT, b"x" * (MIB // 16)).status == 204


def test_readers_that_never_read_hold_a_page_each() -> None:
    path = "/v1/stream/large"

    def attack(url: str) -> None:
        fill(url, path, 4)
        with ExitStack() as open_wires:
            for _ in range(60):
                wire = open_wires.enter_context(Wire(url, receive_buffer_bytes=4096))
                wire.send(request("GET", f"{path}?offset=-1") * 3)
            with Wire(url) as last:
                assert len(last.ask("GET", f"{path}?offset=-1").body) == MIB

    with siege() as besieged:
        besieged.attack(
            "60 readers that never read",
            attack,
            memory_mib=160,
            because="each of 60 connections may have one page of 1 MiB unsent, copied once, besides 4 MiB of stream",
        )


def test_live_readers_hold_nothing_of_what_they_have_read() -> None:
    path, readers = "/v1/stream/large", 100

    def attack(url: str) -> None:
        fill(url, path, 1)
        with ExitStack() as open_wires:
            for number in range(readers):
                wire = open_wires.enter_context(Wire(url))
                # A page of another size than usual is made for each reader.
                events = wire.open_sse(f"{path}?offset=-1&max_bytes={MIB - 1 - number}&live=sse")
                assert len(events.event().data) >= MIB * 15 // 16

    with siege() as besieged:
        besieged.attack(
            "100 live readers that have read a page of their own",
            attack,
            memory_mib=40,
            because="only a few pages are being sent at a time, each copied once or twice",
        )


MESSAGE = b'"%b"' % (b"x" * (16 * MIB - 2))


def message(url: str, path: str) -> None:
    """Make a stream of one message of 16 MiB, unless it exists."""
    with Wire(url) as wire:
        assert wire.ask("PUT", path, JSON, MESSAGE).status in (200, 201)


def test_no_page_is_made_behind_a_long_poll() -> None:
    large, quiet = "/v1/stream/large", "/v1/stream/quiet"

    def attack(url: str) -> None:
        message(url, large)
        with Wire(url) as wire:
            assert wire.ask("PUT", quiet, TEXT).status in (200, 201)
            wire.send(request("GET", f"{quiet}?offset=now&live=long-poll&timeout_ms=1000"))
            wire.send(request("GET", f"{large}?offset=-1") * 60)
            assert wire.receive().status == 204

    with siege() as besieged:
        besieged.attack(
            "60 reads of a message of 16 MiB behind a long-poll",
            attack,
            memory_mib=100,
            because="the message is in memory, in a cached page, and in one response",
        )


def test_readers_of_large_messages_that_never_read_take_no_more_than_their_budget() -> None:
    large = [f"/v1/stream/large/{number}" for number in range(8)]

    def attack(url: str) -> None:
        for path in large:
            message(url, path)
        with ExitStack() as open_wires:
            for number in range(60):
                wire = open_wires.enter_context(Wire(url, receive_buffer_bytes=4096))
                wire.send(request("GET", f"{large[number % 8]}?offset=-1"))
            with Wire(url) as last:
                assert last.ask("GET", "/v1/stream/probe/read?offset=-1").status == 200

    with siege("--sending-bytes-max", "64MiB") as besieged:
        besieged.attack(
            "60 readers of messages of 16 MiB that never read",
            attack,
            memory_mib=360,
            because="8 messages of 16 MiB are in memory, responses may take 64 MiB, and pages are cached up to 32 MiB",
        )


def test_no_cold_page_is_sent_to_a_client_that_does_not_read(tmp_path: Path) -> None:
    path, readers = "/v1/stream/cold", 10

    def attack(url: str) -> None:
        with Wire(url) as wire:
            if wire.ask("PUT", path, TEXT).status == 201:
                for _ in range(600):
                    assert wire.ask("POST", path, TEXT, b"x" * 4096).status == 204
                assert wire.ask("POST", "/__headwater/flush").status == 200
        # Every page is another one, so none of them is shared.
        pipeline = b"".join(request("GET", f"{path}?offset={number:020}") for number in range(64))
        with ExitStack() as open_wires:
            for _ in range(readers):
                wire = open_wires.enter_context(Wire(url, receive_buffer_bytes=4096))
                wire.send(pipeline)
            time.sleep(2)

    with siege(data=tmp_path / "data") as besieged:
        besieged.attack(
            "10 pipelines of 64 cold reads that never read",
            attack,
            memory_mib=96,
            because="each of 10 connections may have one page of 1 MiB unsent, and pages are cached up to 32 MiB",
        )
