"""JavaScript that the pages show runs in Chromium, on the page of a server, against that server."""

from collections.abc import Iterator

import pytest

from headwater.client import Client
from headwater.testing import RunningServer, running_server

from ..examples import chromium
from .pages import DOCS, PAGES, Block, blocks

URL = "http://127.0.0.1:4437"
ELSEWHERE = {
    "// follow-many.js": "tests/guides/test_browser.py",
    "// follow.js": "tests/guides/test_internet.py",
}
"""Blocks that run in other tests, by the name of the file that they are written to."""
HERE = [
    block
    for page in PAGES
    for block in blocks(page)
    if block.language == "javascript" and not block.text.startswith(tuple(ELSEWHERE))
]
BEFORE = """
window.seen = [];
const KEY = "kept", STREAM = "{stream}";
const kept = {{ id: "-1" }}, messages = ["one"], event = {{ lastEventId: "x" }};
const show = (message) => seen.push(message), keep = () => {{}};
console.log = (...words) => seen.push(words[0]);
"""
AFTER = {
    "EventSource(`${STREAM}?offset": "seen.includes('one') && source.readyState === 2",
    "localStorage.setItem": "JSON.parse(localStorage.getItem('kept')).messages[0] === 'one'",
    "kept.id.split": "seen.includes('open')",
    "await followMany(": "seen.includes('chat/room-1') && seen.includes('hidden chat/room-2')",
    "stream/letter": "seen.join('').includes('one')",
}
"""What is true after a block, by a part of it."""


@pytest.fixture(scope="module")
def browser() -> Iterator[chromium.Page]:
    program = chromium.find()
    if program is None:
        pytest.skip("no Chromium is installed; scripts/chromium installs one")
    with chromium.page(program) as page:
        yield page


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running_server() as server, Client(server.url) as client:
        client.stream("letter").create("text/plain")
        client.stream("letter").append("one")
        client.stream("page").create("application/json")
        client.stream("page", content_type="application/json").append_json("one")
        client.stream("page").close_stream()
        client.bucket("chat").create()
        client.stream("chat/room-1").create("application/json")
        client.stream("chat/room-1", content_type="application/json").append_json("one")
        yield server


@pytest.mark.parametrize("block", HERE, ids=lambda block: block.place)
def test_a_javascript_block_runs_on_a_page(block: Block, server: RunningServer, browser: chromium.Page) -> None:
    text = block.text
    browser.go(f"{server.url}/")
    browser.wait(f"location.href === '{server.url}/' && document.readyState === 'complete'")
    before = BEFORE.format(stream=f"{server.url}/v1/stream/page")
    [after] = [check for part, check in AFTER.items() if part in text]
    program = f"{before}{text.replace(URL, server.url)}\nwindow.check = () => {after};"
    if "const [offset" in text:
        program = program.replace("new EventSource", "window.made = new EventSource")
        program += "\nmade.onopen = () => seen.push('open');"
        program = program.replace('id: "-1"', 'id: "-1/' + incarnation(server) + '"')
    if "followMany" in text:
        # The call waits until all streams have ended, so it comes last; the function is that of the block before it.
        [module] = [other.text for other in blocks(block.page) if other.text.startswith("// follow-many.js")]
        program = f"{before}{module.replace('export ', '')}\nwindow.check = () => {after};"
        program += "const hide = (stream) => seen.push(`hidden ${stream}`);"
        program += f"(async () => {{ {text.replace(URL, server.url)} }})();"
    browser.evaluate(f"(() => {{ {program} }})()")
    browser.wait("window.check()")


def incarnation(server: RunningServer) -> str:
    with Client(server.url) as client:
        return str(client.stream("page").head().incarnation)


def test_every_block_that_runs_elsewhere_is_read_by_that_test() -> None:
    shown = [block for page in PAGES for block in blocks(page) if block.language == "javascript"]
    assert len(shown) == len(HERE) + len(ELSEWHERE)
    for beginning, test in ELSEWHERE.items():
        assert beginning.removeprefix("// ") in (DOCS.parent / test).read_text().replace("\\", ""), beginning
