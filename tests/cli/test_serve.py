"""`headwater serve`: what it prints when it is ready, and what signals do."""

import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from headwater.testing import running_server
from headwater.testing.ports import free_port

from ..http.processes import eventually
from ..http.sockets import Wire, request
from .processes import TIMEOUT_SECONDS

TEXT = {"Content-Type": "text/plain"}


# -- Ready -------------------------------------------------------------------------------------------------------------


def test_the_url_is_the_first_thing_printed_and_works_as_soon_as_it_is() -> None:
    command = [sys.executable, "-m", "headwater", "serve", "--port", "0", "--memory"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = re.search(r"http://127\.0\.0\.1:([0-9]+)\b", line)
            assert found is not None, line
            assert found[1] != "0"
            with Wire(found[0]) as wire:
                assert wire.ask("PUT", "/v1/stream/x", TEXT).status == 201
        finally:
            process.terminate()
            assert process.wait(TIMEOUT_SECONDS) == 0


def test_port_0_takes_a_free_port_each_time() -> None:
    with running_server() as first, running_server() as second:
        assert first.url != second.url


def test_a_given_port_is_used() -> None:
    port = free_port()
    with running_server("--port", str(port)) as server:
        assert server.url == f"http://127.0.0.1:{port}"


def test_the_printed_commands_can_be_used_as_they_are() -> None:
    """Every command that the server suggests names its URL."""
    with running_server() as server:
        commands = [line.strip() for line in server.output().splitlines() if "curl" in line]
        assert len(commands) == 3
        assert all(server.url in command for command in commands)


@pytest.mark.skipif(not socket.has_ipv6, reason="this machine has no IPv6")
def test_an_ipv6_address_is_printed_as_a_url() -> None:
    try:
        closing(socket.create_server(("::1", 0), family=socket.AF_INET6)).__exit__()
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    command = [sys.executable, "-m", "headwater", "serve", "--host", "::1", "--port", "0", "--memory"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        assert re.search(r"http://\[::1\]:[0-9]+", process.stdout.readline())
        process.terminate()


# -- Signals -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_answers_long_polls_ends_live_reads_cleanly_and_exits_with_0(number: signal.Signals) -> None:
    path = "/v1/stream/x"
    with (
        running_server() as server,
        Wire(server.url) as poller,
        Wire(server.url) as listener,
        Wire(server.url) as old,
        Wire(server.url) as idle,
    ):
        tail = idle.ask("PUT", path, TEXT, b"abc").next_offset
        poller.send(request("GET", f"{path}?offset=now&live=long-poll"))
        events = listener.open_sse(f"{path}?offset=-1&live=sse")
        assert [event.kind for event in events.events(2)] == ["data", "control"]
        ancient = old.open_sse(f"{path}?offset=now&live=sse", version="1.0")
        assert ancient.event().kind == "control"
        server.process.send_signal(number)
        polled = poller.receive()
        assert (polled.status, polled.next_offset, polled.headers["connection"]) == (204, tail, "close")
        assert poller.ended()
        for live in (events, ancient):
            (last,) = live.rest()
            assert last.control["streamNextOffset"] == tail
            assert "streamClosed" not in last.control
        assert idle.ended()
        assert server.process.wait(TIMEOUT_SECONDS) == 0
        assert "Traceback" not in server.output()


def test_a_stalled_client_does_not_delay_the_shutdown_for_long() -> None:
    with (
        running_server("--drain-seconds", "0.5") as server,
        Wire(server.url) as half,
        Wire(server.url, receive_buffer_bytes=4096) as lazy,
        Wire(server.url) as wire,
    ):
        wire.ask("PUT", "/v1/stream/x", {}, bytes(8 * 1024 * 1024))
        half.send(request("PUT", "/v1/stream/y", TEXT, b"abc")[:-1])
        lazy.send(request("GET", "/v1/stream/x"))
        time.sleep(0.3)
        server.process.terminate()
        # Long before the time-outs for bodies and for slow readers.
        assert server.process.wait(TIMEOUT_SECONDS) == 0


def test_a_draining_server_refuses_new_connections() -> None:
    flags = ("--drain-seconds", "60", "--page-bytes", "8MiB")
    with running_server(*flags) as server, Wire(server.url, receive_buffer_bytes=4096) as lazy:
        with Wire(server.url) as wire:
            wire.ask("PUT", "/v1/stream/x", {}, bytes(8 * 1024 * 1024))
        lazy.send(request("GET", "/v1/stream/x"))
        assert lazy.take(1) == b"H"

        def refused() -> bool:
            with Wire(server.url) as wire:
                return wire.ask("HEAD", "/v1/stream/x").status == 503

        assert not refused()
        server.process.terminate()
        assert eventually(refused, 20)
        assert server.process.poll() is None, "it did not wait for the client that was reading"
        # The running answer is completed; then the server ends.
        assert len(lazy.rest()) > 8 * 1024 * 1024
        assert server.process.wait(TIMEOUT_SECONDS) == 0


def test_acknowledged_data_is_there_after_a_restart(tmp_path: Path) -> None:
    with running_server(data=tmp_path / "data") as server, Wire(server.url) as wire:
        life = wire.ask("PUT", "/v1/stream/x", TEXT, b"abc").headers["stream-incarnation"]
        tag = wire.ask("GET", "/v1/stream/x").headers["etag"]
        assert server.stop() == 0
    with running_server(data=tmp_path / "data") as server, Wire(server.url) as wire:
        response = wire.ask("GET", "/v1/stream/x", {"Stream-Incarnation": life})
        assert (response.body, response.headers["etag"]) == (b"abc", tag)


def test_a_writer_that_is_cut_off_by_the_shutdown_loses_nothing_acknowledged(tmp_path: Path) -> None:
    acknowledged = 0
    with running_server(data=tmp_path / "data") as server, Wire(server.url) as wire:
        wire.ask("PUT", "/v1/stream/x", TEXT)
        wire.send(b"".join(request("POST", "/v1/stream/x", TEXT, b"%05d" % number) for number in range(500)))
        try:
            while True:
                assert wire.receive().status == 204
                acknowledged += 1
                if acknowledged == 100:
                    server.process.terminate()
        except ConnectionError:
            pass
        assert server.process.wait(TIMEOUT_SECONDS) == 0
    with running_server(data=tmp_path / "data") as server, Wire(server.url) as wire:
        body = wire.ask("GET", "/v1/stream/x").body
        assert body == b"".join(b"%05d" % number for number in range(len(body) // 5))
        assert len(body) // 5 >= acknowledged
