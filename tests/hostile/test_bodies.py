"""Clients that announce or send much, and never finish, or for nothing."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from ..http.api.bulk.requests import ARROW, PATH, encode, row, table_of
from ..http.sockets import Wire, request
from .siege import MIB, siege

pytestmark = pytest.mark.hostile

TEXT = {"Content-Type": "text/plain"}
STREAM = "/v1/stream/target"


def make(url: str) -> None:
    with Wire(url) as wire:
        assert wire.ask("PUT", STREAM, TEXT).status in (200, 201)


def head(path: str, size: int, method: str = "POST") -> bytes:
    return request(method, path, {**TEXT, "Content-Length": str(size)})


def test_unfinished_bodies_take_no_more_than_their_budget() -> None:
    def attack(url: str) -> None:
        make(url)
        with ExitStack() as wires:
            for _ in range(60):
                wire = wires.enter_context(Wire(url))
                with suppress(ConnectionError):  # Those beyond the budget are refused.
                    wire.send(head(STREAM, 16 * MIB) + bytes(6 * MIB))

    with siege("--receiving-bytes-max", "64MiB") as besieged:
        besieged.attack(
            "60 bodies of 16 MiB that are never finished",
            attack,
            memory_mib=96,
            because="bodies may take 64 MiB together, and each connection has a buffer of 256 KiB",
        )


def test_uploads_for_nothing_are_not_written(tmp_path: Path) -> None:
    def attack(url: str) -> None:
        for _ in range(10):
            with Wire(url) as wire, suppress(ConnectionError):
                wire.send(head("/nowhere/stream/snapshot/0", 100 * MIB, "PUT") + bytes(8 * MIB))
                assert wire.receive().status == 404
        assert not list((tmp_path / "snapshots").iterdir())

    with siege(data=tmp_path) as besieged:
        besieged.attack(
            "uploads of 100 MiB to a stream that does not exist",
            attack,
            memory_mib=24,
            because="what arrives after a refusal is dropped at once",
        )


def test_many_writers_of_bulk_appends_take_turns() -> None:
    writers = 60
    body = encode(table_of([row("bulk/s", b"x" * MIB, create=True)]))

    def write(url: str) -> None:
        with Wire(url, timeout_seconds=60) as wire:
            assert wire.ask("POST", PATH, ARROW, body).status == 200

    def attack(url: str) -> None:
        with ThreadPoolExecutor(writers) as threads:
            for finished in [threads.submit(write, url) for _ in range(writers)]:
                finished.result()
        with Wire(url) as wire:
            assert wire.ask("DELETE", "/v1/stream/bulk/s").status == 204

    with siege() as besieged:
        besieged.attack(
            "60 writers of bulk appends of 1 MiB",
            attack,
            memory_mib=260,
            because="60 MiB are appended to memory; 16 bodies with their rows are in progress at a time",
        )
