"""The progress line of a Spark job."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from headwater.cli.printing import Progress
from headwater.cli.spark.running import Shown, progress, show_until


class Session:
    """A Spark session as the progress line sees it: two stages, one of which has just ended."""

    def __init__(self) -> None:
        stages = {1: SimpleNamespace(numCompletedTasks=2, numTasks=8), 2: None}
        tracker = SimpleNamespace(getActiveStageIds=lambda: list(stages), getStageInfo=stages.get)
        self.sparkContext: Any = SimpleNamespace(statusTracker=lambda: tracker)


class Stop(threading.Event):
    """Is set at the first wait."""

    def wait(self, timeout: float | None = None) -> bool:
        return True


def test_the_line_shows_the_tasks_of_the_running_stages(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with Progress("job") as line:
        shown = Shown()
        show_until(Stop(), shown, line)
        assert "job [........................] starting Spark" in capsys.readouterr().err
    with Progress("job") as line:
        shown.spark = Session()  # type: ignore[assignment]
        show_until(Stop(), shown, line)
        assert "job [######..................]  25% 2/8 tasks" in capsys.readouterr().err


def test_nothing_is_shown_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("job") as shown:
        assert shown.spark is None
    assert capsys.readouterr().err == ""
