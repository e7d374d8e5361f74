"""The guide to FastAPI: the application really serves, and its page shows every token once, whatever breaks."""

import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from headwater.client import Client
from headwater.testing import RunningServer, running_server
from headwater.testing.ports import free_port

from .node_project import GUIDES, HERE, MODULES, NODE, RUN_SECONDS_MAX, wait_until

PAGE = (GUIDES / "fastapi.md").read_text()
BLOCK = re.compile(r"^```(python|html)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
[(_, APP), (_, HTML)] = BLOCK.findall(PAGE)
URL = "http://127.0.0.1:4437"
QUESTION = "What is a stream?"
ANSWER = f"You asked: {QUESTION} A stream only grows, so you can leave and come back."


@pytest.fixture
def port() -> int:
    """Headwater's, which stays the same over a restart."""
    return free_port()


@pytest.fixture
def server(port: int, tmp_path: Path) -> Iterator[RunningServer]:
    with running_server("--port", str(port), data=tmp_path / "data") as server:
        yield server


@contextmanager
def application(folder: Path, port: int, source: str = APP) -> Iterator[str]:
    """What `uvicorn app:app` does, in a folder with the two files of the page."""
    (folder / "app.py").write_text(source.replace(URL, f"http://127.0.0.1:{port}"))
    (folder / "index.html").write_text(HTML)
    printed = folder / "uvicorn.txt"
    command = [sys.executable, "-m", "uvicorn", "app:app", "--port", "0"]
    with (
        printed.open("w") as output,
        subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output) as process,
    ):
        try:
            address = re.compile(r"running on (http://127\.0\.0\.1:\d+)")
            wait_until(lambda: process.poll() is not None or address.search(printed.read_text()), "uvicorn serves")
            found = address.search(printed.read_text())
            assert found, printed.read_text()
            yield found[1]
            process.terminate()
            process.wait(RUN_SECONDS_MAX)
            assert "Application shutdown complete." in printed.read_text(), printed.read_text()
        finally:
            process.kill()


def ask(address: str) -> str:
    """Ask without a browser; return the stream's URL."""
    request = urllib.request.Request(
        f"{address}/answers", json.dumps({"text": QUESTION}).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=10) as response:
        assert response.status == 202
        url: str = json.load(response)["stream"]
        return url


def text_of(url: str) -> str:
    """The answer, when it is complete."""
    with Client(url) as client, client.stream(url).follow(timeout_seconds=RUN_SECONDS_MAX) as follower:
        text = "".join(message.get("token", f"[{message.get('error')}]") for message in follower.messages())
        assert follower.closed
        return text


def open_page(folder: Path, address: str, awaited: str, *, click: bool = False) -> tuple[str, str]:
    """Open the page in a new tab until it shows `awaited`; return the answer that it showed at first and at last."""
    if not (folder / "node_modules").exists():
        (folder / "node_modules").symlink_to(MODULES)
    done = subprocess.run(
        [
            NODE,
            "--experimental-eventsource",
            "--experimental-webstorage",
            f"--localstorage-file={folder / 'localstorage'}",
            HERE / "open_html.mjs",
            address,
            awaited,
            *(["click"] if click else []),
        ],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = re.fullmatch(r"at first: (.*)\nat last: (.*)\n", done.stdout)
    assert found, done.stdout
    return found[1].strip(), found[2].strip()


def test_the_page_shows_every_token_once_over_a_reload(server: RunningServer, port: int, tmp_path: Path) -> None:
    with application(tmp_path, port) as address:
        first, last = open_page(tmp_path, address, "grows", click=True)
        assert first == "" and last in ANSWER and last != ANSWER
        again, complete = open_page(tmp_path, address, "come back.")
        assert again != "" and last.startswith(again)
        assert complete == ANSWER
        # The third time everything is there at once, from the page's own store.
        assert open_page(tmp_path, address, "come back.") == (ANSWER, ANSWER)


def test_a_killed_server_loses_and_doubles_no_token(server: RunningServer, port: int, tmp_path: Path) -> None:
    with application(tmp_path, port) as address, ExitStack() as stack:
        url = ask(address)
        with Client(url) as client, client.stream(url).follow() as follower:
            next(follower.messages())
        server.kill()
        stack.enter_context(running_server("--port", str(port), data=tmp_path / "data"))
        assert text_of(url).strip() == ANSWER


def test_a_model_that_fails_is_an_error_and_an_end_to_its_readers(
    server: RunningServer, port: int, tmp_path: Path
) -> None:
    failing = APP.replace("        yield f", "        assert 'grows' not in word\n        yield f")
    assert failing != APP
    with application(tmp_path, port, failing) as address:
        assert text_of(ask(address)) == f"{ANSWER.partition('grows')[0]}[The model failed.]"
        # The application survives it.
        assert text_of(ask(address)).endswith("[The model failed.]")


def test_a_shutdown_waits_for_the_answer(server: RunningServer, port: int, tmp_path: Path) -> None:
    with application(tmp_path, port) as address:
        url = ask(address)
    assert text_of(url).strip() == ANSWER
