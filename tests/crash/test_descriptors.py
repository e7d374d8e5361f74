"""A server whose file descriptors are used up: writes are refused in the right words, and the process lives."""

import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from headwater.testing import RunningServer, running_server

from ..http.sockets import Wire

TEXT = {"Content-Type": "text/plain"}
FLAGS = ("--journal-file-bytes", "65536", "--image-log-bytes", "65536", "--flush-bytes-max", "65536")
DEADLINE_SECONDS = 30.0


@contextmanager
def no_descriptors(server: RunningServer) -> Iterator[None]:
    """Allow a server no more files than it has open, as if its connections had used up all the others."""
    before = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (3, before[1]))
    try:
        yield
    finally:
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, before)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_server_without_descriptors_lives_says_so_and_recovers(tmp_path: Path) -> None:
    with running_server(*FLAGS, data=tmp_path) as server, Wire(server.url, timeout_seconds=30) as wire:
        for path in ("/team", "/team/orders", "/team/other"):
            assert wire.ask("PUT", path, TEXT).status == 201
        written = 0
        with no_descriptors(server):
            # The journal rotates, but no spare can be made for the next time; images and flushes fail meanwhile.
            while (response := wire.ask("POST", "/team/orders", TEXT, b"x" * 5000)).status == 204:
                written += 5000
                assert written < 1_000_000
            assert response.status == 503
            assert "too many files and connections open" in response.problem["detail"]
            assert wire.ask("PUT", f"/team/other/snapshot/{0:020}", TEXT, b"state").status == 503
            assert wire.ask("GET", "/metrics").status == 200
            assert wire.ask("DELETE", "/team/other").status == 204
            assert wire.ask("GET", "/healthz").status == 200
        until(lambda: wire.ask("POST", "/team/orders", TEXT, b"y" * 5000).status == 204)
        assert wire.ask("HEAD", "/team/orders").status == 200
        assert server.process.poll() is None
        assert "disk is full" not in server.output()
    with running_server(*FLAGS, data=tmp_path) as server, Wire(server.url) as wire:
        length = len(wire.ask("GET", "/team/orders?offset=-1").body)
        assert length == written + 5000
