"""The cluster under torture: three NATS servers, and three nodes, each with its own links to them."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from headwater.testing.nats import NatsServers, running_nats
from headwater.testing.ports import free_ports

from .links import Link

NODES = 3
LOG_BYTES = "256MiB"


class TorturedNode:
    """One node: a process that is killed, paused and started again, always on the same port."""

    def __init__(self, name: str, port: int, links: list[Link], folder: Path) -> None:
        self.name, self.port, self.links, self._folder = name, port, links, folder
        self.url = f"http://127.0.0.1:{port}"
        self._process: subprocess.Popen[bytes] | None = None
        self.paused = False

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def output(self) -> str:
        path = self._folder / f"{self.name}.txt"
        return path.read_text(errors="replace") if path.exists() else ""

    def start(self) -> None:
        if self.runs:
            return
        servers = ",".join(f"nats://127.0.0.1:{link.port}" for link in self.links)
        command = [sys.executable, "-m", "headwater", "serve", "--port", str(self.port), "--node", self.name]
        command += ["--cluster", servers, "--cluster-log-bytes", LOG_BYTES, "--lake", str(self._folder / "lake")]
        # Flushes, catalogs and images happen all the time.
        command += ["--flush-bytes-max", "64KiB", "--image-log-bytes", "1MiB", "--log-level", "info"]
        with (self._folder / f"{self.name}.txt").open("ab") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )

    def kill(self) -> None:
        if self._process is not None and self.runs:
            self._process.kill()
            self._process.wait(10)
        self.paused = False

    def terminate(self) -> None:
        if self._process is not None and self.runs:
            self.resume()
            self._process.terminate()

    async def ended(self) -> int:
        assert self._process is not None
        return await asyncio.to_thread(self._process.wait, 40)

    def pause(self) -> None:
        if self._process is not None and self.runs:
            self._process.send_signal(signal.SIGSTOP)
            self.paused = True

    def resume(self) -> None:
        if self._process is not None and self.runs and self.paused:
            self._process.send_signal(signal.SIGCONT)
        self.paused = False


class TorturedCluster:
    """All of it, and how to make it whole again."""

    def __init__(self, nats: NatsServers, nodes: list[TorturedNode]) -> None:
        self.nats, self.nodes = nats, nodes

    @property
    def urls(self) -> list[str]:
        return [node.url for node in self.nodes]

    def heal(self) -> None:
        for server in self.nats.servers:
            server.resume()
        self.nats.start()
        for node in self.nodes:
            for link in node.links:
                link.heal()
            node.resume()
            node.start()


@contextlib.asynccontextmanager
async def tortured(folder: Path) -> AsyncIterator[TorturedCluster]:
    with running_nats(3) as nats:
        nodes = []
        for number, port in enumerate(free_ports(NODES), 1):
            links = [Link(server.port) for server in nats.servers]
            for link in links:
                await link.open()
            nodes.append(TorturedNode(f"n{number}", port, links, folder))
        cluster = TorturedCluster(nats, nodes)
        try:
            cluster.heal()
            yield cluster
        finally:
            for node in nodes:
                node.kill()
                for link in node.links:
                    await link.close()
