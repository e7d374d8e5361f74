"""The guide to Yjs: its files run as shown, and the document survives a crash of both servers."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headwater.testing import running_server
from headwater.testing.ports import free_port

from .node_project import BLOCK, GUIDES, HERE, NodeProject, wait_until

PAGE = (GUIDES / "yjs.md").read_text()
FILES = BLOCK.findall(PAGE)
PRINTED = {name: printed for name, _, printed in FILES}
READ = """
import { setTimeout } from "node:timers/promises";
import { YjsProvider } from "@durable-streams/y-durable-streams";
import * as Y from "yjs";
const doc = new Y.Doc();
const provider = new YjsProvider({ doc, baseUrl: "http://127.0.0.1:4438/v1/yjs/guide", docId: "plan" });
while (!provider.synced) await setTimeout(10);
console.log(doc.getText("body").toString());
provider.destroy();
"""


@pytest.fixture
def ports() -> tuple[int, int]:
    """Of Headwater and of the Yjs server."""
    return free_port(), free_port()


@pytest.fixture
def project(ports: tuple[int, int], tmp_path: Path) -> NodeProject:
    streams, documents = ports
    addresses = {
        "http://127.0.0.1:4437": f"http://127.0.0.1:{streams}",
        "http://127.0.0.1:4438": f"http://127.0.0.1:{documents}",
        "port: 4438": f"port: {documents}",
    }
    return NodeProject(tmp_path / "project", [*FILES, ("read.ts", READ, "")], addresses)


@contextmanager
def documents(project: NodeProject) -> Iterator[None]:
    """The Yjs server of the page."""
    with project.running("server.ts") as process:

        def serves() -> bool:
            assert process.poll() is None, project.printed("server.ts").read_text()
            return "serving documents" in project.printed("server.ts").read_text()

        wait_until(serves, "the Yjs server serves")
        yield


def test_every_typescript_block_is_a_file_and_its_types_are_right(project: NodeProject) -> None:
    assert len(FILES) == len(re.findall("^```(?:typescript|tsx|javascript)$", PAGE, re.MULTILINE))
    assert list(PRINTED) == ["server.ts", "edit.ts", "stored.ts"]
    project.check()


def test_the_page_installs_the_versions_that_are_tested() -> None:
    pinned = json.loads((HERE / "package.json").read_text())["devDependencies"]
    [command] = re.findall(r"^npm install (.*)$", PAGE, re.MULTILINE)
    for wanted in command.split():
        package, _, version = wanted.rpartition("@")
        assert pinned[package] == version


def test_two_editors_agree_and_the_document_survives_both_servers(
    project: NodeProject, ports: tuple[int, int], tmp_path: Path
) -> None:
    serving = ("--port", str(ports[0]))
    with running_server(*serving, data=tmp_path / "data") as server:
        with documents(project):
            assert project.run("edit.ts") == PRINTED["edit.ts"] != ""
            assert project.run("stored.ts") == PRINTED["stored.ts"] != ""
            before = project.run("read.ts")
        server.kill()
    with running_server(*serving, data=tmp_path / "data"), documents(project):
        assert project.run("read.ts") == before
    assert sorted(before.rstrip("\n")) == sorted("Monday. Today: Buy milk.")
