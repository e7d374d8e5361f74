"""Extensions, section 3: bootstrap."""

import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.testing import RunningServer, running_server

from ...processes import resident_bytes
from ...sockets import Wire, refused, request
from .pieces import BYTES, JSON, MIB, TEXT, append, frames, made, parts, plain, publish, split

EMPTY = ("application/octet-stream", b"")


def messages(*bodies: bytes, kind: str = "application/json") -> list[tuple[str, bytes]]:
    return [(kind, body) for body in bodies]


# -- 3.1 Request -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("query", ["live=sse", "live=long-poll", "live=", "live=x", "offset=-1&live=sse"])
def test_a_live_bootstrap_is_refused(wire: Wire, documents: str, query: str) -> None:
    refused(wire.ask("GET", f"{documents}/bootstrap?{query}"), 400, "bad_request")


@pytest.mark.parametrize("query", ["", "?", "?unknown=1", "?offset=-1"])
def test_a_bootstrap_has_no_parameters_of_its_own(wire: Wire, documents: str, query: str) -> None:
    append(wire, documents, b"[1,2]", headers=JSON)
    assert parts(wire.ask("GET", f"{documents}/bootstrap{query}")) == [EMPTY, *messages(b"1", b"2")]


@pytest.mark.parametrize("method", ["HEAD", "PUT", "POST", "DELETE"])
def test_a_bootstrap_is_only_read(wire: Wire, documents: str, method: str) -> None:
    response = wire.ask(method, f"{documents}/bootstrap", TEXT, b"x")
    assert (response.status, response.headers["allow"]) == (405, "GET, OPTIONS")


# -- 3.2 Response ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("surface", ["", "/ds"])
def test_a_bootstrap_is_the_snapshot_and_each_message_after_it(wire: Wire, documents: str, surface: str) -> None:
    append(wire, documents, b"[1,2,3]", b"4", b'[{"b":1, "a":[ ]},6]', headers=JSON)
    publish(wire, documents, plain(3), b"folded\r\n--x\r\n", {"Content-Type": "text/html; charset=utf-8"})
    response = wire.ask("GET", f"{surface}{documents}/bootstrap")
    assert parts(response) == [
        ("text/html; charset=utf-8", b"folded\r\n--x\r\n"),
        *messages(b"4", b'{"b":1, "a":[ ]}', b"6"),
    ]
    assert response.headers["stream-snapshot-offset"] == plain(3)
    assert response.next_offset == wire.ask("HEAD", documents).next_offset
    assert response.headers["stream-up-to-date"] == "true"
    assert response.headers["cache-control"] == "no-store"
    assert response.headers["stream-incarnation"] == wire.ask("HEAD", documents).headers["stream-incarnation"]
    assert "stream-closed" not in response.headers


def test_without_a_snapshot_the_first_part_is_empty_and_its_offset_minus_one(wire: Wire, text: str) -> None:
    response = wire.ask("GET", f"{text}/bootstrap")
    assert parts(response) == [EMPTY]
    assert (response.headers["stream-snapshot-offset"], response.next_offset) == ("-1", plain(0))
    append(wire, text, b"abc", b"def")
    response = wire.ask("GET", f"{text}/bootstrap")
    assert parts(response) == [EMPTY, *messages(b"abc", b"def", kind="text/plain")]
    assert (response.headers["stream-snapshot-offset"], response.next_offset) == ("-1", plain(6))


def test_a_snapshot_at_the_tail_is_all_there_is(wire: Wire, text: str) -> None:
    append(wire, text, b"abc")
    publish(wire, text, plain(3))
    wire.ask("POST", text, {"Stream-Closed": "true"})
    response = wire.ask("GET", f"{text}/bootstrap")
    assert parts(response) == [("text/plain", b"folded")]
    assert (response.next_offset, response.headers["stream-closed"]) == (plain(3), "true")


def test_an_empty_snapshot_has_its_own_type_and_offset(wire: Wire, text: str) -> None:
    append(wire, text, b"abc")
    publish(wire, text, plain(0), b"", {"Content-Type": "text/html"})
    response = wire.ask("GET", f"{text}/bootstrap")
    assert parts(response) == [("text/html", b""), ("text/plain", b"abc")]
    assert response.headers["stream-snapshot-offset"] == plain(0)


def test_the_messages_of_a_byte_stream_are_its_appends_exactly(wire: Wire, bucket: str) -> None:
    path = made(wire, f"{bucket}/bytes", BYTES, b"\r\n--\r\n\0\xff")
    bodies = [b"\r\n", b"--", b"\n", bytes(range(256)), b"Content-Type: x\r\n\r\ny", b"\r\n\r\n"]
    append(wire, path, *bodies, headers=BYTES)
    assert parts(wire.ask("GET", f"{path}/bootstrap")) == [
        EMPTY,
        *messages(b"\r\n--\r\n\0\xff", *bodies, kind="application/octet-stream"),
    ]


