"""`headwater serve`: which exit code means what, and how its settings are given."""

import os
import re
import socket
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from headwater.settings import SETTINGS
from headwater.testing import ServerNotStarted, running_server
from headwater.testing.ports import free_port

from ..http.sockets import Wire
from .processes import headwater, sentence, usage_error

TEXT = {"Content-Type": "text/plain"}


# -- Wrong usage: 2 ----------------------------------------------------------------------------------------------------


BAD_FLAGS: dict[str, tuple[str, ...]] = {
    "port": ("--port", "abc"),
    "port that is too high": ("--port", "65536"),
    "long-poll-seconds": ("--long-poll-seconds", "soon"),
    "sse-seconds": ("--sse-seconds", "0"),
    "page-bytes": ("--page-bytes", "0"),
    "journal-file-bytes": ("--journal-file-bytes", "1"),
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
    # A foreign address ends the server at once, should it start.
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
    assert sentence(finished) == (
        f"Cannot listen on 127.0.0.1:{port} (Address already in use); choose another --port, or 0 for a free one."
    )


def test_a_foreign_address_is_a_failure_of_one_sentence() -> None:
    finished = headwater("serve", "--memory", "--no-auth", "--port", "0", "--host", "192.0.2.1")
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


def test_the_version_is_printed() -> None:
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


# -- The lake ----------------------------------------------------------------------------------------------------------


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
def test_contradictory_settings_of_the_lake_are_wrong_usage(flags: list[str], problem: str) -> None:
    assert problem in usage_error(headwater("serve", "--port", "0", *flags))


def test_an_invalid_lake_url_is_reported_in_one_sentence(tmp_path: Path) -> None:
    finished = headwater("serve", "--port", "0", "--data", str(tmp_path / "data"), "--lake", "ftp://example.org/lake")
    assert finished.returncode == 1
    assert "is not a valid lake URL" in sentence(finished)
