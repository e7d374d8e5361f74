"""NATS servers for all tests of the log, each with its own stream on them, and stores for images."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headwater.log.images.files import ImageFiles, Images
from headwater.log.images.objects import ObjectImages
from headwater.storage.memory import MemoryStore
from headwater.storage.opening import open_store
from headwater.testing.nats import NatsServers, running_nats

from ..doubles.faulty_disk import FaultyDisk
from .jetstream.nodes import Cluster

LOG_ID = "9f2c"


@pytest.fixture(scope="session")
def nats() -> Iterator[NatsServers]:
    with running_nats(1) as servers:
        yield servers


@pytest.fixture(scope="module")
def three_nats() -> Iterator[NatsServers]:
    with running_nats(3) as servers:
        yield servers


@pytest.fixture
def cluster(nats: NatsServers) -> Cluster:
    """A log on one NATS server."""
    return Cluster(nats)


@pytest.fixture
def cluster_of_three(three_nats: NatsServers) -> Cluster:
    """A log on three NATS servers, all of which run."""
    for server in three_nats.servers:
        server.resume()
    three_nats.start()
    three_nats.wait_ready()
    return Cluster(three_nats)


@pytest.fixture(params=["files", "memory", "folder", "s3"])
def open_images(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Images]:
    """Opens the same images every time, as another process would."""
    if request.param == "files":
        disk = FaultyDisk()
        return lambda: ImageFiles(Path("/data/images"), disk, LOG_ID)
    if request.param == "memory":
        store = MemoryStore()
        return lambda: ObjectImages(store, LOG_ID)
    url = str(tmp_path / "lake") if request.param == "folder" else request.getfixturevalue("s3_url")
    return lambda: ObjectImages(open_store(url), LOG_ID)
