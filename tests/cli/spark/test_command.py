"""The verbs of `headwater spark` without Spark: their help, options, reports and failures."""

import json
import shlex
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from headwater.cli import main
from headwater.cli.contexts.choosing import Destination
from headwater.cli.spark.command import spark
from headwater.cli.spark.options import pairs, with_credentials
from headwater.cli.spark.running import sentence, show
from headwater.spark import session
from headwater.spark.jobs.report import Report

from ..commands import commands_in


def verb(name: str) -> click.Command:
    found = spark.get_command(click.Context(spark), name)
    assert found is not None
    return found


@pytest.mark.parametrize("name", spark.commands)
def test_the_options_of_every_example_exist(name: str) -> None:
    lines = commands_in(verb(name))
    assert lines
    for line in lines:
        assert line.startswith(f"headwater spark {name}")
        verb(name).make_context(name, shlex.split(line)[3:])


@pytest.mark.parametrize("name", spark.commands)
def test_every_option_has_a_help_text(name: str) -> None:
    options = [one for one in verb(name).params if isinstance(one, click.Option)]
    assert [one.name for one in options if not one.help] == []


def test_an_unknown_verb_is_refused() -> None:
    assert CliRunner().invoke(main, ["spark", "explode"]).exit_code == 2


def test_without_pyspark_a_job_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    result = CliRunner().invoke(main, ["spark", "compact"])
    assert result.exit_code == 1
    assert result.stderr == ("Error: PySpark is not installed; install it with `pip install 'headwater[spark]'`.\n")


NOWHERE = ("--url", "http://127.0.0.1:1", "--option", "retries=0")
JOBS = {
    "export": ("--bucket", "team", "--to", "tables"),
    "compact": (),
    "snapshot": ("--bucket", "team", "--reducer", "merge-patch"),
    "load": ("rows.csv", "--name", "rows", "--format", "csv", "--key", "id", "--bucket", "team"),
    "replay": ("--bucket", "team", "--name", "copy", "--checkpoint", "offsets", "--into", "test"),
    "verify": ("--bucket", "team"),
    "report": ("--bucket", "team", "--to", "usage"),
}


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def start(*_: object, **__: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(session, "session", start)
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("no_spark")
@pytest.mark.parametrize("name", JOBS)
def test_a_job_finds_out_that_the_server_is_unreachable_before_spark_starts(name: str, tmp_path: Path) -> None:
    assert {*JOBS, "init"} == set(spark.commands)
    result = CliRunner().invoke(main, ["spark", name, *JOBS[name], *NOWHERE])
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1 and "http://127.0.0.1:1" in result.stderr, result.stderr
    assert list(tmp_path.iterdir()) == [], "nothing is written"


@pytest.mark.usefixtures("no_spark")
@pytest.mark.parametrize(
    ("name", "more", "sentence"),
    [
        ("compact", ("--option", "via=lake"), "There is no option 'via'"),
        ("snapshot", ("--option", "columns=stream"), "A snapshot covers a whole stream; remove the option columns."),
        ("snapshot", ("--reducer", "nothing"), "nothing"),
        ("load", ("--stream", "name"), "Use either --stream or --key"),
        ("replay", ("--into", "a/b"), "'a/b' is not a valid bucket name"),
        ("replay", ("--sink", "nope=1"), "There is no option 'nope'"),
        ("verify", ("--option", "endingTimestamp=5"), "Verification covers whole streams"),
        ("verify", ("--export", "none"), "There is no export at"),
        ("report", ("--to", "s3://bucket/usage"), "is not a local folder"),
        ("report", ("--option", "value=json"), "must be one of string, variant"),
    ],
)
def test_a_job_refuses_wrong_options_before_spark_starts(name: str, more: tuple[str, ...], sentence: str) -> None:
    result = CliRunner().invoke(main, ["spark", name, *JOBS[name], *NOWHERE, *more])
    assert (result.exit_code, sentence in result.stderr) == (1, True), result.stderr


def test_a_job_gets_the_credentials_of_the_command_line_unless_it_has_others() -> None:
    found = Destination("https://h", {"X-Team": "a"}, token="t", tls_ca="/ca")
    assert with_credentials({"via": "live"}, found) == {
        "token": "t",
        "header.X-Team": "a",
        "tls.ca": "/ca",
        "via": "live",
    }
    for own in ("token", "tokenFile", "header.Authorization"):
        assert with_credentials({own: "mine", "TLS.CA": "/own"}, found) == {own: "mine", "TLS.CA": "/own"}
    by_file = Destination("https://h", token_file=Path("/run/token"))
    assert with_credentials({}, by_file) == {"tokenFile": "/run/token"}


def test_pairs_become_a_dictionary() -> None:
    @click.command()
    @pairs("--option", "Of a test.", name="options")
    def command(options: dict[str, str]) -> None:
        click.echo(json.dumps(options))

    result = CliRunner().invoke(command, ["--option", "a=1", "--option", "b=x=y", "--option", "c="])
    assert json.loads(result.stdout) == {"a": "1", "b": "x=y", "c": ""}
    for wrong in ("a", "=1"):
        assert (
            f"'{wrong}' does not have the form name=value." in CliRunner().invoke(command, ["--option", wrong]).stderr
        )


def test_a_report_is_printed_for_people_and_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    report = Report("export", {"rows": 12345, "seconds": 0.5, "table": "events"}, ("b/x is broken.",))
    show(report, as_json=False)
    printed = capsys.readouterr()
    assert printed.out == "rows     12,345\nseconds    0.50\ntable    events\n"
    assert printed.err == "Problem: b/x is broken.\n"
    show(report, as_json=True)
    fields = {"job": "export", "ok": False, "rows": 12345, "seconds": 0.5, "table": "events"}
    assert json.loads(capsys.readouterr().out) == {**fields, "problems": ["b/x is broken."]}


@pytest.mark.parametrize(
    ("message", "cause"),
    [
        ("", "RuntimeError."),
        ("\n  Something happened\n  at line 1", "Something happened."),
        (
            "Job aborted.\nTraceback (most recent call last):\n"
            "headwater.spark.link.LinkFailed: No server answers at http://h:1.\n\tat org.apache.spark",
            "No server answers at http://h:1.",
        ),
    ],
)
def test_a_failure_in_spark_becomes_one_sentence(message: str, cause: str) -> None:
    assert sentence(RuntimeError(message)) == cause
