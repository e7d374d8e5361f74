"""Run a job of the data pipeline: check it, start Spark, show its progress and print its report."""

import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from importlib import util
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import click

from headwater.cli.commands import JSON
from headwater.cli.connecting import CONTEXT, TOKEN_FILE, URL
from headwater.cli.contexts.choosing import choose
from headwater.cli.failures import fail
from headwater.cli.printing import Progress, columns
from headwater.cli.spark.options import pairs, with_credentials

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headwater.spark.jobs.report import Fact, Report

MISSING = "PySpark is not installed; install it with `pip install 'headwater[spark]'`."
POLL_SECONDS = 0.5

C = TypeVar("C")


class Job(NamedTuple, Generic[C]):
    """A job and its configuration: `prepare` makes the checks that need no Spark, which takes seconds to start."""

    prepare: Callable[[C], object]
    run: "Callable[[SparkSession, C], Report]"
    config: C


def job(command: Callable[..., Job[Any]]) -> Callable[..., None]:
    """Make a verb that runs the job that a function returns for the options of the command line."""

    @URL
    @CONTEXT
    @TOKEN_FILE
    @click.option("--master", help="The Spark master, such as spark://host:7077.  [default: this machine]")
    @pairs("--conf", "A Spark setting, spark.name=value; repeatable.", "spark.name=value")
    @JSON
    @wraps(command)
    def run(master: str | None, conf: dict[str, str], as_json: bool, **options: Any) -> None:
        if util.find_spec("pyspark") is None:
            fail(MISSING)
        destination = choose(options.pop("url"), options.pop("context_name"), options.pop("token_file"), {})
        options["options"] = with_credentials(options["options"], destination)
        options["url"] = destination.url
        report = _run(command, options, master, conf)
        show(report, as_json)
        if not report.ok:
            raise SystemExit(1)

    return run


def _run(
    command: Callable[..., Job[Any]], options: dict[str, Any], master: str | None, conf: dict[str, str]
) -> "Report":
    from headwater.spark.jobs.report import JobFailed  # noqa: PLC0415
    from headwater.spark.session import JavaMissing, session  # noqa: PLC0415

    name = f"headwater {command.__name__}"
    try:
        # The session ends after the progress line, which asks it for its tasks.
        with ExitStack() as sessions, progress(name) as shown:
            prepare, run, config = command(**options)
            prepare(config)
            shown.spark = session(name, master=master, conf=conf)
            sessions.callback(shown.spark.stop)
            return run(shown.spark, config)
    except (JobFailed, JavaMissing) as error:
        fail(str(error))
    except (KeyboardInterrupt, click.exceptions.Exit, click.ClickException):
        raise
    except Exception as error:
        fail(sentence(error))


def sentence(error: Exception) -> str:
    """The cause of a failure in Spark, without its Java and Python stack traces."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    ours = [line.partition(": ")[2] for line in lines if line.startswith("headwater.") and ": " in line]
    cause = ours[-1] if ours else lines[0] if lines else type(error).__name__
    return cause if cause.endswith(".") else f"{cause}."


def show(report: "Report", as_json: bool) -> None:
    """Print a report: a table for people, an object for programs."""
    if as_json:
        fields = {"job": report.job, "ok": report.ok, **report.facts, "problems": list(report.problems)}
        click.echo(json.dumps(fields, ensure_ascii=False))
        return
    rows = [(name.replace("_", " "), _text(value)) for name, value in report.facts.items()]
    columns(("", ""), rows, (False, True), head=False)
    for problem in report.problems:
        click.echo(f"Problem: {problem}", err=True)


def _text(value: "Fact") -> str:
    """A value for a person.

    >>> _text(1234567), _text(0.25), _text(True), _text(None)
    ('1,234,567', '0.25', 'yes', '-')
    """
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.2f}"
    return value


# -- Progress ----------------------------------------------------------------------------------------------------------


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
