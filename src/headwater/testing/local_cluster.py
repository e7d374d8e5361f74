"""A cluster on one machine, to try it out: NATS servers and nodes as processes, started again when they die.

`scripts/cluster` sets everything up and runs this. For production see docs/operate-cluster.md: there each process has a
machine of its own, and a service manager instead of this program.
"""

import http.client
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import click

from headwater.testing.nats import NatsNotStarted, NatsServer, NatsServers, configured_nats

NATS_SERVERS = 3
NODES_MAX = 9
START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 40.0
"""Longer than a node takes to drain."""
POLL_SECONDS = 0.1
LOG_BYTES = "1GiB"

READY = """\
A cluster of {count} nodes is ready after {seconds:.0f} s. Its data is in {data}, its logs are in {data}/*/output.txt.

{table}
Write on one node, read on another (Ctrl-C ends everything):
  curl -X PUT  {first}/v1/stream/hello -H 'Content-Type: text/plain'
  curl -X POST {first}/v1/stream/hello -H 'Content-Type: text/plain' -d 'hello, world'
  curl -N      '{last}/v1/stream/hello?offset=-1&live=sse'
Kill a node or a NATS server; the others go on, and it is started again after {away:g} s:
  kill -9 {pid}
  {headwater} cluster status --url {first}
"""


class Stopping(Exception):
    """A signal asks this program to end."""


class NotStarted(Exception):
    """The cluster cannot start; the message is one sentence and what the process printed."""


@dataclass
class LocalNode:
    """One node as a process; after a death it starts again on the same port under the same name."""

    name: str
    port: int
    command: Sequence[str]
    folder: Path
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def output(self) -> str:
        return (self.folder / "output.txt").read_text(errors="replace")

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "output.txt").open("wb") as output:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for this program, which ends the others in order.
            )

    def restart(self) -> None:
        """Start it again after it has died."""
        self.start()

    @property
    def ready(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()


class LocalCluster:
    """The processes of a cluster on this machine."""

    def __init__(self, nats: NatsServers, nodes: list[LocalNode]) -> None:
        self.nats, self.nodes = nats, nodes
        self._died_at: dict[str, float] = {}

    def start(self) -> None:
        """Start everything and wait until every node serves."""
        self.nats.start()
        try:
            self.nats.wait_ready()
        except NatsNotStarted as error:
            raise NotStarted(str(error)) from error
        for node in self.nodes:
            node.start()
        deadline = time.monotonic() + START_SECONDS_MAX
        while not all(node.ready for node in self.nodes):
            for node in self.nodes:
                assert node.process is not None
                if node.process.poll() is not None or time.monotonic() > deadline:
                    raise NotStarted(f"Node {node.name} does not start:\n{node.output}")
            time.sleep(POLL_SECONDS)

    def watch(self, away_seconds: float) -> None:
        """Start again whatever dies, after some time without it, until a signal arrives."""
        while True:
            for one in self._all():
                if one.process is None or one.process.poll() is None:
                    continue
                died_at = self._died_at.get(one.name)
                if died_at is None:
                    self._died_at[one.name] = time.monotonic()
                    click.echo(f"{one.name} has ended; it is started again in {away_seconds:g} s.")
                elif time.monotonic() > died_at + away_seconds:
                    one.restart()
                    del self._died_at[one.name]
                    click.echo(f"{one.name} is started again as process {one.process.pid}.")
            time.sleep(POLL_SECONDS)

    def _all(self) -> Iterator[NatsServer | LocalNode]:
        yield from self.nats.servers
        yield from self.nodes

    def stop(self) -> bool:
        """End the nodes in order, then NATS; whether every node that ran ended by itself. Idempotent."""
        running = [node.process for node in self.nodes if node.process is not None and node.process.poll() is None]
        deadline = time.monotonic() + STOP_SECONDS_MAX
        for process in running:
            process.terminate()
        for process in running:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.nats.kill()
        return all(process.returncode == 0 for process in running)


def composed(count: int, port: int, nats_port: int, data: Path, flags: Sequence[str]) -> LocalCluster:
    """A cluster that has not been started."""
    nats_ports = range(nats_port, nats_port + 3 * NATS_SERVERS)
    for taken in (*nats_ports, *range(port, port + count)):
        try:
            socket.create_server(("127.0.0.1", taken)).close()
        except OSError as error:
            flag = "--nats-port" if taken in nats_ports else "--port"
            raise NotStarted(f"Port {taken} is not free; choose others with {flag}.") from error
    nats = configured_nats(data, nats_ports)
    for server in nats.servers:
        server.detached = True
    program = [sys.executable, "-m", "headwater", "serve", "--cluster", nats.url, "--cluster-log-bytes", LOG_BYTES]
    nodes = [
        LocalNode(name, at, [*program, "--node", name, "--port", str(at), *flags], data / name)
        for name, at in ((f"n{number}", port + number - 1) for number in range(1, count + 1))
    ]
    return LocalCluster(nats, nodes)


def described(cluster: LocalCluster, data: Path, seconds: float, away_seconds: float) -> str:
    """What a reader sees when the cluster is ready."""
    rows = [(node.name, node.url, node.process) for node in cluster.nodes]
    rows += [(server.name, server.url, server.process) for server in cluster.nats.servers]
    table = "".join(f"  {name:<6} {url:<24} process {process.pid}\n" for name, url, process in rows if process)
    first, last = cluster.nodes[0], cluster.nodes[-1]
    assert last.process is not None
    return READY.format(
        count=len(cluster.nodes),
        seconds=seconds,
        data=data,
        table=table,
        first=first.url,
        last=last.url,
        away=away_seconds,
        pid=last.process.pid,
        headwater=Path(sys.executable).with_name("headwater"),
    )


def _stop(number: int, frame: FrameType | None) -> None:
    for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(one, signal.SIG_IGN)  # Once is enough: the end has begun.
    raise Stopping


@click.command()
@click.argument("nodes", type=click.IntRange(1, NODES_MAX), default=3)
@click.option("--port", type=int, default=4437, show_default=True, help="Port of the first node; the others follow.")
@click.option("--nats-port", type=int, default=4222, show_default=True, help="First of nine ports for NATS.")
@click.option(
    "--data", type=click.Path(path_type=Path), default=Path("data/cluster"), show_default=True, help="Folder."
)
@click.option("--lake", default="", help="Object store that the nodes share, such as s3://bucket/prefix.")
@click.option("--workers", type=click.IntRange(1), default=1, show_default=True, help="Processes of each node.")
@click.option("--away-seconds", type=float, default=10.0, show_default=True, help="When to start again what died.")
def main(*, nodes: int, port: int, nats_port: int, data: Path, lake: str, workers: int, away_seconds: float) -> None:
    """Run NODES nodes and three NATS servers on this machine until Ctrl-C or SIGTERM."""
    began = time.monotonic()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _stop)
    flags = ["--lake", lake or str(data / "lake"), "--workers", str(workers)]
    cluster, clean = None, True
    try:
        cluster = composed(nodes, port, nats_port, data.absolute(), flags)
        cluster.start()
        click.echo(described(cluster, data, time.monotonic() - began, away_seconds))
        cluster.watch(away_seconds)
    except NotStarted as error:
        raise click.ClickException(str(error)) from error
    except Stopping:
        click.echo("Ending all processes.")
    finally:
        if cluster is not None:
            clean = cluster.stop()
    sys.exit(0 if clean else 1)


if __name__ == "__main__":
    main()
