"""Clients that send JSON which takes long to check."""

import pytest

from ..http.sockets import Wire, request
from .siege import MIB, siege

pytestmark = pytest.mark.hostile

JSON = {"Content-Type": "application/json"}
BODY_BYTES = 16 * MIB - 64

BODIES = {
    "lone surrogates": b'"' + rb"\ud800" * (BODY_BYTES // 6) + b'"',
    "backslashes and a surrogate": b'"' + rb"\\" * (BODY_BYTES // 2) + rb'\ud800"',
    "line ends and a surrogate": b'"' + rb"\n" * (BODY_BYTES // 2) + rb'\ud800"',
    "a bad escape at the end": b'"' + rb"\ud800\n" * (BODY_BYTES // 8) + rb'\q"',
    "262,144 messages": b"[" + b",".join([b"1"] * 262_144) + b"]",
    "262,144 surrogates": b"[" + b",".join([rb'"\ud800"'] * 262_144) + b"]",
    "a million commas": b"[[" + b",".join([b"{}"] * 1_000_000) + b"]]",
    "deep nesting": b"[" * BODY_BYTES,
    "one string": b'"' + "é".encode() * (BODY_BYTES // 2) + b'"',
}


@pytest.mark.parametrize("what", BODIES)
def test_json_that_takes_long_to_check_stops_nobody_else(what: str) -> None:
    path, bad = "/v1/stream/json", what in ("a bad escape at the end", "deep nesting")

    def attack(url: str) -> None:
        with Wire(url) as wire:
            assert wire.ask("PUT", path, JSON).status == 201
            for _ in range(3):
                assert wire.ask("POST", path, JSON, BODIES[what]).status == (400 if bad else 204)
            assert wire.ask("DELETE", path).status == 204

    with siege() as besieged:
        attack(besieged.server.url)  # The allocator keeps two bodies of what is freed here, and no more later.
        attack(besieged.server.url)
        besieged.attack(
            f"JSON: {what}",
            attack,
            memory_mib=240,
            because="three bodies of 16 MiB are stored, and a fourth is split with three copies of it",
        )


def test_a_batch_of_many_arrays_stops_nobody_else() -> None:
    frame = b"[" + b",".join([b"1"] * 32_768) + b"]"
    batch = (len(frame).to_bytes(4, "big") + frame) * 500

    def attack(url: str) -> None:
        with Wire(url) as wire:
            wire.ask("PUT", "/batches")
            assert wire.ask("PUT", "/batches/json", JSON).status == 201
            for _ in range(3):
                assert wire.ask("POST", "/batches/json/append-batch", JSON, batch).status == 413
            assert wire.ask("DELETE", "/batches/json").status == 204

    with siege() as besieged:
        besieged.attack(
            "a batch of 16 million messages",
            attack,
            memory_mib=160,
            because="the body has 32 MiB, its frames are copies, and up to 262,144 messages are split",
        )


def test_a_stream_full_of_producers_stops_nobody_else() -> None:
    def attack(url: str) -> None:
        with Wire(url) as wire:
            assert wire.ask("PUT", "/v1/stream/producers", JSON).status == 201
            for first in range(0, 10_000, 20):
                wire.send(
                    b"".join(
                        request(
                            "POST",
                            "/v1/stream/producers",
                            {**JSON, "Producer-Id": f"{at:0255}", "Producer-Epoch": "0", "Producer-Seq": "0"},
                            b"1",
                        )
                        for at in range(first, first + 20)
                    )
                )
                assert {wire.receive().status for _ in range(20)} == {200}
            one_more = {**JSON, "Producer-Id": "one more", "Producer-Epoch": "0", "Producer-Seq": "0"}
            assert wire.ask("POST", "/v1/stream/producers", one_more, b"1").status == 429
            assert wire.ask("DELETE", "/v1/stream/producers").status == 204

    with siege() as besieged:
        besieged.attack(
            "10,000 producers of one stream",
            attack,
            memory_mib=48,
            because="a producer takes half a kilobyte, and its append, in memory, another one",
        )
