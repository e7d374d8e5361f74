"""Clients that send long names, types and URLs, all different, so that nothing about them is worth remembering."""

from itertools import count

import pyarrow as pa
import pytest

from ..http.sockets import Wire, request
from .siege import MIB, siege

pytestmark = pytest.mark.hostile

ARROW = {"Content-Type": "application/vnd.apache.arrow.stream"}
numbers = count()


def bulk_body(name: str, content_type: str) -> bytes:
    """A bulk append of one message."""
    columns = {"stream": [name], "messages": pa.array([[b"x"]], pa.list_(pa.binary())), "content_type": [content_type]}
    sink = pa.BufferOutputStream()
    table = pa.table(columns)
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def test_bulk_appends_with_enormous_names_leave_nothing_behind() -> None:
    def attack(url: str) -> None:
        with Wire(url) as wire:
            for _ in range(8):
                long = f"{next(numbers)}/" + "../" * (5 * MIB)
                for name, content_type in ((long, "text/plain"), ("names/short", f"text/{long}")):
                    answer = wire.ask("POST", "/__headwater/append", ARROW, bulk_body(name, content_type))
                    assert answer.status == 200
                    [row] = pa.ipc.open_stream(answer.body).read_all().to_pylist()
                    assert row["status"] == 400
                    assert len(answer.body) < MIB

    with siege() as besieged:
        besieged.attack(
            "bulk appends with names of 15 MiB",
            attack,
            memory_mib=120,
            because="one body of 15 MiB is received, decoded and turned into text",
        )


def test_long_urls_and_types_leave_nothing_behind() -> None:
    def attack(url: str) -> None:
        with Wire(url) as wire:
            for _ in range(60):
                requests = []
                for _ in range(20):
                    long = f"{next(numbers)}".zfill(7_000)
                    requests += [
                        request("GET", f"/v1/stream/{long}"),
                        request("GET", f"/v1/stream/x?offset=-1&more={long}"),
                        request("POST", "/v1/stream/x", {"Content-Type": f"text/{long}"}, b"x"),
                        request("GET", "/v1/stream/x", {"Host": f"{long}.localhost"}),
                    ]
                    wire.send(b"".join(requests[-4:]))
                    assert {wire.receive().status for _ in range(4)} <= {400, 404}

    with siege() as besieged:
        besieged.attack("long URLs and types", attack, memory_mib=24, because="each request has 8 KiB at most")
