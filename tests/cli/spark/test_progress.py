"""The progress line of a Spark job."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from headwater.cli.spark.progress import progress, show_until


class Session:
    """A Spark session as the progress line sees it: two stages, one of which has just ended."""

    def __init__(self) -> None:
        stages = {1: SimpleNamespace(numCompletedTasks=2, numTasks=8), 2: None}
        tracker = SimpleNamespace(getActiveStageIds=lambda: list(stages), getStageInfo=stages.get)
        self.sparkContext: Any = SimpleNamespace(statusTracker=lambda: tracker)


class Stop(threading.Event):
    """Is set at the second wait."""

    def wait(self, timeout: float | None = None) -> bool:
        if self.is_set():
            return True
        self.set()
        return False


def test_the_line_shows_tasks_and_is_erased_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    show_until(Stop(), Session(), "job")  # type: ignore[arg-type]
    line = "job  [######..................] 2/8 tasks"
    assert capsys.readouterr().err == f"\r{line}\r{' ' * len(line)}\r"


def test_nothing_is_shown_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with progress(Session(), "job"):  # type: ignore[arg-type]
        pass
    assert capsys.readouterr().err == ""
