"""Whole clusters for tests: NATS servers and Headwater nodes as processes on loopback."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from headwater.testing.nats import NatsServers, running_nats
from headwater.testing.servers import RunningServer, running_node

LOG_BYTES = "256MiB"
"""The test servers of NATS have less room than a log takes by default."""


class RunningCluster(NamedTuple):
    """Nodes that serve, the NATS servers with their log, and the lake that they share."""

    nodes: list[RunningServer]
    nats: NatsServers
    lake: str

    @property
    def urls(self) -> list[str]:
        return [node.url for node in self.nodes]


@contextmanager
def running_cluster(
    folder: Path, *flags: str, nodes: int = 3, nats: int = 3, lake: str = "", env: Mapping[str, str] | None = None
) -> Iterator[RunningCluster]:
    """Run so many nodes, named n1, n2 and so on, on so many NATS servers; the lake is in the folder unless given."""
    lake = lake or str(folder / "lake")
    with running_nats(nats) as servers, ExitStack() as stack:
        common = ("--cluster", servers.url, "--cluster-log-bytes", LOG_BYTES, "--lake", lake, *flags)
        started = [
            stack.enter_context(running_node("--node", f"n{number}", *common, env=env))
            for number in range(1, nodes + 1)
        ]
        yield RunningCluster(started, servers, lake)
