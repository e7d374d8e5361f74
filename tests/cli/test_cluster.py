"""`headwater cluster` against real nodes on a real NATS server."""

import json
import os
import signal
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from headwater.cli.cluster.command import compared_at, problems_of
from headwater.streams.commands.command import LEVEL
from headwater.testing import RunningServer
from headwater.testing.clusters import LOG_BYTES, RunningCluster, running_cluster
from headwater.testing.servers import running_node

from ..http.processes import eventually
from .commands import Done, Shell, sentence

WAIT_SECONDS = 60.0
CLUSTER = "headwater_cluster_"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster"), nodes=3, nats=1) as cluster:
        yield cluster


@pytest.fixture
def shell(cluster: RunningCluster) -> Shell:
    """Commands against the first node, once all three are members."""
    shell = Shell(cluster.urls[0])
    wait_ready(shell, 3)
    return shell


def wait_ready(shell: Shell, nodes: int) -> Done:
    return shell.ok("cluster", "wait-ready", "--nodes", str(nodes), "--timeout", str(WAIT_SECONDS))


def view_of(done: Done) -> dict[str, Any]:
    view = json.loads(done.out)
    assert isinstance(view, dict)
    return view


@contextmanager
def paused(node: RunningServer) -> Iterator[None]:
    os.kill(node.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(node.pid, signal.SIGCONT)


def test_status_shows_the_members_and_who_does_the_chores(shell: Shell, cluster: RunningCluster) -> None:
    view = view_of(shell.ok("cluster", "status", "--json"))
    assert [(one["name"], one["address"]) for one in view["members"]] == list(
        zip(("n1", "n2", "n3"), cluster.urls, strict=True)
    )
    for member in view["members"]:
        assert member["applied"] > 0 and member["known"] >= member["applied"] and member["level"] >= 2
        assert abs(member["clock_offset_ms"]) < 5_000
    assert view["keeper"] in ("n1", "n2", "n3") and view["problems"] == []
    assert view["leader"] == "nats1" and view["replica_lag"] == 0 and "image_age_seconds" in view
    printed = shell.ok("cluster", "status").text
    assert f"background work  {view['keeper']}" in printed
    assert all(url in printed for url in cluster.urls)


def metrics_of(url: str) -> dict[str, float]:
    with urllib.request.urlopen(f"{url}/metrics") as response:
        lines = response.read().decode().splitlines()
    pairs = (line.rpartition(" ") for line in lines if line.startswith(CLUSTER))
    return {name.removeprefix(CLUSTER): float(value) for name, _, value in pairs}


def test_the_metrics_of_each_node_tell_its_part(shell: Shell, cluster: RunningCluster) -> None:
    shell.ok("create", "counted", "--type", "text/plain")
    for url in cluster.urls:
        Shell(url).ok("show", "counted")
    found = [metrics_of(url) for url in cluster.urls]
    assert [one["members"] for one in found] == [3, 3, 3]
    assert [one["serving"] for one in found] == [1, 1, 1]
    assert [one["log_outage"] for one in found] == [0, 0, 0]
    assert [one["level"] for one in found] == [LEVEL] * 3
    assert sum(one["keeper"] for one in found) == 1
    for one in found:
        assert one["known"] >= one["applied"] > 0 and abs(one["clock_offset_seconds"]) < 5
        assert one["barriers_asked_total"] + one["barriers_logged_total"] > 0
        assert {"resends_total", "fetched_messages_total", "barriers_timed_out_total"} <= one.keys()


def test_several_workers_of_a_cluster_have_one_page_of_metrics(shell: Shell, cluster: RunningCluster) -> None:
    flags = ("--cluster", cluster.nats.url, "--cluster-log-bytes", LOG_BYTES, "--lake", cluster.lake)
    with running_node("--node", "m", "--workers", "2", *flags) as machine:
        wait_ready(shell, 5)
        found = metrics_of(machine.url)
        assert (found["members"], found["serving"], found["level"]) == (5, 1, LEVEL)
        assert found["keeper"] in (0, 1) and found["log_outage"] == 0
        assert found["known"] >= found["applied"] > 0
    wait_ready(shell, 3)


def test_wait_ready_says_that_the_cluster_is_ready(shell: Shell) -> None:
    assert wait_ready(shell, 3).text == "The cluster is ready with 3 members.\n"
    assert view_of(shell.ok("cluster", "wait-ready", "--json")) == {"ready": True, "problems": []}


def test_wait_ready_gives_up(shell: Shell) -> None:
    said = sentence(shell("cluster", "wait-ready", "--nodes", "4", "--timeout", "0"))
    assert said == "The cluster is not ready after 0 s: 1 of 4 members is missing."
    done = shell("cluster", "wait-ready", "--nodes", "5", "--timeout", "0", "--json")
    assert done.code == 1 and view_of(done) == {"ready": False, "problems": ["2 of 5 members are missing."]}
    assert json.loads(done.err)["error"] == "not_ready"


def test_wait_ready_waits_for_a_server_that_does_not_answer_yet() -> None:
    done = Shell("http://127.0.0.1:9")("cluster", "wait-ready", "--timeout", "0.5", "--retry-seconds", "0")
    assert sentence(done) == "The cluster is not ready after 0.5 s: http://127.0.0.1:9 does not answer."


def test_verify_compares_all_members(shell: Shell) -> None:
    shell.ok("create", "verified", "--type", "text/plain")
    shell.ok("append", "verified", stdin=b"text")
    found = view_of(shell.ok("cluster", "verify", "--json"))
    assert found["same"] is True and sorted(found["digests"]) == ["n1", "n2", "n3"]
    assert len(set(found["digests"].values())) == 1
    assert shell.ok("cluster", "verify").text.endswith("The state of 3 members is the same.\n")


def test_verify_says_which_member_did_not_answer(shell: Shell, cluster: RunningCluster) -> None:
    with paused(cluster.nodes[2]):
        done = shell("cluster", "verify", "--timeout", "1")
    assert sentence(done) == "Members that did not answer: n3."
    assert "n3      no answer" in done.text
    wait_ready(shell, 3)
    with paused(cluster.nodes[1]):
        done = shell("cluster", "verify", "--timeout", "1", "--json")
    found = view_of(done)
    assert (done.code, found["same"], found["digests"]["n2"]) == (1, False, None)
    assert found["digests"]["n1"] == found["digests"]["n3"] is not None


def test_status_says_that_a_member_is_silent(shell: Shell, cluster: RunningCluster) -> None:
    seen: list[Done] = []

    def is_said() -> bool:
        seen.append(shell("cluster", "status"))
        return "Problem: Member n3 is silent.\n" in seen[-1].err

    with paused(cluster.nodes[2]):
        assert eventually(is_said, WAIT_SECONDS), seen
        assert seen[-1].code == 1
        # It is evicted after some seconds, so that the others need not wait for it.
        assert eventually(lambda: "n3" not in shell("cluster", "status").text, WAIT_SECONDS)
    wait_ready(shell, 3)


def test_a_cluster_without_a_keeper_is_not_in_order(shell: Shell) -> None:
    view = view_of(shell.ok("cluster", "status", "--json"))
    assert problems_of(view | {"keeper": None}) == ["No node does the background work."]
    assert problems_of(view | {"outage": "No NATS server."}) == ["No NATS server."]


def test_nodes_that_differ_are_compared_where_they_were_found_to() -> None:
    outage = "The nodes n1 and n3 differ in what they hold at checkpoint 0123456789abcdef; find out."
    latest = {"id": "0123456789abcdef", "position": 8, "sha256": "aa", "failed": False}
    assert compared_at({"outage": outage, "checkpoint": latest}) == "0123456789abcdef"
    assert compared_at({"outage": outage, "checkpoint": latest | {"id": "another"}}) is None
    assert compared_at({"outage": outage, "checkpoint": None}) is None
    assert compared_at({"outage": "No NATS server.", "checkpoint": latest}) is None


def test_a_drained_node_leaves_and_ends(shell: Shell, cluster: RunningCluster) -> None:
    flags = ("--cluster", cluster.nats.url, "--cluster-log-bytes", LOG_BYTES, "--lake", cluster.lake)
    with running_node("--node", "n4", *flags) as fourth, running_node("--node", "n5", *flags) as fifth:
        wait_ready(shell, 5)
        assert shell.ok("cluster", "drain", "n4").text == "n4 has left the cluster.\n"
        assert fourth.process.wait(WAIT_SECONDS) == 0, fourth.output()
        assert "evicted" not in fourth.output()
        # A node can be asked to drain itself, too.
        done = Shell(fifth.url)("cluster", "drain", "n5", "--json")
        assert (done.code, view_of(done)) == (0, {"node": "n5", "left": True})
        assert fifth.process.wait(WAIT_SECONDS) == 0, fifth.output()
    view = view_of(shell.ok("cluster", "status", "--json"))
    assert [one["name"] for one in view["members"]] == ["n1", "n2", "n3"]


def test_a_node_that_is_no_member_cannot_be_drained(shell: Shell) -> None:
    assert sentence(shell("cluster", "drain", "n9")) == "n9 is not a member; the members are n1, n2, n3."
    assert json.loads(shell("cluster", "drain", "n9", "--json").err)["error"] == "not_a_member"


def test_wrong_usage_has_exit_code_2(shell: Shell) -> None:
    assert shell("cluster", "drain").code == 2
    assert shell("cluster", "wait-ready", "--nodes", "0").code == 2
    assert shell("cluster", "verify", "--timeout", "-1").code == 2
    assert shell("cluster", "shrink").code == 2


@pytest.mark.parametrize("verb", [("status",), ("wait-ready",), ("drain", "n1"), ("verify",)])
def test_a_server_that_is_no_cluster_is_refused(alone: Shell, verb: tuple[str, ...]) -> None:
    said = sentence(alone("cluster", *verb))
    assert said == "This server is not a node of a cluster; start it with --cluster."
    assert json.loads(alone("cluster", *verb, "--json").err)["error"] == "not_implemented"


@pytest.fixture(scope="module")
def alone() -> Iterator[Shell]:
    with running_node("--memory") as server:
        yield Shell(server.url)
