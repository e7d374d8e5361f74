"""A standalone Spark cluster on this machine: a master and workers from the pip package, on loopback."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pyspark

from headwater.spark.session import LOG_SETTINGS

from ..processes import Process, family, kill_family, wait_until

ROOT = Path(__file__).parents[3]
SPARK_HOME = Path(pyspark.__file__).parent
START_SECONDS_MAX = 180.0
"""Each process compiles most of Spark's start-up code again, and other processes may use the cores."""
STOP_SECONDS_MAX = 30.0
SMALL_JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""One thread for garbage collection, and only the fast compiler, because three JVMs share two cores."""
MASTER_URL = re.compile(r"Starting Spark master at (spark://127\.0\.0\.1:\d+)")
REGISTERED = "Successfully registered with master"

DRIVER_CONF = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.executor.memory": "768m",
    "spark.executor.extraJavaOptions": SMALL_JAVA,
    "spark.driver.extraJavaOptions": f"{SMALL_JAVA} -Dlog4j2.configurationFile=file:{LOG_SETTINGS}",
    "spark.sql.shuffle.partitions": "4",
}
"""Settings for a driver on this machine that uses the cluster."""


def environment() -> dict[str, str]:
    """The environment of the cluster and its drivers: this Python, and loopback only."""
    return {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "512m",
        "SPARK_DAEMON_JAVA_OPTS": SMALL_JAVA,
        # Tests kill executors often; the master must not fail the application for it.
        "SPARK_MASTER_OPTS": "-Dspark.deploy.maxExecutorRetries=-1",
        "PYTHONUNBUFFERED": "1",
    }


class Daemon(NamedTuple):
    """A master or a worker, and its output."""

    process: subprocess.Popen[bytes]
    output_path: Path

    def output(self) -> str:
        return self.output_path.read_text(errors="replace")

    def last_output(self) -> str:
        return self.output()[-2000:]


class Cluster(NamedTuple):
    """A cluster that is ready to run applications."""

    url: str
    daemons: tuple[Daemon, ...]

    @property
    def worker_pids(self) -> tuple[int, ...]:
        return tuple(daemon.process.pid for daemon in self.daemons[1:])

    def executors(self) -> list[Process]:
        """The executors of all applications."""
        return [one for one in family(*self.worker_pids) if "CoarseGrainedExecutorBackend" in one.command]

    def python_workers(self) -> list[Process]:
        """The Python processes of all executors."""
        return [one for one in family(*self.worker_pids) if "pyspark.daemon" in one.command]


@contextmanager
def standalone_cluster(folder: Path, workers: int = 2) -> Iterator[Cluster]:
    """A master and workers with one core each, for the duration of the block."""
    folder.mkdir(parents=True, exist_ok=True)
    daemons: list[Daemon] = []
    try:
        master = _start(folder, "master", ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0"))
        daemons.append(master)
        _await(master, MASTER_URL)
        found = MASTER_URL.search(master.output())
        assert found is not None
        for number in range(workers):
            work_dir = ("--work-dir", str(folder / f"work-{number}"))
            size = ("--cores", "1", "--memory", "1g")
            daemons.append(
                _start(folder, "worker", ("--host", "127.0.0.1", "--webui-port", "0", *size, *work_dir, found[1]))
            )
        for daemon in daemons[1:]:
            _await(daemon, re.compile(REGISTERED))
        yield Cluster(found[1], tuple(daemons))
    finally:
        for daemon in reversed(daemons):
            _end(daemon)


def _start(folder: Path, role: str, arguments: Sequence[str]) -> Daemon:
    output_path = folder / f"{role}-{len(list(folder.glob('*.txt')))}.txt"
    name = f"org.apache.spark.deploy.{role}.{role.capitalize()}"
    return Daemon(spawn([str(SPARK_HOME / "bin" / "spark-class"), name, *arguments], output_path), output_path)


def spawn(command: Sequence[str], output_path: Path, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    """Start a process in its own session, in the root of the repository, with its output appended to a file."""
    with output_path.open("ab") as output:
        return subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**environment(), **(env or {})},
            start_new_session=True,
        )


def _await(daemon: Daemon, words: re.Pattern[str]) -> None:
    def is_ready() -> bool:
        assert daemon.process.poll() is None, f"A part of the cluster ended:\n{daemon.last_output()}"
        return words.search(daemon.output()) is not None

    wait_until(is_ready, START_SECONDS_MAX, lambda: f"A part of the cluster did not start:\n{daemon.last_output()}")


def _end(daemon: Daemon) -> None:
    """Terminate a daemon, and kill it if it does not end; executors end with their worker."""
    daemon.process.terminate()
    try:
        daemon.process.wait(STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        kill_family(daemon.process.pid)
        daemon.process.wait(STOP_SECONDS_MAX)