def test_each_frame_of_a_batch_is_a_message(wire: Wire, text: str, bucket: str) -> None:
    producer = {"Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": "0"}
    wire.ask("POST", f"{text}/append-batch", {**TEXT, **producer}, frames(b"one", b"two", b"three"))
    wire.ask("POST", f"{text}/append-batch", TEXT, frames(b"four", b"five"))
    expected = messages(b"one", b"two", b"three", b"four", b"five", kind="text/plain")
    assert parts(wire.ask("GET", f"{text}/bootstrap")) == [EMPTY, *expected]
    publish(wire, text, plain(6))
    assert parts(wire.ask("GET", f"{text}/bootstrap")) == [("text/plain", b"folded"), *expected[2:]]


def test_a_fork_within_a_message_begins_its_own_behind_the_part_that_it_has(wire: Wire, text: str, bucket: str) -> None:
    append(wire, text, b"abc", b"def")
    point = {"Stream-Forked-From": text, "Stream-Fork-Offset": plain(3), "Stream-Fork-Sub-Offset": "2"}
    fork = made(wire, f"{bucket}/fork", point, b"xyz")
    assert parts(wire.ask("GET", f"{fork}/bootstrap")) == [
        EMPTY,
        *messages(b"abc", b"de", b"xyz", kind="text/plain"),
    ]


def test_the_type_of_each_part_is_that_of_the_stream_as_it_was_said(wire: Wire, bucket: str) -> None:
    path = made(wire, f"{bucket}/s", {"Content-Type": "Text/Plain; charset=UTF-8"}, b"abc")
    assert parts(wire.ask("GET", f"{path}/bootstrap"))[1] == ("Text/Plain; charset=UTF-8", b"abc")


def test_the_boundary_is_another_one_each_time(wire: Wire, text: str) -> None:
    found = {wire.ask("GET", f"{text}/bootstrap").headers["content-type"] for _ in range(10)}
    assert len(found) == 10


def test_a_bootstrap_of_no_stream_is_404(wire: Wire, bucket: str, text: str) -> None:
    refused(wire.ask("GET", f"{bucket}/missing/bootstrap"), 404, "stream_not_found")
    made(wire, f"{bucket}/fork", {"Stream-Forked-From": text})
    wire.ask("DELETE", text)
    refused(wire.ask("GET", f"{text}/bootstrap"), 410, "stream_gone")


def test_a_client_of_http_1_0_gets_the_same_parts_and_the_end_of_the_connection(wire: Wire, text: str) -> None:
    append(wire, text, b"abc")
    wire.send(request("GET", f"{text}/bootstrap", version="1.0"))
    response = wire.receive()
    assert "transfer-encoding" not in response.headers
    assert parts(response) == [EMPTY, ("text/plain", b"abc")]


def test_a_bootstrap_renews_a_sliding_lifetime(wire: Wire, bucket: str) -> None:
    path = made(wire, f"{bucket}/s", {**TEXT, "Stream-TTL": "1"})
    for _ in range(8):
        time.sleep(0.2)
        assert wire.ask("GET", f"{path}/bootstrap").status == 200
    assert wire.ask("HEAD", path).status == 200


# -- 3.3 Following up --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("live", ["sse", "long-poll"])
def test_a_bootstrap_is_followed_by_an_ordinary_live_read(
    server: RunningServer, wire: Wire, documents: str, live: str
) -> None:
    append(wire, documents, b"[1,2]", headers=JSON)
    publish(wire, documents, plain(1))
    offset = wire.ask("GET", f"{documents}/bootstrap").next_offset
    with Wire(server.url) as reader:
        reader.send(request("GET", f"{documents}?offset={offset}&live={live}"))
        time.sleep(0.1)
        append(wire, documents, b"3", headers=JSON)
        if live == "long-poll":
            assert reader.receive().body == b"[3]"
        else:
            events = reader.receive_sse()
            assert events.event().control["upToDate"] is True
            assert events.event().data == "[3]"


# -- 3.4 Compatibility -------------------------------------------------------------------------------------------------


def test_a_reader_whose_history_is_gone_starts_over_with_a_bootstrap(wire: Wire, documents: str) -> None:
    append(wire, documents, b"[1,2,3]", headers=JSON)
    publish(wire, documents, plain(2), b"[1,2]", JSON)
    append(wire, documents, b"4", headers=JSON)
    refused(wire.ask("GET", f"{documents}?offset=-1"), 410, "offset_trimmed")
    response = wire.ask("GET", f"{documents}/bootstrap")
    (_, snapshot), *updates = parts(response)
    assert [*json.loads(snapshot), *(json.loads(update) for _, update in updates)] == [1, 2, 3, 4]
    assert wire.ask("GET", f"{documents}?offset={response.next_offset}").body == b"[]"


# -- Concurrent changes -----------------------------------------------------------------------------------------------


