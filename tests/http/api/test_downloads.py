"""A scan while it is sent: what may happen meanwhile, and how it ends if it fails."""

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest

from headwater.http.server import Server
from headwater.node.scans import scans
from headwater.settings import Settings
from headwater.testing import RunningServer, running_server

from ...node.lake.lakes import bench
from ..sockets import Ended, Wire, request
from .bulk.requests import bulk, row
from .scans.lake_writer import NEVER, PATIENT_SECONDS, TEXT, LakeWriter
from .scans.requests import ask, payloads, scanned, table, whole

JSON = {"Content-Type": "application/json"}
_numbers = count(1)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(*NEVER, data=tmp_path_factory.mktemp("sending")) as server:
        yield server
        assert "Traceback" not in server.output()


@pytest.fixture
def bucket() -> str:
    """A bucket that no other test uses."""
    return f"sent-{next(_numbers)}"


def test_a_write_behind_a_scan_on_the_same_connection_is_not_seen_by_it(wire: Wire, bucket: str) -> None:
    LakeWriter(wire, "memory").make(f"{bucket}/s", b"before")
    ranges = [[*whole(wire, f"{bucket}/s")[0][:3], 99]]
    body = json.dumps({"ranges": ranges}).encode()
    path = f"/v1/stream/{bucket}/s"
    wire.send(request("POST", path, TEXT, b"!") + request("POST", "/__headwater/scan", JSON, body))
    wire.send(request("POST", path, TEXT, b"after") + request("GET", path))
    assert wire.receive().status == 204
    found = table(wire.receive())
    assert found["payload"].to_pylist() == [b"before", b"!"]
    assert wire.receive().status == 204
    assert wire.receive().body == b"before!after"


@contextmanager
def slow(server: RunningServer) -> Iterator[Wire]:
    """A connection with a small receive buffer."""
    with Wire(server.url, timeout_seconds=PATIENT_SECONDS, receive_buffer_bytes=4096) as wire:
        yield wire


@pytest.mark.parametrize("cold", [False, True])
def test_a_slow_client_gets_what_was_there_whatever_is_deleted_and_written(
    lake: RunningServer, bucket: str, cold: bool
) -> None:
    with Wire(lake.url, timeout_seconds=PATIENT_SECONDS) as wire, slow(lake) as reader:
        writer = LakeWriter(wire, "cold" if cold else "hot")
        names = [f"{bucket}/{number:02}" for number in range(24)]
        bulk(wire, *(row(name, *[name.encode() * 9_000] * 3, create=True) for name in names))
        writer.done()
        ranges = [[*one[:3], 2**62] for one in whole(wire, *names)]
        body = json.dumps({"ranges": ranges}).encode()
        reader.send(request("POST", "/__headwater/scan", JSON, body))
        status, headers, _ = reader.receive_head()
        assert (status, headers["transfer-encoding"]) == (200, "chunked")
        for name in names[::2]:
            writer.delete(name)
        for name in names[1::2]:
            writer.append(name, b"later", Content_Type="application/octet-stream")
        assert wire.ask("POST", "/__headwater/flush").status == 200
        found = pa.ipc.open_stream(b"".join(reader.chunks())).read_all()
        assert found["payload"].to_pylist() == [name.encode() * 9_000 for name in names for _ in range(3)]


def test_a_response_that_breaks_off_cannot_be_taken_for_a_whole_one(tmp_path: Path, bucket: str) -> None:
    with running_server(*NEVER, data=tmp_path) as server, Wire(server.url) as wire:
        writer = LakeWriter(wire, "cold")
        for name in ("a", "b"):
            writer.make(f"{bucket}/{name}", name.encode())
            writer.done()
        ranges = whole(wire, f"{bucket}/a", f"{bucket}/b")
        objects = sorted((tmp_path / "lake" / "segments").rglob("*.parquet"))
        assert len(objects) == 2
        data = objects[1].read_bytes()
        objects[1].write_bytes(data[:50] + bytes([data[50] ^ 1]) + data[51:])
        body = json.dumps({"ranges": ranges}).encode()
        wire.send(request("POST", "/__headwater/scan", JSON, body))
        status, _, _ = wire.receive_head()
        assert status == 200
        with pytest.raises((Ended, ConnectionResetError)):
            list(wire.chunks())
        with Wire(server.url) as other:
            assert payloads(scanned(other, ranges[:1])) == [b"a"]
        assert re.search(r"cut short: .*damaged", server.output())
        assert "Traceback" not in server.output()


def test_a_mistake_of_ours_breaks_the_response_off_too(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def encode(*_: object) -> None:
        raise ValueError("a mistake")

    def ask_in_vain(url: str) -> None:
        with Wire(url, timeout_seconds=PATIENT_SECONDS) as wire:
            ranges = whole(wire, "b/s")
            with pytest.raises((Ended, ConnectionResetError)):
                ask(wire, "scan", ranges=ranges)

    async def run() -> None:
        async with bench() as node:
            await node.create("b/s", b"one")
            await node.lake.flush()
            server = Server(Settings(port=0))
            url = await server.listen()
            server.serve(node.node)
            await asyncio.get_running_loop().run_in_executor(None, ask_in_vain, url)
            assert not +node.lake.reads.in_use
            await server.drain()

    monkeypatch.setattr(scans, "encode", encode)
    asyncio.run(run())
    assert "response cut short" in caplog.text
    assert "a mistake" in caplog.text


def test_a_client_that_goes_away_leaves_a_server_that_goes_on(lake: RunningServer, bucket: str) -> None:
    with Wire(lake.url, timeout_seconds=PATIENT_SECONDS) as wire:
        writer = LakeWriter(wire, "both")
        bulk(wire, *(row(f"{bucket}/{number}", b"x" * 500_000, create=True) for number in range(20)))
        writer.half()
        ranges = whole(wire, *(f"{bucket}/{number}" for number in range(20)))
        body = json.dumps({"ranges": ranges}).encode()
        for _ in range(5):
            with slow(lake) as reader:
                reader.send(request("POST", "/__headwater/scan", JSON, body))
                reader.receive_head()
            with slow(lake) as reader:
                reader.send(request("POST", "/__headwater/scan", JSON, body) * 2)
        assert len(scanned(wire, ranges, columns=["offset"])) == 20
