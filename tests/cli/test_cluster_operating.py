"""What operators do to a cluster: restarts in the wrong order, a name that is taken, no NATS, no lake, a full log."""

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.testing.nats import NatsServers, running_nats
from headwater.testing.servers import running_node

from ..http.processes import eventually
from .commands import Shell

WAIT_SECONDS = 90.0


@pytest.fixture
def nats() -> Iterator[NatsServers]:
    with running_nats(1) as servers:
        yield servers


def flags_of(nats: NatsServers, lake: Path) -> tuple[str, ...]:
    return ("--cluster", nats.url, "--cluster-log-bytes", "64MiB", "--lake", str(lake))


def ask(method: str, url: str, body: bytes | None = None) -> tuple[int, str]:
    """The status of an answer, and the code of a refusal."""
    request = urllib.request.Request(url, data=body, method=method, headers={"Content-Type": "text/plain"})
    try:
        with urllib.request.urlopen(request, timeout=WAIT_SECONDS) as response:
            return response.status, ""
    except urllib.error.HTTPError as error:
        return error.code, str(json.load(error)["code"])


def test_one_node_alone_serves_after_all_were_killed(nats: NatsServers, tmp_path: Path) -> None:
    flags = flags_of(nats, tmp_path / "lake")
    with running_node("--node", "n1", *flags) as first, running_node("--node", "n2", *flags) as second:
        Shell(first.url).ok("cluster", "wait-ready", "--nodes", "2")
        Shell(first.url).ok("create", "s", "--type", "text/plain")
        keeper = json.loads(Shell(first.url).ok("cluster", "status", "--json").out)["keeper"]
        first.kill()
        second.kill()
    nats.kill()
    # The node is started before NATS is, and the other one never.
    command = [sys.executable, "-m", "headwater", "serve", "--port", "0", "--node", keeper, *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            time.sleep(1)
            nats.start()
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("Headwater is ready at "), line
            url = line.split()[4]
            Shell(url).ok("cluster", "wait-ready", "--timeout", str(WAIT_SECONDS))
            assert ask("POST", f"{url}/v1/stream/s", b"x") == (204, "")
        finally:
            process.kill()


def test_a_process_that_takes_a_name_ends_the_one_that_had_it(nats: NatsServers, tmp_path: Path) -> None:
    flags = ("--node", "n1", *flags_of(nats, tmp_path / "lake"))
    with running_node(*flags) as first, running_node(*flags) as second:
        assert first.process.wait(WAIT_SECONDS) == 1
        assert "Another process took over the name 'n1'; this one ends." in first.output()
        assert ask("GET", f"{second.url}/readyz") == (200, "")


def test_a_node_without_nats_says_so_and_heals(nats: NatsServers, tmp_path: Path) -> None:
    with running_node("--node", "n1", *flags_of(nats, tmp_path / "lake")) as node:
        Shell(node.url).ok("cluster", "wait-ready")
        nats.servers[0].pause()
        assert eventually(lambda: ask("GET", f"{node.url}/readyz") == (503, "log_unavailable"), WAIT_SECONDS)
        done = Shell(node.url)("cluster", "status")
        assert done.code == 1 and "node             n1 (not serving)" in done.text and "Problem: N" in done.err
        nats.servers[0].resume()
        Shell(node.url).ok("cluster", "wait-ready", "--timeout", str(WAIT_SECONDS))


def test_a_full_log_refuses_appends_until_the_lake_is_back(nats: NatsServers, tmp_path: Path) -> None:
    lake, moved, megabyte = tmp_path / "lake", tmp_path / "moved", b"x" * 1_000_000
    with running_node("--node", "n1", *flags_of(nats, lake)) as node:
        shell, stream = Shell(node.url), f"{node.url}/v1/stream/s"
        shell.ok("cluster", "wait-ready")
        assert ask("PUT", stream) == (201, "")
        lake.rename(moved)
        lake.write_text("not a folder")
        answers = [ask("POST", stream, megabyte) for _ in range(80)]
        acknowledged = answers.count((204, ""))
        assert 40 < acknowledged < 64 and set(answers) == {(204, ""), (503, "overloaded")}
        assert "Problem: The log of the cluster is full until its next image" in shell("cluster", "status").err
        lake.unlink()
        moved.rename(lake)
        assert eventually(lambda: ask("POST", stream, b"y") == (204, ""), WAIT_SECONDS)
        shell.ok("cluster", "status")
        with urllib.request.urlopen(f"{stream}?offset=-1") as response:
            assert response.read(1_000_000) == megabyte
