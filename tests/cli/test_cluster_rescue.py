"""`headwater cluster rescue` after NATS has lost all its data, on real processes."""

import json
import shutil
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from headwater.client import Client, OutcomeUnknown, RequestRefused, RetryPolicy, TransportFailed
from headwater.testing.clusters import LOG_BYTES, running_cluster
from headwater.testing.nats import NatsServers, running_nats
from headwater.testing.servers import ServerNotStarted, running_node

from ..http.processes import eventually
from .commands import Shell, sentence

WAIT_SECONDS = 90.0


def wipe(nats: NatsServers) -> None:
    """Lose everything that NATS stores; its servers start again, empty, at the same addresses."""
    nats.kill()
    for server in nats.servers:
        shutil.rmtree(server.folder / "store")
    nats.start()
    nats.wait_ready()


class Writers:
    """Clients that append to a stream each, and keep what was acknowledged and what is unknown."""

    def __init__(self, urls: list[str], count: int) -> None:
        self._stopping = threading.Event()
        self.acknowledged: dict[str, list[str]] = {}
        self.unknown: dict[str, list[str]] = {}
        self._threads = [
            threading.Thread(target=self._write, args=(urls[number % len(urls)], f"w{number}"), daemon=True)
            for number in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def _write(self, url: str, name: str) -> None:
        acknowledged = self.acknowledged[name] = []
        unknown = self.unknown[name] = []
        with Client(url, retry=RetryPolicy(attempts_max=1, connect_attempts_max=1), timeout_seconds=30) as client:
            stream = client.stream(name)
            stream.create("text/plain")
            number = 0
            while not self._stopping.is_set():
                number += 1
                try:
                    stream.append(f"{number};")
                    acknowledged.append(f"{number};")
                except OutcomeUnknown:
                    unknown.append(f"{number};")
                except (RequestRefused, TransportFailed):
                    self._stopping.wait(0.1)

    def count(self) -> int:
        return sum(map(len, self.acknowledged.values()))

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(WAIT_SECONDS)

    def check(self, url: str) -> None:
        """Everything acknowledged is there, in order, and nothing else but what is unknown."""
        with Client(url) as client:
            for name, acknowledged in self.acknowledged.items():
                found = [f"{one};" for one in client.stream(name).read_text().split(";")[:-1]]
                unknown = set(self.unknown[name])
                assert [one for one in found if one not in unknown] == acknowledged, name
                assert len(found) == len(set(found)), name


def is_out(url: str) -> bool:
    with urllib.request.urlopen(f"{url}/__headwater/cluster") as response:
        return json.load(response)["outage"] is not None


def test_nodes_that_still_run_continue_their_log_without_loss(tmp_path: Path) -> None:
    with running_cluster(tmp_path, nodes=3, nats=1) as cluster:
        flags = ("--cluster", cluster.nats.url, "--cluster-log-bytes", LOG_BYTES)
        shell = Shell(cluster.urls[0])
        shell.ok("cluster", "wait-ready", "--nodes", "3")
        refused = sentence(shell("cluster", "rescue", *flags))
        assert refused.startswith("Node n") and refused.endswith("serves, so the log is not lost.")

        writers = Writers(cluster.urls, 4)
        assert eventually(lambda: writers.count() > 100, WAIT_SECONDS)
        wipe(cluster.nats)
        assert eventually(lambda: all(map(is_out, cluster.urls)), WAIT_SECONDS)
        before = writers.count()

        done = shell("cluster", "rescue", *flags, "--json")
        assert done.code == 0, done
        taken = json.loads(done.out)
        assert taken["node"] in ("n1", "n2", "n3") and taken["sequence"] > 100
        again = json.loads(shell("cluster", "rescue", *flags, "--json").out or b"null")
        assert again is None or again == taken

        # A node that had applied less than the others ends, because it cannot continue; the others heal.
        alive = [node for node in cluster.nodes if node.process.poll() is None]
        assert eventually(
            lambda: any(not is_out(node.url) for node in alive if node.process.poll() is None), WAIT_SECONDS
        )
        assert eventually(lambda: writers.count() > before + 20, WAIT_SECONDS)
        writers.stop()
        alive = [node for node in cluster.nodes if node.process.poll() is None]
        writers.check(alive[0].url)
        with running_node("--node", "n4", *flags, "--lake", cluster.lake) as joined:
            writers.check(joined.url)
            Shell(joined.url).ok("cluster", "wait-ready", "--nodes", str(len(alive) + 1))
            Shell(joined.url).ok("cluster", "verify")


@pytest.fixture
def nats() -> Iterator[NatsServers]:
    with running_nats(1) as servers:
        yield servers


def test_the_object_store_alone_begins_a_new_generation(nats: NatsServers, tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    flags = ("--cluster", nats.url, "--cluster-log-bytes", LOG_BYTES, "--lake", lake)
    shell = Shell("http://127.0.0.1:9")
    with running_node("--node", "n1", *flags) as node:
        Shell(node.url).ok("cluster", "wait-ready")
        with Client(node.url) as client:
            client.stream("kept").create("text/plain", body="in the image")
            request = urllib.request.Request(f"{node.url}/__headwater/cluster/image", method="POST")
            with urllib.request.urlopen(request) as response:
                old = json.load(response)
            client.stream("kept").append(", and not")
            client.stream("lost").create("text/plain")
        said = sentence(shell("cluster", "rescue", *flags, "--yes"))
        assert said.startswith("The stream headwater-0 holds messages 1 to ")
    wipe(nats)
    with pytest.raises(ServerNotStarted, match="begin anew with headwater cluster rescue"), running_node(*flags):
        pass

    done = shell("cluster", "rescue", *flags)
    assert done.code == 2 and "everything acknowledged after" in " ".join(done.err.split())
    done = shell("cluster", "rescue", *flags, "--yes", "--json")
    assert done.code == 0, done
    rescued = json.loads(done.out)
    assert rescued["log_id"] != old["log_id"] and rescued["position"] > old["position"] + 2**39
    assert "is lost." in done.err

    with ExitStack() as stack:
        nodes = [stack.enter_context(running_node("--node", f"n{number}", *flags)) for number in (1, 2)]
        Shell(nodes[0].url).ok("cluster", "wait-ready", "--nodes", "2")
        with Client(nodes[1].url) as client:
            assert client.stream("kept").read_text() == "in the image"
            client.stream("kept").append(", and more")
            client.stream("lost").create("text/plain", body="again")
        with Client(nodes[0].url) as client:
            assert client.stream("kept").read_text() == "in the image, and more"
            assert client.stream("lost").read_text() == "again"
        Shell(nodes[0].url).ok("flush")
        Shell(nodes[0].url).ok("cluster", "verify")


def test_a_rescue_says_why_it_cannot_help(nats: NatsServers, tmp_path: Path) -> None:
    shell = Shell("http://127.0.0.1:9")
    flags = ("--cluster", nats.url, "--yes")
    assert "No node answers" in sentence(shell("cluster", "rescue", *flags))
    said = sentence(shell("cluster", "rescue", *flags, "--lake", str(tmp_path)))
    assert said.endswith("so it is not the lake of a cluster; check --lake.")
    assert shell("cluster", "rescue").code == 2
    assert "is not the address of a NATS server" in sentence(
        shell("cluster", "rescue", "--cluster", "http://x", "--lake", str(tmp_path))
    )
