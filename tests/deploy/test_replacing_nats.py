"""What the page tells operators to do with NATS: replace a server whose disk is lost, and enlarge the log."""

import asyncio
import json
import shutil
import time
import urllib.error
import urllib.request
from pathlib import Path

from headwater.log.jetstream.client import Client
from headwater.log.jetstream.streams import ClusterConfig, call, stream_info
from headwater.log.jetstream.visiting import Visit
from headwater.testing.clusters import running_cluster
from headwater.testing.servers import running_node

SECONDS_MAX = 60.0
ENLARGED_BYTES = 512 * 1024 * 1024


def request(url: str, method: str = "GET", data: bytes | None = None) -> bytes:
    """Send a request, again while the cluster is busy electing a leader."""
    deadline = time.monotonic() + SECONDS_MAX
    call = urllib.request.Request(url, data, {"Content-Type": "text/plain"}, method=method)
    while True:
        try:
            with urllib.request.urlopen(call, timeout=30) as response:
                body: bytes = response.read()
            return body
        except urllib.error.HTTPError as error:
            refusal = json.loads(error.read())
            assert refusal["code"] == "log_unavailable", refusal
            assert time.monotonic() < deadline, refusal
            time.sleep(0.2)


def test_a_nats_server_with_an_empty_disk_takes_the_place_of_one_that_was_lost(tmp_path: Path) -> None:
    with running_cluster(tmp_path, nodes=1) as cluster:
        stream = f"{cluster.urls[0]}/v1/stream/s"
        request(stream, "PUT", b"kept")
        lost, other = cluster.nats.followers_of("headwater-0")
        lost.kill()
        shutil.rmtree(lost.folder / "store")
        request(stream, "POST", b", more")
        lost.start()
        cluster.nats.wait_ready()
        # Now the new server is needed for a majority, and must have what was written before it came.
        cluster.nats.leader_of("headwater-0").kill()
        request(stream, "POST", b", and more")
        assert request(stream) == b"kept, more, and more"
        with running_node("--cluster", cluster.nats.url, "--lake", cluster.lake, "--node", "n2") as late:
            assert request(f"{late.url}/v1/stream/s") == b"kept, more, and more"
        assert other.process is not None


async def _enlarge(client: Client, config: ClusterConfig) -> None:
    """As `nats stream edit headwater-0 --max-bytes` does."""
    found = json.loads(await call(client, f"STREAM.INFO.{config.stream}"))["config"]
    await call(client, f"STREAM.UPDATE.{config.stream}", {**found, "max_bytes": ENLARGED_BYTES})


def test_the_log_can_be_enlarged(tmp_path: Path) -> None:
    with running_cluster(tmp_path, nodes=1, nats=1) as cluster:
        config = ClusterConfig(cluster.nats.urls)
        request(f"{cluster.urls[0]}/v1/stream/s", "PUT", b"kept")
        with Visit(config) as visit:
            visit.call(_enlarge(visit.client, config))
            found = visit.call(asyncio.wait_for(stream_info(visit.client, config), SECONDS_MAX))
        assert found is not None
        assert found.config.max_bytes == ENLARGED_BYTES
        with running_node("--cluster", cluster.nats.url, "--lake", cluster.lake, "--node", "n2") as restarted:
            assert request(f"{restarted.url}/v1/stream/s") == b"kept"
