"""The processes of a server with workers: found by its status, killed one by one or all at once."""

import json
import os
import signal
from pathlib import Path
from typing import Any

from headwater.testing import RunningServer

from ..http.processes import eventually
from ..http.sockets import Wire


class Fleet:
    """A running server with workers."""

    def __init__(self, server: RunningServer, data: Path) -> None:
        self.server, self.data = server, data

    @property
    def url(self) -> str:
        return self.server.url

    def status(self) -> dict[str, Any]:
        with Wire(self.url) as wire:
            answer = wire.ask("GET", "/__headwater/status")
        assert answer.status == 200, answer.body
        status = json.loads(answer.body)
        assert isinstance(status, dict)
        return status

    def pids(self) -> dict[str, int]:
        """All processes by name."""
        return {one["name"]: one["pid"] for one in self.status()["processes"]}

    def workers(self) -> list[str]:
        return sorted(one["name"] for one in self.status()["processes"] if one["role"] == "worker")

    def metrics(self) -> dict[str, float]:
        """Every sample by its name and labels."""
        with Wire(self.url) as wire:
            answer = wire.ask("GET", "/metrics")
        assert answer.status == 200, answer.body
        lines = [line for line in answer.body.decode().splitlines() if not line.startswith("#")]
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}

    def counters(self) -> dict[str, float]:
        """All that may only rise."""
        rising = ("_total", "_count", "_sum", "_bucket")
        return {name: value for name, value in self.metrics().items() if name.split("{")[0].endswith(rising)}

    def is_whole(self, workers: int) -> bool:
        """Whether this many workers serve."""
        try:
            return len(self.workers()) == workers
        except (OSError, AssertionError):
            return False

    def wait_until_whole(self, workers: int) -> None:
        assert eventually(lambda: self.is_whole(workers), 30), self.server.output()

    def kill(self, name: str) -> None:
        """Kill a process, and wait until it is gone."""
        pid = self.pids()[name]
        os.kill(pid, signal.SIGKILL)
        assert eventually(lambda: not is_alive(pid)), f"{name} does not die"

    def kill_all(self, pids: dict[str, int] | None = None) -> None:
        """Kill every process at once, as a loss of power would."""
        pids = pids or self.pids()
        for pid in pids.values():
            if is_alive(pid):
                os.kill(pid, signal.SIGKILL)
        self.server.process.wait(30)
        assert eventually(lambda: not any(map(is_alive, pids.values())))


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
