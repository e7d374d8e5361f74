"""The page about operating a cluster: its blocks run in order on a cluster of three nodes and three NATS servers."""

import os
import re
import subprocess
import sys
from pathlib import Path

from headwater.testing.clusters import RunningCluster, running_cluster

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "operate-cluster.md").read_text()
BLOCK = re.compile(r"^(<!-- not run: [^\n]+ -->\n)?```bash\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = [text for skipped, text in BLOCK.findall(PAGE) if not skipped and not text.startswith("scripts/cluster")]
BLOCK_SECONDS_MAX = 120


def on(cluster: RunningCluster, text: str) -> str:
    """A block with the ports of this cluster in place of those that `scripts/cluster` uses."""
    real = dict(zip((4437, 4438, 4439), (url.rpartition(":")[2] for url in cluster.urls), strict=True))
    servers = cluster.nats.servers
    real |= {4222 + number: str(server.port) for number, server in enumerate(servers)}
    real |= {4225 + number: str(server.monitor_port) for number, server in enumerate(servers)}
    return re.sub(r"(?<=127\.0\.0\.1:)\d{4}\b", lambda port: real[int(port[0])], text)


def test_every_command_of_the_page_works(tmp_path: Path) -> None:
    assert len(BLOCKS) == 5
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    with running_cluster(tmp_path / "cluster") as cluster:
        for block in BLOCKS:
            command = ["bash", "-euo", "pipefail", "-c", on(cluster, block)]
            done = subprocess.run(
                command,
                cwd=tmp_path,
                env=environment,
                check=False,
                capture_output=True,
                text=True,
                timeout=BLOCK_SECONDS_MAX,
            )
            assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
        # The page drains a node: it leaves, ends by itself, and the others serve.
        assert cluster.nodes[2].process.wait(30) == 0
        assert subprocess.run(["curl", "-fsS", f"{cluster.urls[0]}/v1/stream/hello"], check=True).returncode == 0
