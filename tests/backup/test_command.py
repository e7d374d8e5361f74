"""The command line: create, verify, restore."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.usefixtures("server")
def test_the_command_line_copies_checks_and_restores(data: Path, tmp_path: Path) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "headwater", "backup", *arguments]
        return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)

    place, again = str(tmp_path / "backup"), str(tmp_path / "again")
    made = run("create", place, "--data", str(data), "--json")
    assert made.returncode == 0, made.stderr
    assert json.loads(made.stdout)["streams"] == 10
    assert run("verify", place).returncode == 0
    assert run("create", place, "--data", str(data)).stderr.endswith(
        "already contains a backup; choose another location.\n"
    )
    assert run("restore", place, "--data", again).returncode == 0
    assert "not empty" in run("restore", place, "--data", again).stderr
    shutil.rmtree(tmp_path / "backup" / "image")
    failed = run("verify", place)
    assert (failed.returncode, failed.stderr.count("\n")) == (1, 1)
    assert run("verify").returncode == 2
