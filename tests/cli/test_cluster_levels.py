"""A rolling upgrade to a new level of commands, on real nodes under load, and commands that a node does not know."""

import secrets
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec
import pytest

from headwater.client import Admin, Client, RequestRefused, RetryPolicy
from headwater.log.jetstream import judging
from headwater.log.jetstream.streams import ClusterConfig
from headwater.log.jetstream.visiting import Visit
from headwater.node.clock import Clock
from headwater.streams.commands.command import LEVEL
from headwater.testing.clusters import LOG_BYTES
from headwater.testing.nats import NatsServers, running_nats
from headwater.testing.ports import free_ports
from headwater.testing.servers import RunningServer, ServerNotStarted, running_node

from ..http.processes import eventually
from .commands import Shell, sentence

WAIT_SECONDS = 60.0


@pytest.fixture
def nats() -> Iterator[NatsServers]:
    with running_nats(1) as servers:
        yield servers


class Nodes:
    """Nodes that keep their names and ports when they are restarted with other flags."""

    def __init__(self, stack: ExitStack, nats: NatsServers, lake: Path, count: int) -> None:
        self._stack, self._flags = stack, ("--cluster", nats.url, "--lake", str(lake), "--cluster-log-bytes", LOG_BYTES)
        self._ports = free_ports(count)
        self.running: dict[int, RunningServer] = {}

    def start(self, number: int, *flags: str) -> None:
        """Start a node; it is ready."""
        named = ("--node", f"n{number + 1}", "--port", str(self._ports[number]))
        self.running[number] = self._stack.enter_context(running_node(*named, *self._flags, *flags))

    def stop(self, number: int) -> None:
        assert self.running[number].stop() == 0, self.running[number].output()

    @property
    def urls(self) -> list[str]:
        return [f"http://127.0.0.1:{port}" for port in self._ports]


class Writer:
    """A client with the URLs of all nodes that appends until it is told to stop, and repeats what has no answer."""

    def __init__(self, urls: list[str]) -> None:
        retry = RetryPolicy(attempts_max=30, connect_attempts_max=30, delay_seconds_max=0.5, busy_seconds=30)
        self.client = Client(",".join(urls), retry=retry)
        self.acknowledged = 0
        self.failure: Exception | None = None
        self._stopping = False
        self._stream = self.client.stream("load")
        self._stream.create("text/plain")
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stopping:
                number = self.acknowledged
                self._stream.append_once(f"{number};", producer_id="load", epoch=0, seq=number)
                self.acknowledged += 1
        except Exception as error:
            self.failure = error

    def stop(self) -> str:
        """End the load, and return what the stream holds."""
        self.end()
        return self._stream.read_text()

    def end(self) -> None:
        self._stopping = True
        self._thread.join(WAIT_SECONDS)


@contextmanager
def writing(urls: list[str]) -> Iterator[Writer]:
    writer = Writer(urls)
    try:
        yield writer
    finally:
        writer.end()
        writer.client.close()


def test_a_rolling_upgrade_raises_the_level_without_a_failed_append(nats: NatsServers, tmp_path: Path) -> None:
    with ExitStack() as stack:
        nodes = Nodes(stack, nats, tmp_path / "lake", 3)
        for number in range(3):
            nodes.start(number, "--level-max", "1")
        shell = Shell(",".join(nodes.urls))
        shell.ok("cluster", "wait-ready", "--nodes", "3")
        said = sentence(shell("cluster", "verify"))
        assert said == "A checkpoint needs level 2, but the cluster has 1; upgrade all nodes."
        with Admin(nodes.urls[0]) as admin:
            admin.register_consumer("monthly", {"0": 0})
            with pytest.raises(RequestRefused, match="silence needs level 4, but the cluster has 1; upgrade all nodes"):
                admin.register_consumer("monthly", {"0": 0}, silence_seconds=86_400)
            assert admin.consumers()[0].silence_seconds == 7 * 86_400

        writer = stack.enter_context(writing(nodes.urls))
        for number in range(3):
            before = writer.acknowledged
            assert eventually(lambda before=before: writer.acknowledged > before, WAIT_SECONDS), writer.failure  # type: ignore[misc]
            nodes.stop(number)
            nodes.start(number)
            shell.ok("cluster", "wait-ready", "--nodes", "3")
        before = writer.acknowledged
        assert eventually(lambda: writer.acknowledged > before + 10, WAIT_SECONDS), writer.failure
        text = writer.stop()
        assert writer.failure is None
        assert text == "".join(f"{number};" for number in range(writer.acknowledged))

        assert eventually(lambda: f"level            {LEVEL}" in shell("cluster", "status").text, WAIT_SECONDS)
        shell.ok("cluster", "verify")
        with Admin(nodes.urls[0]) as admin, Admin(nodes.urls[1]) as other:
            admin.register_consumer("monthly", {"0": 0}, silence_seconds=86_400)
            assert eventually(lambda: other.consumers()[0].silence_seconds == 86_400, WAIT_SECONDS)
        shell.ok("cluster", "verify")

        nodes.stop(2)
        with pytest.raises(ServerNotStarted, match=f"not ready: The log has commands of level {LEVEL}, but node n3"):
            nodes.start(2, "--level-max", "1")
        assert "n3" not in Shell(nodes.urls[0]).ok("cluster", "status").text


def test_an_unknown_command_ends_a_node_with_a_sentence(nats: NatsServers, tmp_path: Path) -> None:
    flags = ("--node", "n1", "--cluster", nats.url, "--lake", str(tmp_path), "--cluster-log-bytes", LOG_BYTES)
    said = "that this version does not know (Invalid value 'sing.1'"
    with running_node(*flags) as node:
        Shell(node.url).ok("cluster", "wait-ready")
        view = msgspec.json.decode(Shell(node.url).ok("cluster", "status", "--json").out)
        publish(nats, view["log_id"], msgspec.msgpack.encode((Clock().now(), [("sing.1", "a song")])))
        assert node.process.wait(WAIT_SECONDS) == 1
        assert said in node.output() and "Traceback" not in node.output()
    with pytest.raises(ServerNotStarted) as caught, running_node(*flags):
        pass
    assert said in str(caught.value) and "Traceback" not in str(caught.value)


def publish(nats: NatsServers, log_id: str, record: bytes) -> None:
    """Publish a record to the log, as a node of a later version would."""
    config = ClusterConfig(nats.urls)
    seed = judging.seed_of(log_id, config.shard)
    message = judging.message(seed, secrets.randbits(63), 1, at=Clock().now(), commands=1, piece=record)
    with Visit(config) as visit:
        visit.call(visit.client.request(config.subject("log"), message, 5.0))
