"""Connections that carry several requests at once: what they begin, what they cost others, and how they end."""

import time
from contextlib import ExitStack

import pytest

from headwater.http.connection.connection import PIPELINE_MAX
from headwater.testing import RunningServer, running_server

from ..processes import eventually, open_files
from ..sockets import Response, Wire, request

MIB = 1024 * 1024
TEXT = {"Content-Type": "text/plain"}


def post(path: str, body: bytes) -> bytes:
    return request("POST", path, TEXT, body)


def live_readers(server: RunningServer) -> int:
    with Wire(server.url) as wire:
        lines = wire.ask("GET", "/metrics").body.decode().splitlines()
    [count] = [line.split()[1] for line in lines if line.startswith("headwater_live_readers ")]
    return int(float(count))


def poll(path: str, offset: str = "now") -> bytes:
    return request("GET", f"{path}?offset={offset}&live=long-poll&timeout_ms=60000")


# -- Pipelines of live reads -------------------------------------------------------------------------------------------


def test_thousands_of_pipelined_long_polls_hold_up_nobody(server: RunningServer, wire: Wire, text: str) -> None:
    before = live_readers(server)
    with Wire(server.url) as greedy:
        greedy.send(2000 * poll(text))
        assert eventually(lambda: live_readers(server) == before + 1)
        assert wire.ask("POST", text, TEXT, b"a").status == 204
        began = time.monotonic()
        with Wire(server.url) as other:
            assert other.ask("GET", "/healthz").status == 200
        assert time.monotonic() - began < 1
        assert greedy.receive().body == b"a"
        assert eventually(lambda: live_readers(server) == before + 1)

    def has_gone() -> bool:
        # The server does not read from a client with so many requests: it notices that the client left when it writes.
        assert wire.ask("POST", text, TEXT, b"b").status == 204
        return live_readers(server) == before

    assert eventually(has_gone)


def test_each_of_many_pipelined_long_polls_is_answered_in_turn(server: RunningServer, wire: Wire, text: str) -> None:
    with Wire(server.url) as reader:
        reader.send(200 * poll(text))
        for number in range(200):
            assert wire.ask("POST", text, TEXT, b"%d" % number).status == 204
            assert reader.receive().body.startswith(b"%d" % number)


def test_a_read_behind_a_waiting_long_poll_is_done_when_that_has_its_answer(wire: Wire, text: str) -> None:
    with Wire(f"http://127.0.0.1:{wire.socket.getpeername()[1]}") as reader:
        reader.send(poll(text) + request("GET", text))
        assert reader.silent_for(0.2)
        wire.send(post(text, b"a") + post(text, b"b"))
        assert wire.receive().status == wire.receive().status == 204
        assert reader.receive().body in (b"a", b"ab")
        assert reader.receive().body in (b"a", b"ab")


def test_a_live_read_that_began_late_drops_what_came_behind_it(server: RunningServer, wire: Wire, text: str) -> None:
    with Wire(server.url) as reader:
        reader.send(poll(text) + request("GET", f"{text}?offset=-1&live=sse") + post(text, b"never") * 100)
        assert reader.silent_for(0.2)
        assert wire.ask("POST", text, TEXT, b"once").status == 204
        assert reader.receive().body == b"once"
        events = reader.receive_sse()
        assert events.event().data == "once"
    assert wire.ask("GET", text).body == b"once"


# -- More requests than a connection may have at once ------------------------------------------------------------------


def test_a_pipeline_longer_than_the_limit_is_answered_to_its_end(wire: Wire, text: str) -> None:
    count = 10 * PIPELINE_MAX
    wire.send(b"".join(post(text, b"%d," % number) for number in range(count)) + request("GET", text))
    assert [wire.receive().status for _ in range(count)] == [204] * count
    assert wire.receive().body == b"".join(b"%d," % number for number in range(count))


def test_reads_that_wait_for_a_write_make_room_for_those_behind_them(wire: Wire, text: str) -> None:
    count = 5 * PIPELINE_MAX
    wire.send(post(text, b"a") + count * request("GET", text) + post(text, b"b") + request("GET", text))
    assert wire.receive().status == 204
    assert {wire.receive().body for _ in range(count)} == {b"a"}
    assert wire.receive().status == 204
    assert wire.receive().body == b"ab"


