"""Every block of the Spark guides runs, page by page and in order, against a new server for each page.

Starting Spark takes longer than most of these commands, so `headwater spark` runs inside this process, in the session
that all tests share; the rest of a shell block runs in a shell. The slow suite starts a process for every block of all
pages, as a reader of the guides would.
"""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from headwater.cli import main
from headwater.testing import running_server

ROOT = Path(__file__).parents[2]
GUIDES = ROOT / "docs" / "guides" / "spark"
PAGES = sorted(GUIDES.glob("*.md"))
LONG = {"export", "verify"}
BLOCK = re.compile(r"^(<!-- not run: [^\n]+ -->\n\n?)?```(bash|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
URL = "http://127.0.0.1:4437"
BLOCK_SECONDS_MAX = 300


def blocks(page: Path, url: str) -> list[tuple[str, str]]:
    found = BLOCK.findall(page.read_text())
    return [(language, text.replace(URL, url)) for skipped, language, text in found if not skipped]


def environment(url: str) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "HEADWATER_URL": url, "PATH": path}


def run(command: list[str], folder: Path, url: str) -> None:
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment(url),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=BLOCK_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, f"{command[-1]}\n{done.stdout}\n{done.stderr}"


def commands(text: str) -> list[str]:
    """Split a shell block: each `headwater spark` command is alone, the lines between them stay together."""
    found: list[str] = []
    for line in text.replace("\\\n", " ").splitlines():
        alone = line.startswith("headwater spark ") and not set(line) & set("|<>")
        if alone or not found or found[-1].startswith("headwater spark "):
            found.append(line)
        else:
            found[-1] += f"\n{line}"
    return found


@pytest.mark.parametrize("page", [page for page in PAGES if page.stem not in LONG], ids=lambda page: page.stem)
def test_every_example_of_a_guide_runs(
    page: Path, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SparkSession, "stop", lambda self: None)
    monkeypatch.chdir(tmp_path)
    with running_server(data=tmp_path / "data") as server:
        monkeypatch.setenv("HEADWATER_URL", server.url)
        for language, text in blocks(page, server.url):
            if language == "python":
                exec(compile(text, f"{page.name}", "exec"), {"__name__": "__main__"})
                continue
            for command in commands(text):
                if command.startswith("headwater spark "):
                    result = CliRunner().invoke(main, shlex.split(command)[1:])
                    assert result.exit_code == 0, f"{command}\n{result.output}\n{result.exception!r}"
                else:
                    run(["bash", "-euo", "pipefail", "-c", command], tmp_path, server.url)


@pytest.mark.spark_slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_example_of_a_guide_runs_as_a_person_would_run_it(page: Path, tmp_path: Path) -> None:
    with running_server(data=tmp_path / "data") as server:
        for language, text in blocks(page, server.url):
            command = ["bash", "-euo", "pipefail", "-c"] if language == "bash" else [sys.executable, "-c"]
            run([*command, text], tmp_path, server.url)
