"""`headwater serve --workers N`: several processes that a client cannot tell from one."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from headwater.lake.iceberg.streams import read_streams
from headwater.storage.folder import FolderStore
from headwater.testing import RunningServer, running_server
from headwater.testing.ports import free_port

from ..http.guarded import guarded
from ..http.processes import eventually
from ..http.sockets import Response, Wire
from .fleets import Fleet, is_alive
from .processes import headwater, sentence, usage_error

TEXT = {"Content-Type": "text/plain"}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A server for tests that leave all of its processes alive."""
    data = tmp_path_factory.mktemp("workers")
    with running_server("--workers", "2", data=data) as server:
        yield Fleet(server, data)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    """A server of one test."""
    with running_server("--workers", "2", data=tmp_path / "data") as server:
        yield Fleet(server, tmp_path / "data")


def create(url: str, name: str) -> None:
    with Wire(url) as wire:
        assert wire.ask("PUT", f"/v1/stream/{name}", TEXT).status == 201


def is_answered(ask: Callable[[], Response]) -> bool:
    return ask().status == 200


def append(url: str, name: str, body: bytes) -> None:
    with Wire(url) as wire:
        assert wire.ask("POST", f"/v1/stream/{name}", TEXT, body).status in (200, 204)


def read(url: str, name: str) -> bytes:
    with Wire(url) as wire:
        answer = wire.ask("GET", f"/v1/stream/{name}?offset=-1")
        assert answer.status == 200, answer.body
        return answer.body


# -- Serving -----------------------------------------------------------------------------------------------------------


def test_one_line_says_that_all_are_ready(shared: Fleet) -> None:
    assert shared.server.output().count("Headwater is ready at") == 1
    assert shared.workers() == ["w0", "w1"]


def test_the_status_lists_every_process_whichever_is_asked(shared: Fleet) -> None:
    found = [shared.status() for _ in range(20)]
    assert all(status["processes"] == found[0]["processes"] for status in found)
    assert {one["role"] for one in found[0]["processes"]} == {"supervisor", "sequencer", "worker"}
    assert found[0]["pid"] == shared.server.pid
    assert all(is_alive(one["pid"]) for one in found[0]["processes"])


def test_what_one_connection_wrote_every_other_reads_at_once(shared: Fleet) -> None:
    wires = [Wire(shared.url) for _ in range(16)]
    assert wires[0].ask("PUT", "/v1/stream/fresh", TEXT).status == 201
    written = b""
    for number in range(400):
        line = b"%d\n" % number
        assert wires[number % 16].ask("POST", "/v1/stream/fresh", TEXT, line).status == 204
        written += line
        reader = wires[(7 * number + 3) % 16]
        assert reader.ask("GET", "/v1/stream/fresh?offset=-1").body == written
        tail = reader.ask("HEAD", "/v1/stream/fresh").next_offset
        assert int(tail.rpartition("_")[2]) == 10 * len(written), "HEAD is stale"
    for wire in wires:
        wire.close()


def test_a_stream_that_was_created_or_deleted_is_so_for_all_connections(shared: Fleet) -> None:
    wires = [Wire(shared.url) for _ in range(12)]
    for number in range(60):
        path = f"/v1/stream/life-{number}"
        first, second, third = (wires[(number + step) % 12] for step in (0, 5, 7))
        assert first.ask("PUT", path, TEXT).status == 201
        assert second.ask("POST", path, TEXT, b"x").status == 204
        assert third.ask("DELETE", path).status == 204
        assert second.ask("GET", f"{path}?offset=-1").status in (404, 410)
        assert first.ask("POST", path, TEXT, b"x").status in (404, 410)
    for wire in wires:
        wire.close()


