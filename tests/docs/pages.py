"""The pages of the documentation and the blocks in them: which run, where, and why others do not."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "examples" / "README.md", *sorted(DOCS.rglob("*.md"))]

SHELL = frozenset({"bash", "sh", "shell", "console"})
RUNNABLE = SHELL | {"python", "tsx", "typescript"}
SHOWN = frozenset({"", "dockerfile", "html", "ini", "javascript", "json", "promql", "sql", "text", "toml", "yaml"})
"""Languages of blocks that are only shown."""

ELSEWHERE = {
    "docs/operate-cluster.md": "tests/deploy/test_operate_cluster.py",
    "docs/reference/lake.md": "tests/cli/lake/test_lake.py",
    "docs/guides/ai-sdk.md": "tests/guides/test_ai_sdk.py",
    "docs/guides/client.md": "tests/client/test_guide.py",
    "docs/guides/fastapi.md": "tests/guides/test_fastapi.py",
    "docs/guides/internet.md": "tests/guides/test_internet.py",
    "docs/guides/typescript.md": "tests/guides/test_typescript.py",
    "docs/guides/yjs.md": "tests/guides/test_yjs.py",
    **{
        str(page.relative_to(ROOT)): "tests/spark/test_guides.py"
        for page in sorted((DOCS / "guides/spark").glob("*.md"))
    },
}
"""Pages whose blocks need more than a server, and the tests that run them."""

BY_HAND = {
    "scripts/serve ": "It installs, and serves until it is stopped; scripts/test runs everything that it needs.",
    "scripts/cluster": "It installs, and serves until it is stopped; tests/deploy/test_local_cluster.py runs it.",
}
"""Blocks that begin like this are not run, and why; for pages without comments in their source."""

_BLOCK = re.compile(
    r"^(?:<!-- not run: (?P<reason>[^\n]+) -->\n\n?)?```(?P<language>[^\n]*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


class Block(NamedTuple):
    """A fenced block; `skipped` says why it does not run."""

    page: Path
    line: int
    language: str
    text: str
    skipped: str | None

    @property
    def place(self) -> str:
        return f"{name_of(self.page)}:{self.line}"


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text()
    for found in _BLOCK.finditer(text):
        reason = found["reason"]
        for beginning, why in BY_HAND.items():
            if found["text"].startswith(beginning):
                reason = why
        line = text.count("\n", 0, found.start("text"))
        yield Block(page, line, found["language"], found["text"], reason)


def to_run(page: Path) -> list[Block]:
    return [block for block in blocks(page) if block.language in RUNNABLE and block.skipped is None]


def run_here() -> list[Path]:
    return [page for page in PAGES if name_of(page) not in ELSEWHERE and to_run(page)]
