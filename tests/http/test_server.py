"""The server as a whole: how it shuts down under load, and whom it answers when it is full."""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from headwater.http.server import Server
from headwater.protocol.limits import RESERVED_CONNECTIONS
from headwater.settings import Settings
from headwater.testing import RunningServer, running_server

from ..node.lake.lakes import bench
from .processes import eventually
from .sockets import Ended, Response, Wire, refused, request

TEXT = {"Content-Type": "text/plain"}
PATH = "/v1/stream/s"


def post(body: bytes) -> bytes:
    return request("POST", PATH, TEXT, body)


# -- Shutting down -----------------------------------------------------------------------------------------------------


def sending(wire: Wire, unanswered: threading.Semaphore) -> threading.Thread:
    """Send one append after the other until the server takes no more; all unread answers fit into a socket."""

    def send() -> None:
        with suppress(OSError):
            for number in range(100_000):
                if not unanswered.acquire(timeout=3):
                    break
                wire.send(post(b"%d," % number))

    thread = threading.Thread(target=send)
    thread.start()
    return thread


def test_every_write_that_was_applied_before_a_shutdown_has_its_answer(tmp_path: Path) -> None:
    answers, unanswered = 0, threading.Semaphore(48)
    with running_server(data=tmp_path) as server, Wire(server.url) as wire:
        assert wire.ask("PUT", PATH, TEXT).status == 201
        thread = sending(wire, unanswered)
        try:
            with suppress(Ended, ConnectionResetError):
                while True:
                    assert wire.receive().status == 204
                    unanswered.release()
                    answers += 1
                    if answers == 200:
                        server.process.terminate()
        finally:
            wire.close()
            thread.join(30)
        assert server.process.wait(30) == 0
    with running_server(data=tmp_path) as server, Wire(server.url) as wire:
        written = b"".join(page.body for page in pages(wire))
        assert written == b"".join(b"%d," % number for number in range(answers))


def pages(wire: Wire) -> Iterator[Response]:
    offset = "-1"
    while True:
        page = wire.ask("GET", f"{PATH}?offset={offset}")
        yield page
        if "stream-up-to-date" in page.headers:
            return
        offset = page.next_offset


def test_a_shutdown_answers_a_whole_pipeline_behind_a_long_poll() -> None:
    with running_server() as server, Wire(server.url) as wire, Wire(server.url) as other:
        assert other.ask("PUT", PATH, TEXT).status == 201
        poll = request("GET", f"{PATH}?offset=now&live=long-poll&timeout_ms=60000")
        wire.send(poll + request("POST", "/v1/stream/none", TEXT, b"x") + request("GET", PATH) + poll + poll)
        assert wire.silent_for(0.2)
        server.process.terminate()
        assert [wire.receive().status for _ in range(4)] == [204, 404, 200, 204]
        last = wire.receive()
        assert (last.status, last.headers["connection"]) == (204, "close")
        assert wire.ended()
        wire.close()
        assert server.process.wait(8) == 0


def test_a_shutdown_ends_a_live_read_that_waited_behind_another() -> None:
    with running_server() as server, Wire(server.url) as wire, Wire(server.url) as other:
        assert other.ask("PUT", PATH, TEXT, b"abc").status == 201
        poll = request("GET", f"{PATH}?offset=now&live=long-poll&timeout_ms=60000")
        wire.send(poll + request("GET", f"{PATH}?offset=-1&live=sse"))
        assert wire.silent_for(0.2)
        server.process.terminate()
        assert wire.receive().status == 204
        assert [event.data for event in wire.receive_sse().rest() if event.kind == "data"] == ["abc"]
        assert server.process.wait(8) == 0


def test_requests_before_a_malformed_one_have_all_the_time_they_need() -> None:
    poll = request("GET", f"{PATH}?offset=now&live=long-poll&timeout_ms=60000")
    with running_server("--header-seconds", "1") as server, Wire(server.url) as wire, Wire(server.url) as reader:
        assert wire.ask("PUT", PATH, TEXT).status == 201
        reader.send(poll + b"nonsense\r\n\r\n")
        assert reader.silent_for(4)
        assert wire.ask("POST", PATH, TEXT, b"late").status == 204
        assert reader.receive().body == b"late"
        assert reader.receive().status == 400
        assert reader.ended()


# -- Full --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def full() -> Iterator[RunningServer]:
    """A server on which all connections are taken."""
    with running_server("--connections-max", "3") as server, ExitStack() as stack:
        wires = [stack.enter_context(Wire(server.url)) for _ in range(3)]
        assert [wire.ask("GET", PATH).status for wire in wires] == [404] * 3
        yield server


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
def test_a_server_without_a_free_connection_says_how_it_is(full: RunningServer, method: str, path: str) -> None:
    for _ in range(5):
        with Wire(full.url) as wire:
            response = wire.ask(method, path)
            assert (response.status, response.headers["connection"]) == (200, "close")
            assert wire.ended()


