"""Drivers: processes that run a pipeline and are restarted whenever they end."""

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..cluster.standalone import DRIVER_CONF, Cluster, spawn
from ..processes import Process, family, kill, kill_family

FINAL_SECONDS_MAX = 420.0
"""How long the last, undisturbed run may take on a machine whose cores are shared."""
OUTPUT_CHARACTERS = 4_000


def verb(
    name: str, cluster: Cluster | None, url: str, *options: str, conf: Mapping[str, str] | None = None
) -> list[str]:
    """The command line of a job, on a cluster or on this machine."""
    settings = {**DRIVER_CONF, **(conf or {})}
    pairs = [word for item in settings.items() for word in ("--conf", "=".join(item))]
    master = ["--master", cluster.url if cluster is not None else "local[1]"]
    return [sys.executable, "-m", "headwater", "spark", name, "--url", url, *master, *pairs, *options]


class Driver:
    """One pipeline, across all processes that run it."""

    def __init__(self, command: Sequence[str], folder: Path, name: str) -> None:
        self._command, self._folder, self._name = list(command), folder, name
        self._process: subprocess.Popen[bytes] | None = None
        self._may_fail = False
        self.runs: Counter[str] = Counter()

    # -- Running --------------------------------------------------------------------------------------------------

    def tend(self) -> None:
        """Start the driver if it is not running. It may have ended only in success or because something was killed."""
        if self._process is not None and self._process.poll() is None:
            return
        if self._process is not None:
            code = self._process.returncode
            assert code == 0 or self._may_fail, (
                f"{self._name} ended with {code}, and nothing was killed:\n{self.last_output()}"
            )
            self.runs["finished" if code == 0 else "broken"] += 1
        self._may_fail = False
        self.runs["started"] += 1
        self._process = spawn(self._command, self._output_path())

    def excuse(self) -> None:
        """Allow the driver to fail, because something that it needs was killed."""
        self._may_fail = True

    def stop(self) -> None:
        """Kill the driver and all its descendants."""
        if self._process is not None:
            kill_family(self._process.pid)
            self._process.wait(30)
            self._process = None

    def finish(self, *options: str) -> None:
        """Run the driver once more, undisturbed; it must succeed."""
        self.stop()
        self.runs["started"] += 1
        self._process = spawn([*self._command, *options], self._output_path())
        try:
            code = self._process.wait(FINAL_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self._name} does not end:\n{self.last_output()}") from None
        assert code == 0, f"{self._name} ended with {code}, undisturbed:\n{self.last_output()}"
        self._process = None

    # -- Processes ------------------------------------------------------------------------------------------------

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def python(self) -> list[Process]:
        """The Python processes that its JVM started to plan and commit."""
        return [one for one in self._family() if " -m pyspark" in one.command]

    def parts(self) -> list[Process]:
        """The driver's own process and its JVM."""
        return [one for one in self._family() if " -m pyspark" not in one.command]

    def kill(self, victims: Sequence[Process]) -> bool:
        """Kill some of its processes; whether any was killed."""
        assert self._process is not None
        self._may_fail = True
        return bool(kill(victims, self._process.pid))

    def _family(self) -> list[Process]:
        return family(self._process.pid) if self._process is not None else []

    # -- Output ---------------------------------------------------------------------------------------------------

    def output(self) -> str:
        """Everything that the present run has printed."""
        path = self._output_path()
        return path.read_text(errors="replace") if path.exists() else ""

    def last_output(self) -> str:
        return self.output()[-OUTPUT_CHARACTERS:]

    def _output_path(self) -> Path:
        return self._folder / f"{self._name}-{self.runs['started']}.txt"


def pause(seconds: float, drivers: Sequence[Driver]) -> None:
    """Wait, and keep the drivers running meanwhile."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for driver in drivers:
            driver.tend()
        time.sleep(0.1)
