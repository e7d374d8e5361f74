"""The progress of a Spark job: the tasks of its running stages, on the command's progress line."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headwater.cli.progress import Progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POLL_SECONDS = 0.5


class Shown:
    """What the line shows: the tasks of a session, once there is one."""

    def __init__(self) -> None:
        self.spark: SparkSession | None = None


@contextmanager
def progress(label: str) -> Iterator[Shown]:
    """Show a line while the block runs, from its beginning, if standard error is a terminal."""
    shown = Shown()
    if not sys.stderr.isatty():
        yield shown
        return
    stop = threading.Event()
    with Progress(label) as line:
        thread = threading.Thread(target=show_until, args=(stop, shown, line), name="progress", daemon=True)
        thread.start()
        try:
            yield shown
        finally:
            stop.set()
            thread.join()


def show_until(stop: threading.Event, shown: Shown, line: Progress) -> None:
    """Update the line until the event is set."""
    while True:
        spark = shown.spark
        if spark is None:
            line.update(0, 0, "starting Spark")
        else:
            done, tasks = _tasks(spark)
            line.update(done, tasks, f"{done}/{tasks} tasks" if tasks else "waiting")
        if stop.wait(POLL_SECONDS):
            return


def _tasks(spark: "SparkSession") -> tuple[int, int]:
    """The completed tasks of the running stages, and all of their tasks."""
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    known = [(stage.numCompletedTasks, stage.numTasks) for stage in stages if stage is not None]
    return sum(done for done, _ in known), sum(tasks for _, tasks in known)
