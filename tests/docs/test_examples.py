"""What the documents show works: every bash block of a page runs, in order, against a server of its own."""

import re
import subprocess
from pathlib import Path

import pytest

from headwater.http import fields
from headwater.protocol.refusals import Code
from headwater.protocol.statuses import REFUSALS
from headwater.testing import running_server

DOCS = Path(__file__).parents[2] / "docs"
REFERENCE = DOCS / "reference" / "http.md"
PAGES = [REFERENCE, DOCS / "guides" / "extensions.md"]
URL = "http://127.0.0.1:4437"
BLOCK = re.compile(r"^```bash\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCK_SECONDS_MAX = 30


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_example_of_a_page_runs(page: Path) -> None:
    blocks = BLOCK.findall(page.read_text())
    assert blocks
    with running_server() as server:
        for block in blocks:
            command = ["bash", "-euo", "pipefail", "-c", block.replace(URL, server.url)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=BLOCK_SECONDS_MAX, check=False)
            assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_an_example_that_is_meant_to_work_fails_aloud(page: Path) -> None:
    for block in BLOCK.findall(page.read_text()):
        for line in block.replace("\\\n", "").splitlines():
            for command in re.findall(r"curl (\S+)", line):
                # What is meant to be refused is looked for in the answer instead.
                assert command.startswith("-fsS") or "| grep" in line, line


# -- The reference -----------------------------------------------------------------------------------------------------


def test_the_reference_lists_every_code_with_its_status_and_no_others() -> None:
    listed = re.findall(r"^\| `(\w+)` \| (\d{3}) \| \S", REFERENCE.read_text(), re.MULTILINE)
    assert listed == [(code.value, str(REFUSALS[code][0])) for code in Code]


@pytest.mark.parametrize("words", [fields.QUERY, fields.REQUEST_HEADERS, fields.RESPONSE_HEADERS])
def test_the_reference_lists_every_parameter_and_header_with_its_meaning(words: dict[str, fields.Field]) -> None:
    text = REFERENCE.read_text()
    for name, (_, meaning) in words.items():
        assert re.search(rf"^\| `{name}` \|.* {re.escape(meaning)} \|$", text, re.MULTILINE), name
