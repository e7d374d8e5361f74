import signal
import urllib.request
from pathlib import Path

import pytest

from headwater.testing import ServerNotStarted, running_server


def test_a_running_server_answers_and_stops_with_exit_code_0(tmp_path: Path) -> None:
    with running_server(data=tmp_path / "data") as server:
        create = urllib.request.Request(f"{server.url}/v1/stream/orders", method="PUT")
        with urllib.request.urlopen(create) as response:
            assert response.status == 201
        assert server.stop() == 0, server.output()


def test_a_killed_server_is_gone_at_once() -> None:
    with running_server() as server:
        server.kill()
        assert server.process.returncode == -signal.SIGKILL


def test_no_server_outlives_its_block() -> None:
    with running_server() as server:
        pass
    assert server.process.returncode == 0


def test_a_server_that_does_not_start_says_why() -> None:
    with pytest.raises(ServerNotStarted, match="--no-such-flag"), running_server("--no-such-flag"):
        pass