def test_a_bootstrap_ends_at_the_tail_that_it_announced_while_a_writer_goes_on(
    server: RunningServer, wire: Wire, documents: str
) -> None:
    stop = threading.Event()

    def write() -> None:
        with Wire(server.url) as writer:
            number = 0
            while not stop.is_set():
                writer.send(
                    b"".join(
                        request("POST", documents, JSON, b'[%d,"%b"]' % (n, b"x" * 300))
                        for n in range(number, number + 30)
                    )
                )
                for _ in range(30):
                    assert writer.receive().status == 204
                number += 30
                if number % 300 == 0:
                    offset = writer.ask("HEAD", documents).next_offset
                    publish(writer, documents, offset, b"up to %d" % number)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for _ in range(60):
            response = wire.ask("GET", f"{documents}/bootstrap")
            (_, snapshot), *updates = parts(response)
            offset = response.headers["stream-snapshot-offset"]
            size = sum(len(update) for _, update in updates)
            assert int(response.next_offset) - max(int(offset), 0) == size
            numbers = [number for _, update in updates if isinstance(number := json.loads(update), int)]
            first = 0 if offset == "-1" else int(snapshot.removeprefix(b"up to "))
            assert numbers == list(range(first, first + len(numbers)))
    finally:
        stop.set()
        thread.join()


def test_a_bootstrap_is_the_same_after_a_crash(tmp_path: Path) -> None:
    def look(wire: Wire) -> list[list[tuple[str, bytes]]]:
        return [parts(wire.ask("GET", f"/agents/{name}/bootstrap")) for name in ("json", "bytes", "fork")]

    with running_server("--image-log-bytes", "2000", data=tmp_path) as server, Wire(server.url) as wire:
        wire.ask("PUT", "/agents")
        made(wire, "/agents/json", JSON, b'[1,{"a" :2},3]')
        append(wire, "/agents/json", b"4", b"[5,6]", headers=JSON)
        publish(wire, "/agents/json", plain(1), b"folded", {"Content-Type": "text/html"})
        made(wire, "/agents/bytes", BYTES, b"\0\xff")
        wire.ask("POST", "/agents/bytes/append-batch", BYTES, frames(b"\r\n", b"--"))
        made(wire, "/agents/fork", {"Stream-Forked-From": "/agents/json"}, b"[7,8]")
        publish(wire, "/agents/json", wire.ask("HEAD", "/agents/json").next_offset, b"later")
        for number in range(50):
            append(wire, "/agents/bytes", b"%d" % number, headers=BYTES)
        before = look(wire)
        assert before[0] == [("text/plain", b"later")]
        assert before[1][:4] == [EMPTY, *messages(b"\0\xff", b"\r\n", b"--", kind="application/octet-stream")]
        assert before[2] == [
            ("text/html", b"folded"),
            *messages(b'{"a" :2}', b"3", b"4", b"5", b"6", b"7", b"8"),
        ]
        server.kill()
    with running_server(data=tmp_path) as server, Wire(server.url) as wire:
        assert look(wire) == before
        wire.ask("DELETE", "/agents/json")
        assert look_at_fork(wire) == before[2]
        server.kill()
    with running_server(data=tmp_path) as server, Wire(server.url) as wire:
        assert look_at_fork(wire) == before[2]


def look_at_fork(wire: Wire) -> list[tuple[str, bytes]]:
    return parts(wire.ask("GET", "/agents/fork/bootstrap"))


@pytest.fixture
def large(tmp_path: Path) -> Iterator[tuple[RunningServer, Wire, bytes, bytes]]:
    """A stream with a snapshot of 48 MiB and 48 MiB after it."""
    snapshot, message = os.urandom(48 * MIB), os.urandom(MIB)
    with running_server(data=tmp_path) as server, Wire(server.url) as wire:
        wire.ask("PUT", "/agents")
        made(wire, "/agents/s", BYTES, b"x")
        publish(wire, "/agents/s", plain(1), snapshot, BYTES)
        append(wire, "/agents/s", *[message] * 48, headers=BYTES)
        yield server, wire, snapshot, message


def test_a_large_bootstrap_to_slow_readers_takes_no_memory(large: tuple[RunningServer, Wire, bytes, bytes]) -> None:
    server, wire, snapshot, message = large
    before = resident_bytes(server.pid)
    readers = [Wire(server.url, receive_buffer_bytes=4096, timeout_seconds=30) for _ in range(8)]
    for reader in readers:
        reader.send(request("GET", "/agents/s/bootstrap"))
    heads = [reader.receive_head()[1] for reader in readers]
    time.sleep(0.5)
    assert resident_bytes(server.pid) - before < 30 * MIB
    wire.ask("DELETE", "/agents/s")
    for reader in readers[1:]:
        reader.close()
    with readers[0] as reader:
        reader.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * MIB)
        found = split(heads[0]["content-type"], b"".join(reader.chunks()))
    assert found[0] == ("application/octet-stream", snapshot)
    assert found[1:] == [("application/octet-stream", message)] * 48
    assert resident_bytes(server.pid) - before < 30 * MIB
