"""The progress of a Spark job: one line of the terminal that is erased when the job ends."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POLL_SECONDS = 0.5
BAR_CHARACTERS = 24


@contextmanager
def progress(spark: "SparkSession", label: str) -> Iterator[None]:
    """Show a bar while the block runs, if standard error is a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    stop = threading.Event()
    thread = threading.Thread(target=show_until, args=(stop, spark, label), name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def show_until(stop: threading.Event, spark: "SparkSession", label: str) -> None:
    """Update the line until the event is set, then erase it."""
    width = 0
    while not stop.wait(POLL_SECONDS):
        line = f"{label}  {bar(*_tasks(spark))}"
        click.echo("\r" + line.ljust(width), nl=False, err=True)
        width = len(line)
    click.echo("\r" + " " * width + "\r", nl=False, err=True)


def _tasks(spark: "SparkSession") -> tuple[int, int]:
    """The completed tasks of the running stages, and all of their tasks."""
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    known = [(stage.numCompletedTasks, stage.numTasks) for stage in stages if stage is not None]
    return sum(done for done, _ in known), sum(tasks for _, tasks in known)


def bar(done: int, tasks: int) -> str:
    """A progress bar.

    >>> bar(3, 12), bar(0, 0)
    ('[######..................] 3/12 tasks', '[........................] waiting')
    """
    full = BAR_CHARACTERS * done // tasks if tasks else 0
    drawn = "#" * full + "." * (BAR_CHARACTERS - full)
    return f"[{drawn}] {done}/{tasks} tasks" if tasks else f"[{drawn}] waiting"
