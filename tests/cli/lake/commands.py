"""Ways to run `headwater lake`."""

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from click.testing import CliRunner

from headwater.cli import main

from ...lake.built_lakes import Content
from ..processes import Finished


class Written(NamedTuple):
    """The data directory of a server that has stopped, and the content of its streams."""

    data: Path
    contents: dict[str, Content]

    @property
    def lake(self) -> str:
        return str(self.data / "lake")


def headwater(*arguments: str, env: Mapping[str, str] | None = None) -> Finished:
    """Run a command to its end in this process, because starting another one takes most of the time."""
    result = CliRunner().invoke(main, arguments, env=env)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return subprocess.CompletedProcess(arguments, result.exit_code, result.stdout, result.stderr)


def output(*arguments: str) -> str:
    """Return the output of a command that must succeed without a word on standard error."""
    finished = headwater("lake", *arguments)
    assert (finished.returncode, finished.stderr) == (0, ""), finished
    return finished.stdout


def parsed(*arguments: str) -> Any:
    return json.loads(output(*arguments, "--json"))


def lines(*arguments: str) -> list[Any]:
    return [json.loads(line) for line in output(*arguments, "--json").splitlines()]


def on_a_terminal(*arguments: str) -> str:
    """Return what a terminal shows."""
    primary, secondary = pty.openpty()
    command = [sys.executable, "-m", "headwater", "lake", *arguments]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=secondary, stderr=secondary) as process:
        os.close(secondary)
        shown = b"".join(_read_all(primary))
        assert process.wait(30) == 0, shown
    os.close(primary)
    return shown.decode()


def _read_all(terminal: int) -> Iterator[bytes]:
    try:
        while data := os.read(terminal, 65536):
            yield data
    except OSError:
        # A terminal that no process writes to any more fails instead of ending.
        return