def test_a_live_reader_hears_of_appends_over_any_connection(shared: Fleet) -> None:
    create(shared.url, "live")
    readers = [Wire(shared.url) for _ in range(8)]
    for reader in readers:
        reader.send(b"GET /v1/stream/live?offset=-1&live=long-poll HTTP/1.1\r\nHost: localhost\r\n\r\n")
    append(shared.url, "live", b"heard")
    assert [reader.receive().body for reader in readers] == [b"heard"] * 8
    for reader in readers:
        reader.close()


def test_requests_are_counted_once_whichever_worker_had_them(shared: Fleet) -> None:
    name = 'headwater_requests_total{route="GET stream",status="200"}'
    create(shared.url, "counted")
    before = shared.metrics()[name]
    for _ in range(40):
        read(shared.url, "counted")
    assert shared.metrics()[name] == before + 40


def test_open_connections_of_all_workers_are_counted(shared: Fleet) -> None:
    wires = [Wire(shared.url) for _ in range(20)]
    for wire in wires:
        assert wire.ask("GET", "/healthz").status == 200
    assert eventually(lambda: shared.metrics()["headwater_connections"] == 21), "this one, and those of other tests"
    assert shared.status()["connections"] == 21
    for wire in wires:
        wire.close()
    assert eventually(lambda: shared.status()["connections"] == 1)


def test_a_flush_is_done_by_whichever_worker_keeps_the_lake(shared: Fleet) -> None:
    create(shared.url, "flushed")
    append(shared.url, "flushed", b"to the lake")
    for _ in range(6):
        with Wire(shared.url, timeout_seconds=30) as wire:
            answer = wire.ask("POST", "/__headwater/flush")
        assert answer.status == 200, answer.body
    assert shared.status()["lake"]["flushed_position"] > 0
    assert read(shared.url, "flushed") == b"to the lake"


def test_every_worker_can_ask_for_all_tables_of_the_lake(shared: Fleet) -> None:
    for number in range(6):
        create(shared.url, f"listed-{number}")
        with Wire(shared.url, timeout_seconds=30) as wire:
            answer = wire.ask("POST", "/__headwater/flush?tables=all")
        assert answer.status == 200, answer.body
        found = read_streams(FolderStore(shared.data / "lake"))
        assert found is not None
        assert f"listed-{number}" in [name for table in found[1] for name in table["stream"].to_pylist()]


def test_limits_on_connections_are_divided(tmp_path: Path) -> None:
    with running_server("--workers", "2", "--connections-max", "10", data=tmp_path / "data") as server:
        assert Fleet(server, tmp_path / "data").metrics()['headwater_limit{of="connections"}'] == 10


# -- Deaths ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["w0", "w1", "sequencer"])
def test_a_process_that_is_killed_is_started_anew_and_nothing_acknowledged_is_lost(fleet: Fleet, name: str) -> None:
    create(fleet.url, "kept")
    written = b""
    for number in range(30):
        append(fleet.url, "kept", b"%d\n" % number)
        written += b"%d\n" % number
    counted = fleet.counters()
    fleet.kill(name)
    fleet.wait_until_whole(2)
    assert read(fleet.url, "kept") == written
    append(fleet.url, "kept", b"after")
    assert read(fleet.url, "kept") == written + b"after"
    fallen = {key: (was, fleet.counters()[key]) for key, was in counted.items() if fleet.counters()[key] < was}
    assert not fallen


