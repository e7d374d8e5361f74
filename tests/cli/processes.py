"""The command in its own process, run to its end, and what it says when it fails."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping

TIMEOUT_SECONDS = 30.0

Finished = subprocess.CompletedProcess[str]


def headwater(*arguments: str, env: Mapping[str, str] | None = None) -> Finished:
    """Run a command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "headwater", *arguments],
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )


def error(finished: Finished) -> str:
    """Return the one error that a command printed, and nothing to standard output."""
    assert "Traceback" not in finished.stderr, finished.stderr
    assert finished.stdout == ""
    if finished.stderr.startswith("{"):
        found = json.loads(finished.stderr)["detail"]
        assert isinstance(found, str)
        return found
    errors = [line for line in finished.stderr.splitlines() if line.startswith("Error: ")]
    assert len(errors) == 1, finished.stderr
    return errors[0].removeprefix("Error: ")


def usage_error(finished: Finished) -> str:
    """Return the error of a command that was used wrongly; click words some of them, so they may be no sentence."""
    assert finished.returncode == 2
    return error(finished)


def sentence(finished: Finished) -> str:
    """Return the one sentence that says why a command failed."""
    text = error(finished)
    assert text.endswith("."), text
    assert not re.search(r"[.!?]\s+[A-Z]", text), f"more than one sentence: {text}"
    return text
