"""Whether a NATS server syncs each message is read from its monitoring port."""

import pytest

from headwater.log.jetstream.durability import NotVerified, judge_sync, monitor_url
from headwater.testing.nats import NatsServers, running_nats


def test_a_server_that_syncs_each_message_is_good(nats: NatsServers) -> None:
    assert judge_sync(nats.servers[0].monitor_url) is None


def test_a_server_that_syncs_now_and_then_is_named() -> None:
    with running_nats(1, sync_interval='"2m"') as servers:
        assert "nats1 does not sync each message" in str(judge_sync(servers.servers[0].monitor_url))


def test_a_server_without_a_monitoring_port_cannot_be_verified(nats: NatsServers) -> None:
    for url in ("http://127.0.0.1:1", f"http://127.0.0.1:{nats.servers[0].port}"):
        with pytest.raises(NotVerified, match="cannot be verified"):
            judge_sync(url)


def test_the_usual_monitoring_port_of_a_server_is_derived_from_its_address() -> None:
    assert monitor_url("nats://[::1]:4222") == "http://[::1]:8222"
