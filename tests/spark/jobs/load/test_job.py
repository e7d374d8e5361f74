"""Files become streams, each file once, no matter how often the job runs."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from headwater.cli import main
from headwater.client import Client
from headwater.spark.jobs.load import File, Ledger, LoadConfig, Round, run
from headwater.spark.jobs.report import JobFailed
from headwater.spark.link import Link, LinkSettings
from headwater.testing import RunningServer, running_server

ONE, TWO = File("/one.csv", 1, 1), File("/two.csv", 2, 2)


# -- The ledger ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def link() -> Iterator[Link]:
    with running_server() as server, Link(LinkSettings(server.url)) as found:
        yield found


def state(ledger: Ledger) -> tuple[int, Round | None, set[File]]:
    ledger.read()
    return ledger.epoch, ledger.unfinished, ledger.loaded


def test_a_ledger_remembers_rounds_and_their_files(link: Link) -> None:
    ledger = Ledger(link, "remembers")
    assert state(ledger) == (-1, None, set())
    ledger.begin((ONE,), {"format": "csv"})
    assert state(ledger) == (0, Round(0, (ONE,), {"format": "csv"}), set())
    ledger.end(0)
    assert state(ledger) == (0, None, {ONE})


def test_two_runs_at_once_agree_on_one_round(link: Link) -> None:
    one, other = Ledger(link, "agree"), Ledger(link, "agree")
    one.begin((ONE,), {"run": 1})
    other.begin((TWO,), {"run": 2})
    assert state(one) == state(other) == (0, Round(0, (ONE,), {"run": 1}), set())
    one.end(0)
    other.end(0)
    assert state(one) == (0, None, {ONE})
    one.begin((TWO,), {"run": 1})
    # The other run is late, so its entries about the previous round are ignored.
    other.end(0)
    other.begin((TWO,), {"run": 2})
    assert state(other) == (1, Round(1, (TWO,), {"run": 1}), {ONE})


# -- Loads -----------------------------------------------------------------------------------------------------------


class Killed(Exception):
    """Simulates a kill of the driver."""


def values(server: RunningServer, name: str) -> list[Any]:
    with Client(f"{server.url}/v1/stream") as client:
        return client.stream(name).read_json()


def numbers(folder: Path, file: str, *given: int) -> None:
    folder.mkdir(exist_ok=True)
    lines = "".join(f"{number % 2},{number}\n" for number in given)
    (folder / file).write_text(f"user,n\n{lines}")


def test_files_are_loaded_once_and_new_ones_by_the_next_run(
    spark: SparkSession, lake_server: RunningServer, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = tmp_path / "files"
    config = LoadConfig(
        lake_server.url, [str(files)], "csv", bucket, key="user", prefix="of-", bucket=bucket, value="n"
    )
    numbers(files, "b.csv", 4, 5, 6)
    numbers(files, "a[1].csv", 9, 8, 7)

    def dying(self: Ledger, epoch: int) -> None:
        raise Killed

    end = Ledger.end
    monkeypatch.setattr(Ledger, "end", dying)
    with pytest.raises(Killed):
        run(spark, config)
    monkeypatch.setattr(Ledger, "end", end)
    numbers(files, "c.csv", 1, 2)
    with pytest.raises(
        JobFailed, match=r"^An earlier run with other options has not finished loading 2 files under the name 'bucket-"
    ):
        run(spark, LoadConfig(lake_server.url, [str(files)], "csv", bucket, key="user", bucket=bucket))
    found = run(spark, config)
    assert [found.facts[name] for name in ("rounds", "files", "files_known", "messages", "bytes")] == [2, 3, 0, 8, 8]
    assert found.facts["messages_repeated"] == 6
    assert values(lake_server, f"{bucket}/of-0") == [8, 4, 6, 2]
    assert values(lake_server, f"{bucket}/of-1") == [9, 7, 5, 1]
    again = run(spark, config)
    assert [again.facts[name] for name in ("rounds", "files", "files_known")] == [0, 0, 3]


def test_a_load_without_its_ledger_is_refused(
    spark: SparkSession, lake_server: RunningServer, bucket: str, tmp_path: Path
) -> None:
    files = tmp_path / "files"
    config = LoadConfig(lake_server.url, [str(files)], "csv", bucket, key="user", bucket=bucket, value="n")
    numbers(files, "a.csv", 1, 3)
    run(spark, config)
    with Client(f"{lake_server.url}/v1/stream") as client:
        client.stream(f"_load/{bucket}").delete()
    # Its first round would have other rows than the first round before.
    numbers(files, "b.csv", 5, 7)
    with pytest.raises(
        JobFailed, match=f"^Rows were written under the name '{bucket}' before, but there is no ledger "
    ):
        run(spark, config)
    assert values(lake_server, f"{bucket}/1") == [1, 3]
    only = replace(config, paths=[str(files / "b.csv")], name=f"{bucket}-2")
    assert run(spark, only).facts["messages"] == 2
    assert values(lake_server, f"{bucket}/1") == [1, 3, 5, 7]


def test_json_lines_are_written_unchanged(
    spark: SparkSession, lake_server: RunningServer, bucket: str, tmp_path: Path
) -> None:
    lines = ['{"at": 3, "b": null}', '{"at":1,  "a":"é"}', "", '{"at": 2, "b": {"z": 1, "y": 2.50}}']
    for day in ("2026-11-15", "2026-11-16"):
        (tmp_path / f"day={day}").mkdir()
        (tmp_path / f"day={day}" / "x.json").write_text("\n".join(lines))
    config = LoadConfig(
        lake_server.url, [str(tmp_path)], "json", bucket, stream=f"concat('{bucket}/', day)", order=["at"], close=True
    )
    assert run(spark, config).facts["messages"] == 6
    with Client(f"{lake_server.url}/v1/stream") as client:
        stream = client.stream(f"{bucket}/2026-11-16")
        assert stream.read().decode() == f"[{lines[1]},{lines[3]},{lines[0]}]"
        assert stream.head().closed


def test_the_command_reports_what_was_loaded(
    spark: SparkSession, lake_server: RunningServer, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SparkSession, "stop", lambda self: None)
    table = str(tmp_path / "table")
    spark.range(10).selectExpr("id", "'x' AS name", "id % 2 AS part").coalesce(1).write.parquet(table)
    command = f"spark load {table} --url {lake_server.url} --format parquet --name {bucket} --bucket {bucket} --json"
    result = CliRunner().invoke(main, [*command.split(), "--key", "part", "--order", "-id"])
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout.splitlines()[-1])
    assert (facts["ok"], facts["files"], facts["messages"]) == (True, 1, 10)
    assert values(lake_server, f"{bucket}/1") == [{"id": at, "name": "x", "part": 1} for at in (9, 7, 5, 3, 1)]


@pytest.mark.parametrize(
    "given, sentence",
    [
        ({"format": "xml"}, r"'xml' is not a known format; use one of csv, json, parquet, orc\."),
        ({"name": "a/b"}, r"'a/b' is not a valid job name: "),
        ({"stream": None}, r"Use either --stream or --key "),
        ({"key": "x"}, r"Use either --stream or --key "),
        ({"prefix": "x"}, r"The option --prefix needs --key; "),
        ({"paths": []}, r"There is nothing to load; "),
        ({"options": {"ProducerId": "x"}}, r"The job sets the sink option ProducerId itself; "),
        ({"options": {"nonsense": "x"}}, r"There is no option 'nonsense'; "),
        ({"bucket": "a/b"}, r"'a/b' is not a valid bucket name"),
    ],
)
def test_an_invalid_configuration_is_refused_without_spark(given: dict[str, Any], sentence: str) -> None:
    options = {"url": "http://127.0.0.1:1", "paths": ["x"], "format": "csv", "name": "job", "stream": "s", **given}
    with pytest.raises(JobFailed, match=f"^{sentence}"):
        run(None, LoadConfig(**options))  # type: ignore[arg-type]


def test_bad_paths_and_expressions_fail_with_one_sentence_before_a_round_begins(
    spark: SparkSession, lake_server: RunningServer, bucket: str, tmp_path: Path
) -> None:
    missing, files = str(tmp_path / "missing"), str(tmp_path / "files")
    numbers(tmp_path / "files", "a.csv", 1)
    for paths, stream, value, sentence in (
        ([missing], "user", "n", f"^No files found at {missing}; check the paths\\.$"),
        ([files], "nobody", "n", r"A column.* with name `nobody` cannot be resolved"),
        ([files], "user", "int(n)", r"column value .*\bint\b"),
        ([files], "user", "n +", r"PARSE_SYNTAX_ERROR"),
    ):
        with pytest.raises(JobFailed, match=sentence):
            run(spark, LoadConfig(lake_server.url, paths, "csv", bucket, stream=stream, value=value))
    with Link(LinkSettings(lake_server.url)) as link:
        assert state(Ledger(link, bucket)) == (-1, None, set())


def texts(folder: Path, kind: str, *contents: str) -> str:
    folder.mkdir()
    for number, text in enumerate(contents):
        (folder / f"{number}.{kind}").write_text(text)
    return str(folder)


@pytest.mark.parametrize(
    ("kind", "contents", "given", "problem"),
    [
        ("csv", ["user,n\na,1\n", "n,user\n2,b\n"], {}, r"1\.csv.* Header: n, user Schema: user, n Expected: user "),
        ("csv", ["user,n\na,1\n", "user,n,more\nb,2,3\n"], {}, r"0\.csv.* Header length: 2, schema size: 3 "),
        ("csv", ["user,n\na,1\na\n"], {}, r"0\.csv\. .*Malformed CSV record: a; "),
        ("csv", ["user,n\na,1,2\n"], {"value": "user"}, r"0\.csv\. .*Malformed CSV record: a,1,2; "),
        ("csv", ["user,n\na,x\n"], {"schema": "user string, n int"}, r'0\.csv\. .*"x"; '),
        ("csv", ["user,n\na,x\n"], {"value": "string(int(n))"}, r"The value 'x' .* cannot be cast to \"INT\" "),
        (
            "json",
            ['{"user":"a","n":"x"}\n'],
            {"schema": "user string, n int", "value": "to_json(struct(n))"},
            r"Malformed records .*Cannot parse .*; ",
        ),
        ("json", ["1\n"], {"reading": {"Mode": "failfast"}}, r"invalid type of a JSON record .*; "),
    ],
)
def test_unreadable_files_fail_with_one_sentence_before_a_round_begins(
    spark: SparkSession,
    lake_server: RunningServer,
    bucket: str,
    tmp_path: Path,
    *,
    kind: str,
    contents: list[str],
    given: dict[str, Any],
    problem: str,
) -> None:
    files = texts(tmp_path / "files", kind, *contents)
    config = LoadConfig(lake_server.url, [files], kind, bucket, stream="'all'", bucket=bucket)
    with pytest.raises(JobFailed, match=rf"^The files cannot be read: .*{problem}") as failed:
        run(spark, replace(config, **given))
    assert str(failed.value).endswith("; correct them, or change the options of the reader with --read.")
    assert "\n" not in str(failed.value)
    with Link(LinkSettings(lake_server.url)) as link:
        assert state(Ledger(link, bucket)) == (-1, None, set())
        assert not len(link.describe([f"{bucket}/all"]))


def test_options_of_the_reader_override_the_strict_defaults(
    spark: SparkSession, lake_server: RunningServer, bucket: str, tmp_path: Path
) -> None:
    files = texts(tmp_path / "files", "csv", "user,n\na,1\nb\n", "name,n\nc,3,4\n")
    reading = {"ENFORCESCHEMA": "true", "MODE": "PERMISSIVE"}
    run(spark, LoadConfig(lake_server.url, [files], "csv", bucket, stream="'all'", bucket=bucket, reading=reading))
    assert values(lake_server, f"{bucket}/all") == [{"user": "a", "n": "1"}, {"user": "b"}, {"user": "c", "n": "3"}]


@pytest.mark.parametrize("kind", ["parquet", "orc"])
def test_files_with_different_columns_keep_all_of_them(
    spark: SparkSession, lake_server: RunningServer, bucket: str, tmp_path: Path, kind: str
) -> None:
    for part, columns in (("a", "1L AS id, 'x' AS name"), ("b", "'y' AS other, 2L AS id")):
        spark.sql(f"SELECT {columns}").coalesce(1).write.format(kind).save(str(tmp_path / "files" / part))
    config = LoadConfig(lake_server.url, [str(tmp_path / "files")], kind, bucket, stream="'all'", bucket=bucket)
    assert run(spark, config).facts["messages"] == 2
    assert values(lake_server, f"{bucket}/all") == [{"id": 1, "name": "x"}, {"id": 2, "other": "y"}]
    spark.sql("SELECT 'three' AS id").coalesce(1).write.format(kind).save(str(tmp_path / "files" / "c"))
    spark.sql("SELECT 4L AS id").coalesce(1).write.format(kind).save(str(tmp_path / "files" / "d"))
    with pytest.raises(JobFailed, match=r"^The files cannot be read: .*incompatible data types"):
        run(spark, config)
    assert len(values(lake_server, f"{bucket}/all")) == 2