def test_what_arrives_behind_a_full_pipeline_is_answered_later(server: RunningServer, wire: Wire, text: str) -> None:
    with Wire(server.url) as reader:
        reader.send(poll(text) + post(f"{text}-other", b"x") * (2 * PIPELINE_MAX))
        time.sleep(0.2)
        reader.send(request("GET", text) * 3 + request("GET", text, {"Connection": "close"}) + request("DELETE", text))
        assert wire.ask("POST", text, TEXT, b"a").status == 204
        assert reader.receive().body == b"a"
        assert {reader.receive().status for _ in range(2 * PIPELINE_MAX)} == {404}
        last: list[Response] = [reader.receive() for _ in range(4)]
        assert [response.body for response in last] == [b"a"] * 4
        assert reader.ended()
    assert wire.ask("HEAD", text).status == 200


def test_a_pipeline_of_offers_to_upgrade_is_answered_to_its_end(wire: Wire, text: str) -> None:
    offer = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": "AAMAAABkAAQAAP__"}
    wire.send(1500 * request("HEAD", text, offer) + 200 * request("POST", text, {**TEXT, **offer}, b"x"))
    assert {wire.receive(bodiless=True).status for _ in range(1500)} == {200}
    assert [wire.receive().status for _ in range(200)] == [204] * 200
    assert wire.ask("GET", text).body == b"x" * 200


def test_large_pipelined_appends_are_all_taken(wire: Wire, text: str) -> None:
    bodies = [b"%d" % number * 60_000 for number in range(10)] * 6
    wire.send(b"".join(post(text, body) for body in bodies))
    assert [wire.receive().status for _ in bodies] == [204] * len(bodies)


# -- Clients that read slowly ------------------------------------------------------------------------------------------


def test_a_reader_that_is_slow_but_steady_gets_everything() -> None:
    """It takes several times as long as a reader may leave its socket unread."""
    body = bytes(range(256)) * (8 * MIB // 256)
    with running_server("--slow-reader-seconds", "1", "--page-bytes", "8MiB") as server, Wire(server.url) as wire:
        assert wire.ask("PUT", "/v1/stream/large", {}, body).status == 201
        with Wire(server.url, receive_buffer_bytes=4096) as slow:
            slow.send(request("GET", "/v1/stream/large"))
            _, headers, _ = slow.receive_head()
            assert int(headers["content-length"]) == len(body)
            received = b""
            until = time.monotonic() + 5
            while time.monotonic() < until:
                received += slow.take(4096)
                time.sleep(0.05)
            assert len(received) < len(body) // 2
            assert received + slow.take(len(body) - len(received)) == body


def test_a_request_that_does_not_end_is_refused_even_if_its_client_read_slowly_before() -> None:
    with running_server("--header-seconds", "1", "--page-bytes", "8MiB") as server, Wire(server.url) as wire:
        assert wire.ask("PUT", "/v1/stream/large", {}, bytes(8 * MIB)).status == 201
        with Wire(server.url, receive_buffer_bytes=4096) as slow:
            poll_briefly = request("GET", "/v1/stream/large?offset=now&live=long-poll&timeout_ms=1500")
            slow.send(request("GET", "/v1/stream/large") + poll_briefly + b"GET /v1/stream/lar")
            assert slow.receive().body == bytes(8 * MIB)
            assert {slow.receive().status, slow.receive().status} == {204, 408}
            assert slow.ended()


@pytest.mark.parametrize("headers", [{}, {"Connection": "close"}], ids=["kept", "closed"])
def test_a_reader_that_leaves_less_unread_than_is_buffered_is_cut(headers: dict[str, str]) -> None:
    """How much the system takes of a response varies, so this tries responses that leave a little of every size."""
    flags = ("--slow-reader-seconds", "1", "--idle-seconds", "1", "--page-bytes", "8MiB")
    with running_server(*flags) as server, Wire(server.url) as wire, ExitStack() as stack:
        assert wire.ask("PUT", "/v1/stream/large", {}, bytes(8 * MIB)).status == 201
        files = open_files(server.pid)
        for size in range(MIB // 8, 6 * MIB, MIB // 8):
            lazy = stack.enter_context(Wire(server.url, receive_buffer_bytes=4096))
            lazy.send(request("GET", f"/v1/stream/large?offset=-1&max_bytes={size}", headers))
        assert eventually(lambda: open_files(server.pid) <= files, 20)


def test_a_reader_that_takes_nothing_is_cut() -> None:
    with running_server("--slow-reader-seconds", "1", "--page-bytes", "8MiB") as server, Wire(server.url) as wire:
        assert wire.ask("PUT", "/v1/stream/large", {}, bytes(16 * MIB)).status == 201
        files = open_files(server.pid)
        with Wire(server.url, receive_buffer_bytes=4096) as lazy:
            lazy.send(request("GET", "/v1/stream/large"))
            assert eventually(lambda: open_files(server.pid) == files + 1)
            assert eventually(lambda: open_files(server.pid) == files)
