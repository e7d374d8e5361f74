"""The pages are consistent: links lead somewhere, promised tests exist, files on disk are as described."""

import ast
import re
from pathlib import Path

import pytest

from headwater.client import Client
from headwater.testing import running_server

from .pages import DOCS, PAGES, ROOT, name_of

LINK = re.compile(r"\]\(([^)\s]+)\)")
TEST = re.compile(r"`((?:tests|scripts|benchmarks)/[\w./-]+)(?:::(\w+))?")


def anchors(page: Path) -> set[str]:
    """The anchors of a page, as derived from its headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


EVERY_PAGE = [*sorted(ROOT.glob("*.md")), *[page for page in PAGES if page.parent != ROOT]]


@pytest.mark.parametrize("page", EVERY_PAGE, ids=name_of)
def test_a_page_has_one_title_and_no_spaces_at_the_ends_of_lines(page: Path) -> None:
    text = page.read_text()
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    assert len(re.findall(r"^# \S", prose, re.MULTILINE)) == 1
    assert not re.search(r"[ \t]$", text, re.MULTILINE)
    assert text.endswith("\n") and not text.endswith("\n\n")


def test_the_index_of_decisions_lists_each_with_its_number() -> None:
    folder = DOCS / "decisions"
    listed = re.findall(r"^\| (\d+) \| \[.+\]\((\S+)\) \|$", (folder / "README.md").read_text(), re.MULTILINE)
    assert listed == [(str(int(path.name[:4])), path.name) for path in sorted(folder.glob("[0-9]*.md"))]


def test_messages_on_the_troubleshooting_page_are_those_of_the_code() -> None:
    said = [*map(messages, sorted((ROOT / "src").rglob("*.py"))), messages(ROOT / "setup.py")]
    text = "\n".join(said)
    quoted = re.findall(r'^\| [^|]*?"([^"|]+)"', (DOCS / "troubleshooting.md").read_text(), re.MULTILINE)
    assert len(quoted) > 20
    missing = [part for quote in quoted for part in map(str.strip, quote.split("...")) if part not in text]
    assert missing == []


def messages(path: Path) -> str:
    """The text constants of a module, line by line; those that stand side by side in the source are one."""
    constants = [node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)]
    return "\n".join(value for value in constants if isinstance(value, str))


@pytest.mark.parametrize("page", EVERY_PAGE, ids=name_of)
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in LINK.findall(page.read_text()):
        if "://" not in link:
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            assert target.exists(), link
            assert not anchor or anchor in anchors(target), link


def test_the_index_leads_to_every_page() -> None:
    index = DOCS / "README.md"
    led_to = {(DOCS / link.partition("#")[0]).resolve() for link in LINK.findall(index.read_text())}
    missing = set(DOCS.glob("*.md")) | set(DOCS.glob("guides/*.md")) | set(DOCS.glob("reference/*.md"))
    # Users do not look for pages about how the project tests itself.
    missing -= led_to | {index, DOCS / "mutation.md", DOCS / "reference" / "client-conformance.md"}
    assert not missing


def test_every_promise_names_tests_that_exist() -> None:
    named = TEST.findall((DOCS / "guarantees.md").read_text())
    assert len(named) > 20
    for path, function in named:
        assert (ROOT / path).exists(), path
        assert not function or f"def {function}(" in (ROOT / path).read_text(), f"{path}::{function}"


def test_the_files_of_a_data_directory_are_those_that_are_described(tmp_path: Path) -> None:
    with running_server("--image-log-bytes", "1000", data=tmp_path) as server, Client(f"{server.url}/ds") as client:
        bucket = client.bucket("team")
        bucket.create()
        stream = bucket.stream("notes")
        stream.create("text/plain")
        while not list(tmp_path.glob("images/*.image")):
            stream.append("x" * 1000)
        stream.publish_snapshot(b"many times x", offset=stream.head().next_offset)
    page = (DOCS / "reference" / "files.md").read_text()
    described = [re.compile(pattern) for pattern in re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)]
    found = [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()]
    for name in found:
        assert name.startswith("lake/") or any(pattern.fullmatch(name) for pattern in described), name
    kinds = {name.partition("/")[0] for name in found}
    assert kinds >= {"lock", "journal", "images", "snapshots", "lake"}
