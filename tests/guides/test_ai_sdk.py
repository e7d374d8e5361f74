"""The guide to the AI SDK: the chat that it builds survives a reload of the page and a crash of the server."""

import json
import re
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from headwater.client import Client
from headwater.testing import RunningServer, running_server
from headwater.testing.ports import free_port

from .node_project import BLOCK, GUIDES, HERE, NodeProject, wait_until

PAGE = (GUIDES / "ai-sdk.md").read_text()
FILES = BLOCK.findall(PAGE)
QUESTION = "What is a stream?"
ANSWER = "A stream only grows, so you can leave at any word and come back to the same place."
OFFICIAL = 'import { toDurableStreamResponse } from "@durable-streams/aisdk-transport";'
ONCE = 'import { toDurableStreamResponse } from "./once.ts";'
OPEN_PAGE = str(HERE / "open_page.mjs")

Serving = Callable[[], AbstractContextManager[RunningServer]]


@pytest.fixture
def ports() -> tuple[int, int]:
    """Of Headwater and of the backend."""
    return free_port(), free_port()


@pytest.fixture
def api(ports: tuple[int, int]) -> str:
    return f"http://127.0.0.1:{ports[1]}/api/chat"


@pytest.fixture
def project(ports: tuple[int, int], tmp_path: Path) -> NodeProject:
    streams, backend = ports
    addresses = {
        "http://127.0.0.1:4437": f"http://127.0.0.1:{streams}",
        "http://127.0.0.1:3000": f"http://127.0.0.1:{backend}",
        "port: 3000": f"port: {backend}",
    }
    return NodeProject(tmp_path / "project", FILES, addresses)


@pytest.fixture
def serving(ports: tuple[int, int], tmp_path: Path) -> Serving:
    """Starts Headwater, and starts it again: with the same port and data."""
    return partial(running_server, "--port", str(ports[0]), data=tmp_path / "data")


@contextmanager
def backend(project: NodeProject, api: str) -> Iterator[None]:
    with project.running("server.ts") as process:

        def answers() -> bool:
            assert process.poll() is None, project.printed("server.ts").read_text()
            try:
                return bool(get(f"{api}/none") == [])
            except OSError:
                return False

        wait_until(answers, "the backend answers")
        yield


def get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=10) as response:
        return json.load(response)


def text_of(message: Any) -> str:
    return "".join(part["text"] for part in message["parts"] if part["type"] == "text")


def test_every_typescript_block_is_a_file_and_its_types_are_right(project: NodeProject) -> None:
    assert len(FILES) == len(re.findall("^```(?:typescript|tsx|javascript)$", PAGE, re.MULTILINE))
    assert [name for name, _, _ in FILES] == ["model.ts", "server.ts", "reload.ts", "page.tsx", "once.ts"]
    server = project.folder / "server.ts"
    assert OFFICIAL in server.read_text() and ONCE in PAGE
    (project.folder / "server-once.ts").write_text(server.read_text().replace(OFFICIAL, ONCE))
    project.check()


def test_the_page_installs_the_versions_that_are_tested() -> None:
    pinned = json.loads((HERE / "package.json").read_text())["devDependencies"]
    [command] = re.findall(r"^npm install (.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    for wanted in command.replace("\\\n", " ").split():
        package, _, version = wanted.rpartition("@")
        assert pinned[package] == version


def test_a_second_chat_resumes_what_the_first_one_began(project: NodeProject, serving: Serving, api: str) -> None:
    with serving(), backend(project, api):
        printed = project.run("reload.ts")
    before, after = printed.splitlines()
    assert re.fullmatch(r"before: A stream only grows, so you can leave ?.*", before)
    assert after == f"after:  {ANSWER}"
    assert f"\n{after}\n```" in PAGE


def test_the_page_shows_the_whole_answer_after_a_reload(project: NodeProject, serving: Serving, api: str) -> None:
    page = str(project.build() / "page.js")
    address = "http://127.0.0.1:5173/#chat-1"
    with serving(), backend(project, api):
        shown = project.run(OPEN_PAGE, page, address, "leave", QUESTION)
        assert shown.startswith(f"user: {QUESTION}\nassistant: A stream only")
        assert ANSWER not in shown
        assert project.run(OPEN_PAGE, page, address, "place.") == f"user: {QUESTION}\nassistant: {ANSWER}\n"
        # The answer is complete now, so it comes from the backend.
        assert project.run(OPEN_PAGE, page, address, "place.") == f"user: {QUESTION}\nassistant: {ANSWER}\n"
        assert [text_of(message) for message in get(f"{api}/chat-1")] == [QUESTION, ANSWER]


def test_an_answer_that_is_completed_while_the_page_loads_is_shown(
    project: NodeProject, serving: Serving, api: str
) -> None:
    server_file, route = project.folder / "server.ts", 'app.get("/api/chat/:id/stream", (c) => {'
    source = server_file.read_text()
    assert route in source
    slow = 'while (chats.get(c.req.param("id"))!.messages.length < 2) await new Promise((go) => setTimeout(go, 10));'
    server_file.write_text(source.replace(route, f"{route.replace('(c)', 'async (c)')} {slow}"))
    page = str(project.build() / "page.js")
    address = "http://127.0.0.1:5173/#chat-3"
    with serving(), backend(project, api):
        project.run(OPEN_PAGE, page, address, "so you", QUESTION)
        assert project.run(OPEN_PAGE, page, address, "place.") == f"user: {QUESTION}\nassistant: {ANSWER}\n"


def test_a_killed_server_doubles_and_loses_no_word(project: NodeProject, serving: Serving, api: str) -> None:
    server_file = project.folder / "server.ts"
    server_file.write_text(server_file.read_text().replace(OFFICIAL, ONCE))
    page = str(project.build() / "page.js")
    address = "http://127.0.0.1:5173/#chat-2"
    with ExitStack() as stack:
        server = stack.enter_context(serving())
        stack.enter_context(backend(project, api))
        project.run(OPEN_PAGE, page, address, "so you", QUESTION)
        url = get(f"{api}/chat-2/stream")["streamUrl"]
        server.kill()
        stack.enter_context(serving())
        assert project.run(OPEN_PAGE, page, address, "place.") == f"user: {QUESTION}\nassistant: {ANSWER}\n"
        with Client(url) as client:
            stream = client.stream(url)
            wait_until(lambda: stream.head().closed, "the backend has written the rest of the answer")
            deltas = [chunk["delta"] for chunk in stream.read_json() if chunk["type"] == "text-delta"]
    assert "".join(deltas) == ANSWER
