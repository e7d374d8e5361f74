"""`headwater doctor --cluster`: the NATS servers of a cluster."""

import json
from typing import Any

from headwater.testing.nats import NatsServers, running_nats

from .commands import Shell


def findings(*arguments: str) -> dict[str, dict[str, Any]]:
    found = Shell("http://127.0.0.1:1")("doctor", "--json", *arguments).out
    return {one["check"]: one for one in json.loads(found) if one["check"].startswith("nats")}


def check(servers: NatsServers) -> dict[str, dict[str, Any]]:
    monitors = ",".join(server.monitor_url for server in servers.servers)
    return findings("--cluster", servers.url, "--cluster-monitor", monitors)


def test_three_servers_that_sync_each_message_are_good() -> None:
    with running_nats(3) as servers:
        found = check(servers)
    assert len(found) == 7
    assert {one["verdict"] for one in found.values()} == {"ok"}


def test_one_server_that_syncs_now_and_then_is_a_problem() -> None:
    with running_nats(1, sync_interval='"2m"') as servers:
        found = check(servers)
        (server,) = servers.servers
    sync = found[f"nats sync 127.0.0.1:{server.monitor_port}"]
    assert (sync["verdict"], "sync_interval to always" in sync["fix"]) == ("problem", True)
    assert found["nats cluster"]["verdict"] == "warning"


def test_servers_that_do_not_answer_are_named_without_their_password() -> None:
    found = findings("--cluster", "nats://me:secret@127.0.0.1:1,http://x")
    assert found["nats 127.0.0.1:1"]["verdict"] == "problem"
    assert found["nats"]["fix"] == "correct --cluster"
    assert found["nats sync 127.0.0.1:8222"]["verdict"] == "warning"
    assert "secret" not in json.dumps(found)
