"""`headwater spark`: the jobs of the data pipeline, one verb each."""

import json
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial, wraps
from importlib import import_module, util
from typing import TYPE_CHECKING, Any

import click

from headwater.cli.connecting import CONTEXT, TOKEN_FILE, URL
from headwater.cli.contexts.choosing import choose
from headwater.cli.failures import fail
from headwater.cli.printing import columns
from headwater.cli.spark.options import pairs, with_credentials
from headwater.cli.spark.progress import progress

if TYPE_CHECKING:
    from headwater.spark.jobs.report import Fact, Report

VERBS = ("export", "compact", "snapshot", "load", "replay", "verify", "report", "init")
MISSING = "PySpark is not installed; install it with `pip install 'headwater[spark]'`."


class Jobs(click.Group):
    """A group that imports the module of a verb when the verb is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        found = getattr(import_module(f"headwater.cli.spark.{cmd_name}"), cmd_name)
        assert isinstance(found, click.Command)
        return found


@click.group(cls=Jobs)
def spark() -> None:
    """Treat streams as tables with Spark, here or on a cluster."""


Command = Callable[..., "Report"]


def checked_job(check: Callable[..., None]) -> Callable[[Command], Callable[..., None]]:
    """Make a verb that runs a job in a Spark session, shows its progress and prints its report.

    Spark takes seconds to start, so the check, which gets the options of the command, is made before that.
    """
    return partial(_job, check)


def _job(check: Callable[..., None], command: Command) -> Callable[..., None]:

    @URL
    @CONTEXT
    @TOKEN_FILE
    @click.option("--master", help="The Spark master, such as spark://host:7077.  [default: this machine]")
    @pairs("--conf", "A Spark setting, spark.name=value; repeatable.", "spark.name=value")
    @click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
    @wraps(command)
    def run(master: str | None, conf: dict[str, str], as_json: bool, **options: Any) -> None:
        if util.find_spec("pyspark") is None:
            fail(MISSING)
        destination = choose(options.pop("url"), options.pop("context_name"), options.pop("token_file"), {})
        options["options"] = with_credentials(options["options"], destination)
        options["url"] = destination.url
        report = _run(command, partial(check, **options), master, conf, options)
        show(report, as_json)
        if not report.ok:
            raise SystemExit(1)

    return run


def _run(
    command: Command,
    check: Callable[[], None],
    master: str | None,
    conf: Mapping[str, str],
    options: Mapping[str, Any],
) -> "Report":
    from headwater.spark.jobs.report import JobFailed  # noqa: PLC0415
    from headwater.spark.session import JavaMissing, session  # noqa: PLC0415

    name = f"headwater {command.__name__}"
    try:
        # The session ends after the progress line, which asks it for its tasks.
        with ExitStack() as sessions, progress(name) as shown:
            check()
            shown.spark = session(name, master=master, conf=conf)
            sessions.callback(shown.spark.stop)
            return command(shown.spark, **options)
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
