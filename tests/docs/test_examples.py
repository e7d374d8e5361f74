"""Everything that the documents show works: each shell and Python block of a page runs, in order, on its own server.

A block that cannot run says why in a comment before it: `<!-- not run: the reason -->`. Blocks of a page share a folder
in which `data` is the server's data directory; the server at http://127.0.0.1:4437 is theirs, port 4438 is free, and
`headwater` and `python` are those of this environment. SSE connections end after a second, so that none lasts forever.
"""

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from headwater.http.table.openapi import fields
from headwater.http.wire.codes import REFUSALS
from headwater.protocol.headers import Use
from headwater.protocol.refusals import Code
from headwater.testing import running_server
from headwater.testing.ports import free_port

from ..duckdb_iceberg import install_extensions
from .pages import (
    BY_HAND,
    DOCS,
    ELSEWHERE,
    PAGES,
    ROOT,
    RUNNABLE,
    SHELL,
    SHOWN,
    Block,
    blocks,
    name_of,
    run_here,
    to_run,
)

REFERENCE = DOCS / "reference" / "http.md"
ERRORS = DOCS / "reference" / "errors.md"
URL = "http://127.0.0.1:4437"
ANOTHER_PORT = "4438"
BLOCK_SECONDS_MAX = 60


@pytest.mark.parametrize("page", run_here(), ids=name_of)
def test_every_example_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    with running_server("--sse-seconds", "1", data=tmp_path / "data") as server:
        environment = {
            **os.environ,
            "HEADWATER_URL": server.url,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        }
        if "import duckdb" in page.read_text():
            install_extensions(tmp_path)
            environment["HOME"] = str(tmp_path)
        port = str(free_port())
        for block in to_run(page):
            text = block.text.replace(URL, server.url).replace(ANOTHER_PORT, port)
            code, output = _run(_command(block, text), tmp_path, environment)
            assert code == 0, f"{block.place}\n{block.text}\n{output}"


def _run(command: list[str], folder: Path, environment: dict[str, str]) -> tuple[int, str]:
    """The exit code and the output; processes left in the background are ended too."""
    printed = folder / "printed-by-the-block.txt"
    with printed.open("wb") as file:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait(BLOCK_SECONDS_MAX)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return code, printed.read_text(errors="replace")


def _command(block: Block, text: str) -> list[str]:
    if block.language in SHELL:
        return ["bash", "-euo", "pipefail", "-c", text]
    return [sys.executable, "-W", "error", "-c", text]


@pytest.mark.parametrize("page", [page for page in run_here() if page.parent != ROOT], ids=name_of)
def test_an_example_that_is_meant_to_work_fails_aloud(page: Path) -> None:
    for block in to_run(page):
        if block.language in SHELL:
            for line in block.text.replace("\\\n", "").splitlines():
                for command in re.findall(r"\bcurl (\S+)", line):
                    # Requests that are meant to be refused check the answer instead.
                    assert command.startswith("-fsS") or "| grep" in line, f"{block.place}: {line}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_says_what_it_is_and_every_skipped_one_why(page: Path) -> None:
    for block in blocks(page):
        assert block.language in RUNNABLE | SHOWN, block.place
        assert block.skipped is None or len(block.skipped) > 10, block.place
    comments = page.read_text().count("<!-- not run:")
    skipped = [block for block in blocks(page) if block.skipped not in (None, *BY_HAND.values())]
    assert len(skipped) == comments, "A comment that skips a block must be directly before it."


@pytest.mark.parametrize("page", ELSEWHERE)
def test_a_page_that_runs_elsewhere_does(page: str) -> None:
    assert to_run(ROOT / page)
    test = (ROOT / ELSEWHERE[page]).read_text()
    assert f'"{Path(page).name}"' in test or f'"{Path(page).parent.name}"' in test
    assert "BLOCK.findall" in test


# -- The reference -----------------------------------------------------------------------------------------------------


def test_the_reference_lists_every_code_with_its_status_and_no_others() -> None:
    listed = re.findall(r"^\| `(\w+)` \| (\d{3}) \| \S.*\. \| \S.*\. \|$", ERRORS.read_text(), re.MULTILINE)
    assert listed == [(code.value, str(REFUSALS[code][0])) for code in Code]


@pytest.mark.parametrize("words", [fields.QUERY, fields.REQUEST_HEADERS, fields.RESPONSE_HEADERS])
def test_the_reference_lists_every_parameter_and_header_with_its_meaning(words: dict[str, Use]) -> None:
    text = REFERENCE.read_text()
    for name, (_, meaning) in words.items():
        assert re.search(rf"^\| `{name}` \|.* {re.escape(meaning)} \|$", text, re.MULTILINE), name
