"""NATS servers for all tests of the log; each test has its own stream on them."""

from collections.abc import Iterator

import pytest

from headwater.testing.nats import NatsServers, running_nats

from .jetstream.nodes import Cluster


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
