"""A server that may open few files: it takes fewer connections, and has descriptors left for its own files."""

import json
import re
import time
from contextlib import ExitStack
from pathlib import Path

from headwater.testing import running_server

from .processes import eventually, open_files
from .sockets import Wire, refused

TEXT = {"Content-Type": "text/plain"}
FILES_MAX = 256
LOWERED = re.compile(r"only (\d+) connections instead of 20000, because of the limit on open files")


def test_idle_connections_leave_descriptors_for_the_journal(tmp_path: Path) -> None:
    with (
        running_server("--journal-file-bytes", "64KiB", data=tmp_path, files_max=FILES_MAX) as server,
        ExitStack() as idle,
    ):
        assert eventually(lambda: LOWERED.search(server.output()) is not None), server.output()
        said = LOWERED.search(server.output())
        assert said is not None
        allowed = int(said[1])
        assert 16 <= allowed <= FILES_MAX // 4
        with Wire(server.url) as wire:
            assert wire.ask("PUT", "/v1/stream/s", TEXT).status == 201
            for _ in range(2 * FILES_MAX):
                idle.enter_context(Wire(server.url))
            # Rotations of the journal open and close files.
            for _ in range(40):
                assert wire.ask("POST", "/v1/stream/s", TEXT, b"x" * 30_000).status == 204
            assert open_files(server.pid) < FILES_MAX
            with Wire(server.url) as late:
                assert late.ask("GET", "/healthz").status == 200
            with Wire(server.url) as late:
                refused(late.ask("GET", "/v1/stream/s?offset=now"), 503, "overloaded")
        idle.close()

        def served() -> bool:
            with Wire(server.url) as wire:
                return wire.ask("GET", "/v1/stream/s?offset=now").status == 200

        assert eventually(served)
        assert "Traceback" not in server.output(), server.output()[-3000:]


def test_a_server_that_may_open_enough_files_says_nothing() -> None:
    with running_server("--connections-max", "10", files_max=FILES_MAX) as server:
        time.sleep(0.1)
        assert not LOWERED.search(server.output())


def test_the_start_line_and_the_metrics_report_the_limits_in_force() -> None:
    with running_server("--log-format", "json", files_max=FILES_MAX) as server, Wire(server.url) as wire:
        lines = wire.ask("GET", "/metrics").body.decode().splitlines()
        started = next(json.loads(line) for line in server.output().splitlines() if '"started"' in line)
    assert f"process_max_fds {FILES_MAX}" in lines
    connections_max = started["limits"]["connections_max"]
    assert connections_max < FILES_MAX
    assert f'headwater_limit{{of="connections"}} {connections_max}' in lines