@pytest.mark.parametrize("data", [request("GET", PATH), request("PUT", PATH, TEXT, bytes(1000)), request("GET", "/")])
def test_a_server_without_a_free_connection_does_nothing_else(full: RunningServer, data: bytes) -> None:
    with Wire(full.url) as wire:
        refused(wire.ask_raw(data), 503, "overloaded")
        assert wire.ended()


def test_nothing_behind_a_question_on_a_reserved_connection_is_done(full: RunningServer) -> None:
    with Wire(full.url) as wire:
        wire.send(request("GET", "/healthz") + request("PUT", PATH, TEXT))
        assert wire.receive().status == 200
        assert wire.ended()
    with Wire(full.url) as wire:
        assert wire.ask("GET", "/healthz").status == 200


def test_a_body_is_refused_before_it_is_sent_when_no_connection_is_free(full: RunningServer) -> None:
    with Wire(full.url) as wire:
        wire.send(request("PUT", PATH, {**TEXT, "Content-Length": "1000000", "Expect": "100-continue"}))
        refused(wire.receive(), 503, "overloaded")
        assert wire.ended()


def test_silent_connections_do_not_take_the_reserve(full: RunningServer) -> None:
    with ExitStack() as stack:
        for _ in range(RESERVED_CONNECTIONS + 50):
            stack.enter_context(Wire(full.url))
        began = time.monotonic()
        with Wire(full.url) as wire:
            assert wire.ask("GET", "/healthz").status == 200
        assert time.monotonic() - began < 5


def test_a_connection_that_becomes_free_is_given_to_the_next_client() -> None:
    with running_server("--connections-max", "2") as server, Wire(server.url) as first:
        second = Wire(server.url)
        assert [wire.ask("GET", PATH).status for wire in (first, second)] == [404, 404]
        with Wire(server.url) as lingering:
            lingering.send(request("GET", PATH))
            refused(lingering.receive(), 503, "overloaded")
            second.close()

            def is_welcome() -> bool:
                with Wire(server.url) as next_one:
                    return next_one.ask("GET", PATH).status == 404

            assert eventually(is_welcome)


# -- While it starts ---------------------------------------------------------------------------------------------------


def test_a_connection_that_says_nothing_while_the_server_starts_is_closed() -> None:
    async def run() -> None:
        server = Server(Settings(port=0, header_seconds=0.2))
        url = await server.listen()
        with Wire(url) as wire:
            rest = asyncio.get_running_loop().run_in_executor(None, wire.socket.recv, 1)
            assert await asyncio.wait_for(rest, timeout=10) == b""
        await server.drain()

    asyncio.run(run())


def test_a_page_may_read_that_the_server_starts() -> None:
    def ask(url: str) -> Response:
        with Wire(url) as wire:
            return wire.ask("GET", PATH, {"Origin": "https://app.example"})

    async def run() -> None:
        server = Server(Settings(port=0, no_auth=True))
        url = await server.listen()
        response = await asyncio.get_running_loop().run_in_executor(None, ask, url)
        await server.drain()
        refused(response, 503, "draining")
        assert response.headers["access-control-allow-origin"] == "*"
        assert response.headers["access-control-expose-headers"] == "*"

    asyncio.run(run())


# -- Two servers in one process ----------------------------------------------------------------------------------------


def test_the_settings_of_a_server_do_not_change_what_another_one_sends() -> None:
    def ask(url: str) -> Response:
        with Wire(url) as wire:
            return wire.ask("GET", "/healthz", {"Origin": "https://b.example"})

    async def run() -> None:
        in_thread = asyncio.get_running_loop().run_in_executor
        async with bench() as node:
            servers = [
                Server(Settings(port=0, no_auth=True)),
                Server(Settings(port=0, cors_origins="https://a.example")),
            ]
            urls = [await server.listen() for server in servers]
            starting = [await in_thread(None, ask, url) for url in urls]
            for server in servers:
                server.serve(node.node)
            ready = [await in_thread(None, ask, url) for url in urls]
            for server in servers:
                await server.drain()
        for open_to_all, limited in (starting, ready):
            assert [open_to_all.status, limited.status] == [200, 200]
            assert open_to_all.headers["access-control-allow-origin"] == "*"
            assert "access-control-allow-origin" not in limited.headers

    asyncio.run(run())
