"""Real server processes that a test starts, stops and kills."""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

START_TIMEOUT_SECONDS = 30.0
STOP_TIMEOUT_SECONDS = 30.0
POLL_SECONDS = 0.01

URL = re.compile(r"https?://[^\s/]+:\d+")


class ServerNotStarted(Exception):
    """The process ended or timed out before it printed its URL."""


@dataclass(frozen=True)
class RunningServer:
    """A server process that has printed its URL."""

    url: str
    process: subprocess.Popen[bytes]
    output_path: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def stop(self) -> int:
        """Ask the server to drain (SIGTERM) and return its exit code."""
        self.process.terminate()
        return self.process.wait(STOP_TIMEOUT_SECONDS)

    def kill(self) -> None:
        """End the server at once (SIGKILL), as a crash would."""
        self.process.kill()
        self.process.wait(STOP_TIMEOUT_SECONDS)

    def output(self) -> str:
        """Return everything that the server has printed so far."""
        return self.output_path.read_text(errors="replace")


@contextmanager
def running_server(
    *flags: str, data: Path | None = None, env: Mapping[str, str] | None = None, files_max: int | None = None
) -> Iterator[RunningServer]:
    """Run `headwater serve` on a free port for the duration of the block; in memory unless `data` names a directory.

    With `files_max` the process may open no more files and sockets than that.
    """
    storage = ["--memory"] if data is None else ["--data", str(data)]
    with running_node(*storage, *flags, env=env, files_max=files_max) as server:
        yield server


@contextmanager
def running_node(
    *flags: str, env: Mapping[str, str] | None = None, files_max: int | None = None
) -> Iterator[RunningServer]:
    """As `running_server`, with these flags alone; a node of a cluster has no data directory."""
    command = [sys.executable, "-m", "headwater", "serve", "--port", "0", *flags]
    if files_max is not None:
        command = ["sh", "-c", f'ulimit -n {files_max} && exec "$@"', "sh", *command]
    with tempfile.TemporaryDirectory(prefix="headwater-") as folder:
        # A file, because a pipe that is not read fills up and stops the server.
        output_path = Path(folder, "output.txt")
        with output_path.open("wb") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(env or {}), "PYTHONUNBUFFERED": "1"},
            )
        try:
            url = _wait_for_url(process, output_path)
            server = RunningServer(url, process, output_path)
            yield server
            if process.poll() is None:
                server.stop()
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()


def _wait_for_url(process: subprocess.Popen[bytes], output_path: Path) -> str:
    deadline = time.monotonic() + START_TIMEOUT_SECONDS
    while True:
        exit_code = process.poll()
        printed = output_path.read_text(errors="replace")
        # Only in a complete line: half a line may end within the port.
        for line in printed.splitlines(keepends=True):
            if line.endswith("\n") and (found := URL.search(line)):
                return found.group()
        if exit_code is not None:
            raise ServerNotStarted(f"The server ended with exit code {exit_code} before it was ready:\n{printed}")
        if time.monotonic() > deadline:
            raise ServerNotStarted(f"The server printed no URL in {START_TIMEOUT_SECONDS:g} s:\n{printed}")
        time.sleep(POLL_SECONDS)
