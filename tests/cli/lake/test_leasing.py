"""With --server, a command holds a lease on the lake while it reads, and gives it back."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.cli.lake.opening import leased
from headwater.client import Admin, Client
from headwater.testing import RunningServer, running_server

from .commands import headwater, output


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def server(data: Path) -> Iterator[RunningServer]:
    with running_server(data=data) as server:
        with Client(server.url) as client, Admin(server.url) as admin:
            client.stream("notes").create("text/plain", body="hello")
            admin.flush()
        yield server


def test_a_lease_is_held_and_renewed_while_the_block_runs_and_given_back(server: RunningServer) -> None:
    with Admin(server.url) as admin:
        with leased(server.url, {}, renew_seconds=0.05):
            (held,) = admin.consumers()
            assert held.lease and held.name.startswith("lake-command-")
            pause = threading.Event()
            for _ in range(200):
                (renewed,) = admin.consumers()
                if renewed.committed_at_ms > held.committed_at_ms:
                    break
                pause.wait(0.05)
            assert renewed.committed_at_ms > held.committed_at_ms
        assert admin.consumers() == []


@pytest.mark.parametrize(
    "arguments", [["ls"], ["ls", "--streams"], ["show"], ["verify"], ["sql", "select count(*) from messages"]]
)
def test_every_command_takes_a_server(server: RunningServer, data: Path, arguments: list[str]) -> None:
    verb, *more = arguments
    expected = output(verb, "--data", str(data), *more)
    assert output(verb, "--data", str(data), "--server", server.url, *more) == expected
    with Admin(server.url) as admin:
        assert admin.consumers() == []


def test_the_url_of_the_server_is_checked(written_lake: str) -> None:
    finished = headwater("lake", "show", written_lake, "--server", "http://127.0.0.1:9/?x")
    assert finished.returncode == 2
    assert "has a query or a fragment" in finished.stderr


@pytest.fixture
def written_lake(server: RunningServer, data: Path) -> str:
    return str(data / "lake")


def test_an_object_that_is_gone_is_said_to_be_gone(written_lake: str) -> None:
    next(Path(written_lake).glob("segments/*/*.parquet")).unlink()
    for arguments in (["sql", written_lake, "select max(payload) from messages"], ["ls", written_lake, "--streams"]):
        finished = headwater("lake", *arguments)
        assert finished.returncode == 1
        assert "although the catalog lists it; the server may have replaced it since" in finished.stderr
