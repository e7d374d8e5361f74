"""A standalone cluster of Spark on this machine: a master and workers, processes from the pip package on loopback."""

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
"""Each process compiles most of Spark's start anew, and others may use the cores."""
STOP_SECONDS_MAX = 30.0
SMALL_JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""One thread for garbage and the quick compiler only: three JVMs are to share two cores."""
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
"""What a driver on this machine needs to work with the cluster."""


def environment() -> dict[str, str]:
    """What the cluster and its drivers run with: this Python, and nothing beyond this machine."""
    return {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "512m",
        "SPARK_DAEMON_JAVA_OPTS": SMALL_JAVA,
        # However often executors die, and they will, the application is not to blame.
        "SPARK_MASTER_OPTS": "-Dspark.deploy.maxExecutorRetries=-1",
        "PYTHONUNBUFFERED": "1",
    }


class Daemon(NamedTuple):
    """A master or a worker, and what it prints."""

    process: subprocess.Popen[bytes]
    output_path: Path

    def output(self) -> str:
        return self.output_path.read_text(errors="replace")

    def last_words(self) -> str:
        return self.output()[-2000:]


class Cluster(NamedTuple):
    """A cluster that is ready for work."""

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
    """A master and workers of one core each, while the block lasts."""
    folder.mkdir(parents=True, exist_ok=True)
    daemons: list[Daemon] = []
    try:
        master = _start(folder, "master", ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0"))
        daemons.append(master)
        _await(master, MASTER_URL)
        found = MASTER_URL.search(master.output())
        assert found is not None
        for number in range(workers):
            place = ("--work-dir", str(folder / f"work-{number}"))
            size = ("--cores", "1", "--memory", "1g")
            daemons.append(
                _start(folder, "worker", ("--host", "127.0.0.1", "--webui-port", "0", *size, *place, found[1]))
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
    """Start a process in a session of its own, from the root of the repository; what it prints goes to a file."""
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
        assert daemon.process.poll() is None, f"A part of the cluster ended:\n{daemon.last_words()}"
        return words.search(daemon.output()) is not None

    wait_until(is_ready, START_SECONDS_MAX, lambda: f"A part of the cluster did not start:\n{daemon.last_words()}")


def _end(daemon: Daemon) -> None:
    """Ask, then insist; executors go with their worker."""
    daemon.process.terminate()
    try:
        daemon.process.wait(STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        kill_family(daemon.process.pid)
        daemon.process.wait(STOP_SECONDS_MAX)
