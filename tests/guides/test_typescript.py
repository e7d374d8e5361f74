"""The guide to the TypeScript client: its files run as shown, and survive everything that the page says."""

import json
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from headwater.client import Client, NotFound
from headwater.testing import RunningServer, running_server
from headwater.testing.ports import free_port

from .node_project import BLOCK, GUIDES, HERE, NodeProject, wait_until

PAGE = (GUIDES / "typescript.md").read_text()
FILES = BLOCK.findall(PAGE)
PRINTED = {name: printed for name, _, printed in FILES}
URL = "http://127.0.0.1:4437"
STEPS = list(range(1, 51))


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def project(port: int, tmp_path: Path) -> NodeProject:
    return NodeProject(tmp_path / "project", FILES, {URL: f"http://127.0.0.1:{port}"})


@pytest.fixture
def serving(port: int, tmp_path: Path) -> Callable[[], AbstractContextManager[RunningServer]]:
    """Starts the server, and starts it again: with the same port and data."""
    return partial(running_server, "--port", str(port), data=tmp_path / "data")


def saved(project: NodeProject) -> Any:
    """What `follow.ts` has written, or None before its first write."""
    path = project.folder / "saved.json"
    return json.loads(path.read_text()) if path.exists() else None


def steps_saved(project: NodeProject) -> int:
    found = saved(project)
    return len(found["steps"]) if found else 0


def has_saved_more_than(steps: int, project: NodeProject) -> bool:
    return steps_saved(project) > steps


def exists(server: RunningServer, name: str) -> bool:
    with Client(f"{server.url}/v1/stream") as client:
        try:
            client.stream(name).head()
        except NotFound:
            return False
    return True


def test_every_typescript_block_is_a_file_and_its_types_are_right(project: NodeProject) -> None:
    assert len(FILES) == len(re.findall("^```(?:typescript|tsx|javascript)$", PAGE, re.MULTILINE))
    assert list(PRINTED) == ["notes.ts", "live.ts", "write.ts", "follow.ts"]
    project.check()


def test_the_page_installs_the_version_that_is_tested() -> None:
    pinned = json.loads((HERE / "package.json").read_text())["devDependencies"]
    [(package, version)] = re.findall(r"^npm install (\S+)@(\S+)$", PAGE, re.MULTILINE)
    assert pinned[package] == version


@pytest.mark.parametrize("name", ["notes.ts", "live.ts"])
def test_a_file_prints_what_the_page_says(
    name: str, project: NodeProject, serving: Callable[[], AbstractContextManager[RunningServer]]
) -> None:
    with serving():
        assert project.run(name) == PRINTED[name] != ""


def test_writer_and_follower_survive_a_killed_server_and_the_follower_its_own_death(
    project: NodeProject, serving: Callable[[], AbstractContextManager[RunningServer]]
) -> None:
    with serving() as server, project.running("write.ts") as writer:
        wait_until(lambda: exists(server, "guide/steps"), "write.ts has created its stream")
        with project.running("follow.ts"):
            wait_until(lambda: steps_saved(project) >= 5, "the follower has saved some steps")
        # It is dead now. The next one survives the server.
        with project.running("follow.ts") as follower:
            # The first of two writes may be what was there already; the second came over SSE.
            for _ in range(2):
                wait_until(partial(has_saved_more_than, steps_saved(project), project), "the second follower resumes")
            server.kill()
            wait_until(lambda: "resuming at" in project.printed("follow.ts").read_text(), "the connection is broken")
            assert writer.poll() is None and follower.poll() is None
            assert steps_saved(project) < len(STEPS)
            with serving():
                assert follower.wait(60) == 0, project.printed("follow.ts").read_text()
                assert writer.wait(60) == 0, project.printed("write.ts").read_text()
    assert saved(project)["steps"] == STEPS
    assert project.printed("write.ts").read_text() == "written\n"
    # The page shows it after a paragraph that says what to kill.
    assert "```text\n50 steps, 50 different\n```" in PAGE
    assert project.printed("follow.ts").read_text().endswith("\n50 steps, 50 different\n")
