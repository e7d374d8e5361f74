"""`headwater spark`: the jobs of the data pipeline, each a verb."""

import json
from collections.abc import Callable, Mapping
from functools import wraps
from importlib import import_module, util
from typing import TYPE_CHECKING, Any

import click

from headwater.cli.connecting import DEFAULT_URL
from headwater.cli.failures import fail
from headwater.cli.printing import columns
from headwater.cli.spark.progress import progress

if TYPE_CHECKING:
    from headwater.spark.jobs.report import Fact, Report

VERBS = ("export", "compact", "snapshot", "load", "replay", "verify", "report", "init")
MISSING = "PySpark is not installed here; add it with `pip install 'headwater[spark]'`."


class Jobs(click.Group):
    """A group whose verbs are imported one by one."""

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
    """Streams as tables: jobs on Spark, on this machine or on a cluster."""


def _split_conf(context: click.Context, parameter: click.Parameter, pairs: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{pair!r} is no setting of Spark; it should read spark.name=value.")
        found[name] = value
    return found


URL = click.option(
    "--url", default=DEFAULT_URL, envvar="HEADWATER_URL", show_default=True, show_envvar=True, help="The server."
)


def job(command: Callable[..., "Report"]) -> Callable[..., None]:
    """A verb that runs a job in a Spark session, shows how far it has come, and prints what it reports."""

    @click.option("--master", help="Where Spark runs: spark://host:7077, or this machine if left out.")
    @click.option("--conf", multiple=True, callback=_split_conf, help="A setting of Spark, name=value; repeatable.")
    @click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
    @wraps(command)
    def run(master: str | None, conf: dict[str, str], as_json: bool, **options: Any) -> None:
        if util.find_spec("pyspark") is None:
            fail(MISSING)
        report = _run(command, master, conf, options)
        tell(report, as_json)
        if not report.ok:
            raise SystemExit(1)

    return run


def _run(
    command: Callable[..., "Report"], master: str | None, conf: Mapping[str, str], options: Mapping[str, Any]
) -> "Report":
    from headwater.spark.jobs.report import JobFailed  # noqa: PLC0415
    from headwater.spark.session import JavaMissing, session  # noqa: PLC0415

    name = f"headwater {command.__name__}"
    try:
        found = session(name, master=master, conf=conf)
        try:
            with progress(found, name):
                return command(found, **options)
        finally:
            found.stop()
    except (JobFailed, JavaMissing) as error:
        fail(str(error))
    except (KeyboardInterrupt, click.exceptions.Exit, click.ClickException):
        raise
    except Exception as error:
        fail(sentence(error))


def sentence(error: Exception) -> str:
    """What went wrong in a session of Spark, without the traces of two languages around it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    ours = [line.partition(": ")[2] for line in lines if line.startswith("headwater.") and ": " in line]
    said = ours[-1] if ours else lines[0] if lines else type(error).__name__
    return said if said.endswith(".") else f"{said}."


def tell(report: "Report", as_json: bool) -> None:
    """Print a report: a table for people, an object for programs."""
    if as_json:
        told = {"job": report.job, "ok": report.ok, **report.facts, "problems": list(report.problems)}
        click.echo(json.dumps(told, ensure_ascii=False))
        return
    rows = [(name.replace("_", " "), _shown(value)) for name, value in report.facts.items()]
    columns(("", ""), rows, (False, True), head=False)
    for problem in report.problems:
        click.echo(f"Problem: {problem}", err=True)


def _shown(value: "Fact") -> str:
    """A value for a person.

    >>> _shown(1234567), _shown(0.25), _shown(True), _shown(None)
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
