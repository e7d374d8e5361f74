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


@contextmanager
def progress(spark: "SparkSession", label: str) -> Iterator[None]:
    """Show a bar while the block runs, if standard error is a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    stop = threading.Event()
    with Progress(label) as line:
        thread = threading.Thread(target=show_until, args=(stop, spark, line), name="progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()


def show_until(stop: threading.Event, spark: "SparkSession", line: Progress) -> None:
    """Update the line until the event is set."""
    while not stop.wait(POLL_SECONDS):
        done, tasks = _tasks(spark)
        line.update(done, tasks, f"{done}/{tasks} tasks" if tasks else "waiting")


def _tasks(spark: "SparkSession") -> tuple[int, int]:
    """The completed tasks of the running stages, and all of their tasks."""
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    known = [(stage.numCompletedTasks, stage.numTasks) for stage in stages if stage is not None]
    return sum(done for done, _ in known), sum(tasks for _, tasks in known)