def test_a_server_that_is_ready_once_is_ready_over_every_connection(tmp_path: Path) -> None:
    for attempt in range(3):
        port, data = free_port(), tmp_path / str(attempt)
        # `running_server` would wait until all of them are ready.
        server = subprocess.Popen(
            [sys.executable, "-m", "headwater", "serve", "--workers", "3", "--port", str(port), "--data", data],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            assert eventually(lambda port=port: _readiness(port) == 200)  # type: ignore[misc]
            assert {_readiness(port) for _ in range(60)} == {200}
        finally:
            server.terminate()
            server.wait(30)


def _readiness(port: int) -> int | None:
    """What one more connection says; None if it is refused."""
    try:
        with Wire(f"http://127.0.0.1:{port}") as wire:
            return wire.ask("GET", "/readyz").status
    except ConnectionRefusedError:
        return None


def test_the_others_serve_while_a_worker_is_away(fleet: Fleet) -> None:
    create(fleet.url, "served")
    os.kill(fleet.pids()["w1"], signal.SIGSTOP)
    try:
        answered = 0
        deadline = time.monotonic() + 20
        while answered < 20 and time.monotonic() < deadline:
            try:
                with Wire(fleet.url, timeout_seconds=0.5) as wire:
                    answered += wire.ask("POST", "/v1/stream/served", TEXT, b"x").status == 204
            except TimeoutError:
                continue  # Its connection is with the one that is stopped.
        assert answered == 20
    finally:
        for pid in children(fleet.server.pid):
            os.kill(pid, signal.SIGCONT)
    fleet.wait_until_whole(2)
    assert read(fleet.url, "served").startswith(b"x" * 20)


def test_counters_do_not_fall_while_a_worker_is_dead_and_after_it_is_back(fleet: Fleet) -> None:
    create(fleet.url, "counted")
    for _ in range(50):
        read(fleet.url, "counted")
    highest = fleet.counters()
    for _ in range(2):
        os.kill(fleet.pids()["w1"], signal.SIGKILL)
        for _ in range(30):
            try:
                found = fleet.counters()
            except (OSError, AssertionError):
                continue  # The connection was one of those that the dead worker had not accepted.
            assert not {name for name, was in highest.items() if found[name] < was}
            highest = found
        fleet.wait_until_whole(2)
    assert fleet.counters()['headwater_requests_total{route="GET stream",status="200"}'] >= 50


def test_all_children_end_soon_after_the_supervisor_is_killed_and_the_directory_is_free(tmp_path: Path) -> None:
    with running_server("--workers", "2", data=tmp_path / "data") as server:
        fleet = Fleet(server, tmp_path / "data")
        create(server.url, "kept")
        pids = fleet.pids()
        server.kill()
        assert eventually(lambda: not any(map(is_alive, pids.values())), 10), pids
    with running_server("--workers", "2", data=tmp_path / "data") as server:
        assert read(server.url, "kept") == b""


# -- Ends --------------------------------------------------------------------------------------------------------------


def to_the_supervisor(server: RunningServer) -> None:
    server.process.send_signal(signal.SIGTERM)


def twice(server: RunningServer) -> None:
    server.process.send_signal(signal.SIGTERM)
    time.sleep(0.05)
    server.process.send_signal(signal.SIGTERM)


def to_all(server: RunningServer) -> None:
    for pid in (*children(server.pid), server.pid):
        os.kill(pid, signal.SIGTERM)


def by_the_keyboard(server: RunningServer) -> None:
    for pid in (server.pid, *children(server.pid)):
        os.kill(pid, signal.SIGINT)


def children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.parametrize("stop", [to_the_supervisor, twice, to_all, by_the_keyboard])
def test_a_signal_drains_all_processes_and_the_exit_code_is_0(
    fleet: Fleet, stop: Callable[[RunningServer], None]
) -> None:
    create(fleet.url, "drained")
    pids = fleet.pids()
    readers = [Wire(fleet.url) for _ in range(6)]
    for reader in readers:
        reader.send(b"GET /v1/stream/drained?offset=now&live=long-poll HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert eventually(lambda: fleet.status()["live_readers"] == 6)
    stop(fleet.server)
    assert [reader.receive().status for reader in readers] == [204] * 6, "live reads end in order"
    assert fleet.server.process.wait(30) == 0, fleet.server.output()
    assert not any(map(is_alive, pids.values()))
    output = fleet.server.output()
    assert "ERROR" not in output and "Traceback" not in output, output
    for reader in readers:
        reader.close()


def test_a_worker_that_is_told_to_end_drains_and_is_started_anew(fleet: Fleet) -> None:
    pid = fleet.pids()["w1"]
    os.kill(pid, signal.SIGTERM)
    assert eventually(lambda: not is_alive(pid))
    fleet.wait_until_whole(2)
    assert fleet.pids()["w1"] != pid


# -- Starts ------------------------------------------------------------------------------------------------------------


def test_the_number_of_workers_may_change_with_every_start(tmp_path: Path) -> None:
    written = b""
    for number, workers in enumerate((2, 1, 3, 1, 2)):
        with running_server("--workers", str(workers), data=tmp_path / "data") as server:
            if number == 0:
                create(server.url, "counted")
            assert read(server.url, "counted") == written
            append(server.url, "counted", b"%d\n" % workers)
            written += b"%d\n" % workers
            assert server.stop() == 0, server.output()


def test_a_backup_of_a_running_server_has_what_every_worker_acknowledged(shared: Fleet, tmp_path: Path) -> None:
    create(shared.url, "precious")
    for number in range(20):
        append(shared.url, "precious", b"%d\n" % number)
    assert headwater("backup", "create", str(tmp_path / "copy"), "--data", str(shared.data)).returncode == 0
    restored = tmp_path / "restored"
    assert headwater("backup", "restore", str(tmp_path / "copy"), "--data", str(restored)).returncode == 0
    with running_server("--workers", "2", data=restored) as server:
        assert read(server.url, "precious") == b"".join(b"%d\n" % number for number in range(20))


def test_a_port_in_use_is_refused_in_one_sentence(shared: Fleet, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ports = [taken.getsockname()[1], int(shared.url.rpartition(":")[2])]
        for port in ports:
            finished = headwater("serve", "--workers", "2", "--port", str(port), "--data", str(tmp_path / "data"))
            assert finished.returncode == 1
            assert f"Cannot listen on 127.0.0.1:{port}" in sentence(finished)


def test_a_port_for_operators_is_shared_too(tmp_path: Path) -> None:
    ops = free_port()
    flags = ("--workers", "2", "--ops", f"127.0.0.1:{ops}")
    with running_server(*flags, data=tmp_path / "data") as server:
        for _ in range(10):
            with Wire(f"http://127.0.0.1:{ops}") as wire:
                found = json.loads(wire.ask("GET", "/__headwater/status").body)
            assert len(found["processes"]) == 4
            with Wire(server.url) as wire:
                assert wire.ask("GET", "/__headwater/status").status == 404


def test_a_data_directory_in_use_is_refused_in_one_sentence(shared: Fleet) -> None:
    data = shared.data
    for workers in ("1", "2"):
        finished = headwater("serve", "--workers", workers, "--port", "0", "--data", str(data))
        assert finished.returncode == 1
        assert f"is held by process {shared.server.pid};" in sentence(finished)


def test_memory_and_workers_exclude_each_other() -> None:
    assert "--workers and --memory exclude each other" in usage_error(headwater("serve", "--memory", "--workers", "2"))


def test_a_damaged_journal_is_refused_in_one_sentence(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with running_server("--workers", "2", data=data) as server:
        create(server.url, "kept")
        server.stop()
    (data / "journal" / "identity.json").unlink()
    finished = headwater("serve", "--workers", "2", "--port", "0", "--data", str(data))
    assert finished.returncode == 1
    assert "identity.json is missing" in sentence(finished)


def test_the_paths_of_the_data_and_of_temporary_files_may_be_long(tmp_path: Path) -> None:
    data, temporary = tmp_path / ("d" * 120), tmp_path / ("t" * 120)
    temporary.mkdir()
    with running_server("--workers", "2", data=data, env={"TMPDIR": str(temporary)}) as server:
        create(server.url, "far")
        assert Fleet(server, data).workers() == ["w0", "w1"]


def test_nothing_is_left_in_the_temporary_folder(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        temporary = Path(name)
        with running_server("--workers", "2", data=tmp_path / "data", env={"TMPDIR": name}) as server:
            assert len(list(temporary.iterdir())) == 1
            assert server.stop() == 0
        assert list(temporary.iterdir()) == []


# -- Access ------------------------------------------------------------------------------------------------------------


def test_new_rules_are_in_force_in_all_workers_when_a_reload_is_answered(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with guarded(tmp_path, {"reader": ["read _default/one"]}, "--workers", "2", data=data) as guard:
        wires = [guard.wire() for _ in range(16)]
        with guard.wire() as wire:
            for name in ("one", "two"):
                assert wire.ask("PUT", f"/v1/stream/{name}", TEXT | guard.bearer("root")).status == 201
        for _ in range(4):
            for allowed, denied in (("one", "two"), ("two", "one")):
                guard.write({"root": ["* *"], "reader": [f"read _default/{allowed}"]})
                guard.reload()
                for wire in wires:
                    assert wire.ask("GET", f"/v1/stream/{allowed}?offset=-1", guard.bearer("reader")).status == 200
                    assert wire.ask("GET", f"/v1/stream/{denied}?offset=-1", guard.bearer("reader")).status != 200
        for wire in wires:
            wire.close()


def test_a_hangup_makes_all_workers_read_the_rules(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with guarded(tmp_path, {"reader": ["read _default/one"]}, "--workers", "2", data=data) as guard:
        wires = [guard.wire() for _ in range(12)]
        with guard.wire() as wire:
            assert wire.ask("PUT", "/v1/stream/two", TEXT | guard.bearer("root")).status == 201
        guard.write({"root": ["* *"], "reader": ["read _default/two"]})
        guard.server.process.send_signal(signal.SIGHUP)
        for wire in wires:
            ask = partial(wire.ask, "GET", "/v1/stream/two?offset=-1", guard.bearer("reader"))
            assert eventually(partial(is_answered, ask))
            wire.close()


def test_the_usage_of_a_client_is_that_of_all_workers(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with guarded(tmp_path, {"writer": ["* *"]}, "--workers", "2", data=data) as guard:
        for number in range(30):
            with guard.wire() as wire:
                assert wire.ask("PUT", f"/v1/stream/s{number}", TEXT | guard.bearer("writer")).status == 201
        for _ in range(6):
            with guard.wire() as wire:
                usage = json.loads(wire.ask("GET", "/__headwater/usage", guard.bearer("root")).body)
            [used] = [used for name, used in usage["principals"].items() if "writer" in name]
            assert used["requests"] == used["creates"] == 30


def test_lines_of_the_audit_log_are_whole_whichever_worker_wrote_them(tmp_path: Path) -> None:
    data, audit = tmp_path / "data", tmp_path / "audit.log"
    with guarded(tmp_path, {}, "--workers", "2", "--audit", str(audit), data=data) as guard:
        for number in range(60):
            with guard.wire() as wire:
                assert wire.ask("PUT", f"/v1/stream/s{number}", TEXT | guard.bearer("root")).status == 201
        assert guard.server.stop() == 0
    lines = [json.loads(line) for line in audit.read_text().splitlines()]
    assert sum("s" in str(line) and "creat" in json.dumps(line) for line in lines) >= 60


def test_the_ready_line_in_json_names_every_process(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "headwater", "serve", "--workers", "2", "--port", "0", "--log-format", "json"]
    with subprocess.Popen([*command, "--data", str(tmp_path / "data")], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        started = next(line for line in map(json.loads, process.stderr) if line["message"] == "started")
        assert set(started["processes"]) == {"sequencer", "w0", "w1"}
        process.terminate()
        rest = [json.loads(line) for line in process.stderr]
        assert process.wait(30) == 0
    assert sum(line["message"] == "stopped" for line in rest) == 2
