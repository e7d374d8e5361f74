"""The browser example in a browser: messages before and after a reload, each once and in order."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from headwater.client import Client, Stream
from headwater.testing import running_server

from . import chromium
from .chromium import Page

FOLDER = Path(__file__).parents[2] / "examples" / "browser"
TEXTS = "[...document.querySelectorAll('#messages li span')].map(item => item.textContent)"
IS_LIVE = "document.getElementById('state')?.textContent === 'live'"

program = chromium.find()
pytestmark = pytest.mark.skipif(program is None, reason="Chromium is not on the PATH: apt-get install chromium.")


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder as `python -m http.server` does."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.fixture
def stream() -> Iterator[Stream]:
    # SSE connections end each second, so that the browser reconnects often.
    with running_server("--sse-seconds", "1") as server, Client(f"{server.url}/v1/stream") as client:
        yield client.stream("browser-demo")


@pytest.fixture
def page(stream: Stream) -> Iterator[Page]:
    assert program is not None
    with served(FOLDER) as site, chromium.page(program) as page:
        page.go(f"{site}?stream={stream.url}")
        page.wait(IS_LIVE)
        yield page


def append(stream: Stream, *texts: str) -> None:
    for text in texts:
        stream.append_json({"text": text, "at": 1_800_000_000_000})


def wait_for(page: Page, *texts: str) -> None:
    """Wait until this many messages are shown, and compare all of them."""
    page.wait(f"{TEXTS}.length >= {len(texts)}")
    assert page.evaluate(TEXTS) == list(texts)


def test_each_message_is_shown_once_and_in_order_over_a_reload(stream: Stream, page: Page, tmp_path: Path) -> None:
    append(stream, "The first message", "Another one", "A third, before the reload")
    wait_for(page, "The first message", "Another one", "A third, before the reload")
    page.evaluate("document.getElementById('text').value = 'Written on the page'")
    page.evaluate("document.getElementById('form').requestSubmit()")
    shown = ["The first message", "Another one", "A third, before the reload", "Written on the page"]
    wait_for(page, *shown)

    page.reload()
    assert page.evaluate(TEXTS) == shown
    append(stream, "After the reload", "<b>Not</b> markup")
    shown += ["After the reload", "<b>Not</b> markup"]
    wait_for(page, *shown)

    # While the page is closed, and between two connections.
    address = page.evaluate("location.href")
    page.go("about:blank")
    append(stream, "While the page was away")
    page.go(address)
    page.wait(IS_LIVE)
    wait_for(page, *shown, "While the page was away")
    page.wait("document.getElementById('state').textContent === 'reconnecting'")
    append(stream, "Between two connections")
    wait_for(page, *shown, "While the page was away", "Between two connections")
    page.wait(IS_LIVE)

    assert stream.head().next_offset == page.evaluate("document.getElementById('offset').textContent")
    assert "&lt;b&gt;Not&lt;/b&gt; markup" in page.dom()
    folder = Path(os.environ.get("TESTS_SCREENSHOTS", tmp_path))
    for name, dark, width in (("light", False, 900), ("dark", True, 900), ("narrow", False, 390)):
        picture = page.screenshot(dark=dark, width=width)
        assert picture.startswith(b"\x89PNG")
        (folder / f"browser-{name}.png").write_bytes(picture)


def test_a_re_created_stream_is_not_mixed_with_the_old_one(stream: Stream, page: Page) -> None:
    append(stream, "of the old stream", "and more of it")
    wait_for(page, "of the old stream", "and more of it")
    stream.delete()
    stream.create("application/json")
    append(stream, "of the new stream")
    page.wait(f"JSON.stringify({TEXTS}) === '[\"of the new stream\"]'")


def test_the_end_of_the_stream_is_the_end_of_the_page(stream: Stream, page: Page) -> None:
    append(stream, "the last")
    stream.close_stream()
    page.wait("document.getElementById('state').textContent === 'closed'")
    page.reload()
    page.wait("document.getElementById('state').textContent === 'closed'")
    wait_for(page, "the last")


# -- Other streams, and errors -----------------------------------------------------------------------------------------

PROBLEM = "document.getElementById('problem')?.textContent"


def send(page: Page, text: str) -> None:
    page.evaluate(f"document.getElementById('text').value = {text!r}")
    page.evaluate("document.getElementById('form').requestSubmit()")


@contextmanager
def opened(stream: Stream) -> Iterator[Page]:
    assert program is not None
    with served(FOLDER) as site, chromium.page(program) as page:
        page.go(f"{site}?stream={stream.url}")
        yield page


def test_a_text_stream_is_shown_by_the_line_and_can_be_written_to(stream: Stream) -> None:
    stream.create("text/plain")
    stream.append("one\ntwo\n")
    with opened(stream) as page:
        wait_for(page, "one", "two")
        send(page, "three")
        wait_for(page, "one", "two", "three")
        page.reload()
        wait_for(page, "one", "two", "three")
    assert stream.read_text() == "one\ntwo\nthree\n"


def test_a_stream_of_another_type_is_not_shown_and_the_page_says_why(stream: Stream) -> None:
    stream.create("application/octet-stream")
    with opened(stream) as page:
        page.wait(f"{PROBLEM} === 'This page shows streams of JSON and text; this one holds application/octet-stream.'")
        assert page.evaluate("document.getElementById('text').disabled")


def test_a_message_that_is_not_accepted_is_reported_and_kept(stream: Stream, page: Page) -> None:
    page.evaluate("source.close()")
    stream.close_stream()
    send(page, "too late")
    page.wait(f"{PROBLEM}?.startsWith('Not sent. ')")
    assert page.evaluate("document.getElementById('text').value") == "too late"
    assert "closed" in page.evaluate(PROBLEM)


def test_a_server_that_is_gone_is_reported(page: Page) -> None:
    page.evaluate("window.fetch = () => Promise.reject(new TypeError('Failed to fetch'))")
    send(page, "unheard")
    page.wait(f"{PROBLEM} === 'Not sent. The server does not answer.'")
