"""The command line is a contract: what is printed, what a signal does, which exit code says what."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest

from headwater.settings import SETTINGS
from headwater.testing import ServerNotStarted, running_server

from ..http.processes import eventually
from ..http.sockets import Wire, request

TEXT = {"Content-Type": "text/plain"}
TIMEOUT_SECONDS = 30.0


def headwater(*arguments: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "headwater", *arguments],
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )


def usage_error(finished: subprocess.CompletedProcess[str]) -> str:
    """What a command says of itself when it was used wrongly; for what the parser finds, the parser finds the words."""
    assert finished.returncode == 2
    assert "Traceback" not in finished.stderr, finished.stderr
    assert finished.stdout == ""
    errors = [line for line in finished.stderr.splitlines() if line.startswith("Error: ")]
    assert len(errors) == 1, finished.stderr
    return errors[0].removeprefix("Error: ")


def sentence(finished: subprocess.CompletedProcess[str]) -> str:
    """The one sentence that says why a command failed; nothing else but how to use it may be printed."""
    assert "Traceback" not in finished.stderr, finished.stderr
    assert finished.stdout == ""
    errors = [line for line in finished.stderr.splitlines() if line.startswith("Error: ")]
    assert len(errors) == 1, finished.stderr
    text = errors[0].removeprefix("Error: ")
    assert text.endswith("."), text
    assert not re.search(r"[.!?]\s+[A-Z]", text), f"more than one sentence: {text}"
    return text


def free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        assert isinstance(port, int)
        return port


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


def test_a_given_port_is_taken() -> None:
    port = free_port()
    with running_server("--port", str(port)) as server:
        assert server.url == f"http://127.0.0.1:{port}"


def test_what_is_printed_can_be_tried_at_once() -> None:
    """The commands that the server suggests are right: every one names the URL, and the streams it speaks of work."""
    with running_server() as server:
        commands = [line.strip() for line in server.output().splitlines() if "curl" in line]
        assert len(commands) == 3
        assert all(server.url in command for command in commands)


@pytest.mark.skipif(not socket.has_ipv6, reason="this machine has no IPv6")
def test_an_ipv6_address_is_printed_as_a_url_wants_it() -> None:
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


def test_a_client_that_keeps_the_server_waiting_does_not_keep_it_for_long() -> None:
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
        # Long before a body, or a reader that does not read, would be given up otherwise.
        assert server.process.wait(TIMEOUT_SECONDS) == 0


def test_while_it_drains_nobody_new_is_let_in() -> None:
    with running_server("--drain-seconds", "60") as server, Wire(server.url, receive_buffer_bytes=4096) as lazy:
        with Wire(server.url) as wire:
            wire.ask("PUT", "/v1/stream/x", {}, bytes(8 * 1024 * 1024))
        lazy.send(request("GET", "/v1/stream/x"))
        assert lazy.take(1) == b"H"

        def turned_away() -> bool:
            with Wire(server.url) as wire:
                return wire.ask("HEAD", "/v1/stream/x").status == 503

        assert not turned_away()
        server.process.terminate()
        assert eventually(turned_away, 20)
        assert server.process.poll() is None, "it did not wait for the client that was being answered"
        # The answer that was under way comes to its end, and the server with it.
        assert len(lazy.rest()) > 8 * 1024 * 1024
        assert server.process.wait(TIMEOUT_SECONDS) == 0


def test_what_was_acknowledged_is_there_after_a_restart(tmp_path: Path) -> None:
    with running_server(data=tmp_path / "data") as server, Wire(server.url) as wire:
        life = wire.ask("PUT", "/v1/stream/x", TEXT, b"abc").headers["stream-incarnation"]
        tag = wire.ask("GET", "/v1/stream/x").headers["etag"]
        assert server.stop() == 0
    with running_server(data=tmp_path / "data") as server, Wire(server.url) as wire:
        response = wire.ask("GET", "/v1/stream/x", {"Stream-Incarnation": life})
        assert (response.body, response.headers["etag"]) == (b"abc", tag)


def test_a_writer_that_is_cut_off_by_the_end_lost_nothing_that_was_acknowledged(tmp_path: Path) -> None:
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


# -- Wrong usage: 2 ----------------------------------------------------------------------------------------------------

BAD_FLAGS: dict[str, tuple[str, ...]] = {
    "port": ("--port", "abc"),
    "port that is too high": ("--port", "65536"),
    "long-poll-seconds": ("--long-poll-seconds", "soon"),
    "sse-seconds": ("--sse-seconds", "0"),
    "page-bytes": ("--page-bytes", "0"),
    "segment-bytes": ("--segment-bytes", "1"),
    "connections-max": ("--connections-max", "1.5"),
    "drain-seconds": ("--drain-seconds", "nan"),
    "idle-seconds": ("--idle-seconds", ""),
}


@pytest.mark.parametrize("flags", BAD_FLAGS.values(), ids=BAD_FLAGS)
def test_a_bad_value_is_wrong_usage_and_the_sentence_names_the_setting(flags: tuple[str, ...]) -> None:
    finished = headwater("serve", "--memory", "--port", "0", *flags)
    assert finished.returncode == 2
    assert flags[0].removeprefix("--") in sentence(finished).replace("_", "-")


@pytest.mark.parametrize("flags", [("--no-such-flag",), ("--port",), ("leftover",), ("--memory=yes",)])
def test_a_flag_that_does_not_exist_is_wrong_usage(flags: tuple[str, ...]) -> None:
    assert flags[0].split("=")[0] in usage_error(headwater("serve", "--port", "0", "--memory", *flags))


def test_an_unknown_command_is_wrong_usage() -> None:
    assert "sreve" in usage_error(headwater("sreve"))


def test_memory_and_a_data_directory_exclude_each_other(tmp_path: Path) -> None:
    # An address that is not ours ends the server at once, should it have begun.
    finished = headwater("serve", "--host", "192.0.2.1", "--memory", "--data", str(tmp_path / "data"))
    assert finished.returncode == 2
    text = sentence(finished)
    assert "memory" in text
    assert "data" in text


BAD_FILES: dict[str, str] = {
    "an unknown setting": "prot = 80",
    "a value of the wrong kind": 'port = "http"',
    "not TOML": "port: 80",
    "not UTF-8": "port = 80 # \udcff",
}


@pytest.mark.parametrize("content", BAD_FILES.values(), ids=BAD_FILES)
def test_a_bad_settings_file_is_wrong_usage(tmp_path: Path, content: str) -> None:
    config = tmp_path / "headwater.toml"
    config.write_bytes(content.encode("utf-8", "surrogateescape"))
    finished = headwater("serve", "--memory", "--config", str(config))
    assert finished.returncode == 2
    sentence(finished)


def test_a_missing_settings_file_is_wrong_usage_and_named(tmp_path: Path) -> None:
    finished = headwater("serve", "--memory", "--config", str(tmp_path / "missing.toml"))
    assert finished.returncode == 2
    assert "missing.toml" in sentence(finished)


def test_a_bad_value_in_the_environment_is_wrong_usage() -> None:
    finished = headwater("serve", "--memory", env={"HEADWATER_PORT": "http"})
    assert finished.returncode == 2
    assert "port" in sentence(finished).lower()


# -- Failed: 1 ---------------------------------------------------------------------------------------------------------


def test_a_port_in_use_is_a_failure_of_one_sentence() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        finished = headwater("serve", "--memory", "--port", str(port))
    assert finished.returncode == 1
    assert str(port) in sentence(finished)


def test_an_address_that_is_not_ours_is_a_failure_of_one_sentence() -> None:
    finished = headwater("serve", "--memory", "--port", "0", "--host", "192.0.2.1")
    assert finished.returncode == 1
    assert "192.0.2.1" in sentence(finished)


def test_a_second_server_on_one_data_directory_refuses_to_start_and_says_who_holds_it(tmp_path: Path) -> None:
    with running_server(data=tmp_path) as server:
        finished = headwater("serve", "--port", "0", "--data", str(tmp_path))
        assert finished.returncode == 1
        text = sentence(finished)
        assert str(server.pid) in text
        assert str(tmp_path) in text


def test_a_data_directory_that_cannot_be_made_is_a_failure_of_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    finished = headwater("serve", "--port", "0", "--data", str(tmp_path / "file" / "data"))
    assert finished.returncode == 1
    assert str(tmp_path / "file") in sentence(finished)


# -- Done: 0 -----------------------------------------------------------------------------------------------------------


def test_help_names_every_setting_with_its_default() -> None:
    finished = headwater("serve", "--help")
    assert (finished.returncode, finished.stderr) == (0, "")
    text = re.sub(r"\s+", " ", finished.stdout)
    for setting in SETTINGS.values():
        assert setting.flag in text
        if setting.kind is not bool and setting.default != "":
            assert f"[default: {setting.render(setting.default)}]" in text
        if setting.choices:
            assert f"[{'|'.join(setting.choices)}]" in text


def test_the_version_is_told() -> None:
    finished = headwater("--version")
    assert finished.returncode == 0
    assert re.search(r"[0-9]+\.[0-9]+\.[0-9]+", finished.stdout)


# -- Settings: a file, then the environment, then flags ----------------------------------------------------------------


def test_the_environment_overrides_the_file_and_a_flag_overrides_both(tmp_path: Path) -> None:
    in_file, in_environment, in_flag = free_port(), free_port(), free_port()
    config = tmp_path / "headwater.toml"
    config.write_text(f"port = {in_file}\nmemory = true\n")
    command = [sys.executable, "-m", "headwater", "serve", "--config", str(config)]

    def port(*flags: str, **environment: str) -> int:
        with subprocess.Popen(
            [*command, *flags],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, **environment},
        ) as process:
            try:
                assert process.stdout is not None
                found = re.search(r"http://127\.0\.0\.1:([0-9]+)", process.stdout.readline())
                assert found is not None
                return int(found[1])
            finally:
                process.terminate()

    assert port() == in_file
    assert port(HEADWATER_PORT=str(in_environment)) == in_environment
    assert port("--port", str(in_flag), HEADWATER_PORT=str(in_environment)) == in_flag
    assert port("--port", str(in_flag)) == in_flag


def test_a_setting_of_the_environment_takes_effect() -> None:
    with running_server(env={"HEADWATER_LONG_POLL_SECONDS": "0.2"}) as server, Wire(server.url) as wire:
        wire.ask("PUT", "/v1/stream/x", TEXT)
        began = time.monotonic()
        assert wire.ask("GET", "/v1/stream/x?offset=now&live=long-poll").status == 204
        assert time.monotonic() - began < 10


# -- The lake ---------------------------------------------------------------------------------------------------------


def test_a_lake_has_one_owner(tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    with running_server("--lake", lake, data=tmp_path / "first") as server, Wire(server.url) as wire:
        wire.ask("PUT", "/v1/stream/x", TEXT, b"abc")
        assert wire.ask("POST", "/__headwater/flush").status == 200
    theirs = pytest.raises(ServerNotStarted, match=r"belongs to another server \(log [0-9a-f]+\)")
    with theirs, running_server("--lake", lake, data=tmp_path / "second"):
        pass
    with running_server("--lake", lake, data=tmp_path / "first") as server, Wire(server.url) as wire:
        assert wire.ask("GET", "/v1/stream/x").body == b"abc"


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (["--memory", "--lake", "lake"], "--lake and --memory exclude each other"),
        (["--flush-concurrency", "0"], "--flush-concurrency is '0', but it takes a whole number from 1 to 16"),
    ],
)
def test_a_lake_that_makes_no_sense_is_wrong_usage(flags: list[str], problem: str) -> None:
    assert problem in usage_error(headwater("serve", "--port", "0", *flags))


def test_a_lake_that_is_no_place_is_told_in_one_sentence(tmp_path: Path) -> None:
    finished = headwater("serve", "--port", "0", "--data", str(tmp_path / "data"), "--lake", "ftp://example.org/lake")
    assert finished.returncode == 1
    assert "is not a valid lake URL" in sentence(finished)
