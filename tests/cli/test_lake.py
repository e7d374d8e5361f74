"""`headwater lake`: what is printed, to whom, which exit code says what, and that its page tells the truth."""

import csv
import io
import json
import os
import pty
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import chdir
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

from headwater.cli import main
from headwater.lake.catalog import seal
from headwater.lake.format import SCHEMA, new_segment_id, segment_key
from headwater.storage.opening import open_store
from headwater.testing.s3_server import running_s3

from ..lake.built_lakes import Content, Writer, tell_a_story, writing
from .test_serve import headwater as process_of
from .test_serve import sentence, usage_error

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "lake.md"
BLOCK = re.compile(r"^```(bash|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Told(NamedTuple):
    """A data directory whose server has gone, and what it had said of its streams."""

    data: Path
    contents: dict[str, Content]

    @property
    def lake(self) -> str:
        return str(self.data / "lake")


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    data = tmp_path_factory.mktemp("told") / "data"
    with writing(data) as writer:
        tell_a_story(writer)
        return Told(data, writer.contents())


@pytest.fixture
def spoilt(told: Told, tmp_path: Path) -> Path:
    """A copy of the lake that may be damaged."""
    return Path(shutil.copytree(told.lake, tmp_path / "lake"))


def headwater(*arguments: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command to its end; in this process, since most of the time would go into starting others."""
    result = CliRunner().invoke(main, arguments, env=env)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return subprocess.CompletedProcess(arguments, result.exit_code, result.stdout, result.stderr)


def output(*arguments: str) -> str:
    """What a command prints that must work and have nothing to complain of."""
    finished = headwater("lake", *arguments)
    assert (finished.returncode, finished.stderr) == (0, ""), finished
    return finished.stdout


def parsed(*arguments: str) -> Any:
    return json.loads(output(*arguments, "--json"))


def lines(*arguments: str) -> list[Any]:
    return [json.loads(line) for line in output(*arguments, "--json").splitlines()]


def on_a_terminal(*arguments: str) -> str:
    """What somebody at a terminal sees."""
    primary, secondary = pty.openpty()
    command = [sys.executable, "-m", "headwater", "lake", *arguments]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=secondary, stderr=secondary) as process:
        os.close(secondary)
        shown = b"".join(_read_all(primary))
        assert process.wait(30) == 0, shown
    os.close(primary)
    return shown.decode()


def _read_all(terminal: int) -> Iterator[bytes]:
    try:
        while data := os.read(terminal, 65536):
            yield data
    except OSError:
        # So a terminal says that nobody writes to it any more.
        return


# -- Which lake --------------------------------------------------------------------------------------------------------


def test_a_folder_a_file_url_and_a_data_directory_name_the_same_lake(told: Told) -> None:
    expected = output("ls", told.lake)
    assert expected
    assert output("ls", f"file://{told.lake}") == expected
    assert output("ls", "--data", str(told.data)) == expected


@pytest.mark.parametrize("verb", ["ls", "stat", "verify"])
@pytest.mark.parametrize("arguments", [[], ["x", "--data", "y"], ["http://x/y"], ["s3://"], ["memory:"], ["x", "y"]])
def test_a_lake_that_is_not_named_right_is_wrong_usage(verb: str, arguments: list[str]) -> None:
    assert usage_error(headwater("lake", verb, *arguments))


@pytest.mark.parametrize("arguments", [[], ["select 1"], ["x", "y", "z"], ["x", "y", "--data", "z"]])
def test_a_query_without_its_lake_is_wrong_usage(arguments: list[str]) -> None:
    assert usage_error(headwater("lake", "sql", *arguments))


@pytest.mark.parametrize(
    "verb", [["ls"], ["stat"], ["verify"], ["verify", "--json"], ["sql", "--data", "x", "select 1"]]
)
def test_where_there_is_no_lake_the_next_step_is_told(verb: list[str], tmp_path: Path) -> None:
    finished = headwater("lake", *verb, *([] if verb[0] == "sql" else [str(tmp_path)]))
    assert finished.returncode == 1
    assert "check the URL" in sentence(finished)


def test_a_store_that_cannot_be_reached_is_told_in_one_sentence() -> None:
    environment = {"AWS_ENDPOINT_URL": "http://127.0.0.1:1", "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x"}
    finished = headwater("lake", "ls", "s3://nowhere/lake", env={**environment, "AWS_REGION": "us-east-1"})
    assert finished.returncode == 1
    assert "s3://nowhere/lake" in sentence(finished)


# -- ls ----------------------------------------------------------------------------------------------------------------


def test_ls_lists_the_segments_of_the_newest_catalog(told: Told) -> None:
    listed = parsed("ls", told.lake)
    keys = sorted(str(path.relative_to(told.lake)) for path in Path(told.lake).glob("segments/*/*.parquet"))
    assert [entry["key"] for entry in listed] == keys
    assert len(output("ls", told.lake).splitlines()) == len(keys)
    for entry in listed:
        assert Path(told.lake, entry["key"]).stat().st_size == entry["size"]
        assert 0 <= entry["live_rows"] <= entry["rows"]


def test_ls_of_a_prefix_lists_segments_that_may_have_it(told: Told) -> None:
    assert len(parsed("ls", told.lake, "--prefix", "team-a/")) == 1
    assert parsed("ls", told.lake, "--prefix", "zzz/") == []
    assert output("ls", told.lake, "--prefix", "zzz/") == ""


def test_ls_lists_streams_with_their_rows_and_bytes(told: Told) -> None:
    listed = {entry["name"]: entry for entry in parsed("ls", "--streams", told.lake)}
    assert list(listed) == sorted(told.contents)
    for name, content in told.contents.items():
        assert listed[name]["bytes"] + listed[name]["inherited_bytes"] == content.end - content.start
    assert listed["team/fork-inside"]["inherited_bytes"] == 9
    assert listed["team/fork-of-ghost"]["rows"] == 0
    assert listed["team/documents"]["rows"] == 6


def test_ls_lists_the_streams_of_a_prefix(told: Told) -> None:
    names = [entry["name"] for entry in parsed("ls", "--streams", "--prefix", "team/fork-", told.lake)]
    assert names == [name for name in sorted(told.contents) if name.startswith("team/fork-")]


def test_columns_stand_in_line_and_heads_are_for_a_terminal(told: Told) -> None:
    piped = output("ls", "--streams", told.lake).splitlines()
    assert len(piped) == len(told.contents)
    assert len({found.start() for line in piped if (found := re.search(r" 20\d\d-", line))}) == 1
    shown = on_a_terminal("ls", "--streams", told.lake).splitlines()
    assert shown[0].split() == ["STREAM", "INCARNATION", "ROWS", "BYTES", "INHERITED", "FROM", "TO"]
    assert len(shown) == len(piped) + 1


# -- stat --------------------------------------------------------------------------------------------------------------


def test_stat_counts_the_lake(told: Told) -> None:
    facts = parsed("stat", told.lake)
    segments = parsed("ls", told.lake)
    streams = parsed("ls", "--streams", told.lake)
    assert facts["streams"] == len(told.contents)
    assert facts["segments"] == facts["objects"]["segments"]["objects"] == len(segments)
    assert facts["rows"] == facts["live_rows"] + facts["dead_rows"] == sum(entry["rows"] for entry in segments)
    assert facts["live_rows"] == sum(entry["rows"] for entry in streams)
    assert facts["live_bytes"] == sum(entry["bytes"] for entry in streams)
    assert facts["needed_rows"] == sum(entry["live_rows"] for entry in segments)
    assert facts["stored_bytes"] == facts["objects"]["segments"]["bytes"]
    assert facts["flushed_position"] <= facts["catalog_position"]
    assert facts["oldest_at"] == min(entry["first_at"] for entry in segments)
    assert facts["newest_at"] == max(entry["last_at"] for entry in segments)
    assert facts["objects"]["orphans"] == facts["objects"]["other"] == {"objects": 0, "bytes": 0}


def test_stat_tells_what_the_newest_catalog_does_not_need(spoilt: Path) -> None:
    store = open_store(str(spoilt))
    store.create(segment_key(0, 1, 2, new_segment_id(1, "old")), b"orphan")
    store.create(segment_key(0, 1, 2, new_segment_id(2**50 * 4, "new")), b"not yet")
    store.create("notes.txt", b"?")
    newest = max(spoilt.glob("catalog/*/*.json"))
    facts = json.loads(newest.read_bytes())
    retired = facts["segments"].pop()
    newer = newest.with_name(f"{facts['position'] + 1:020}.json")
    newer.write_bytes(seal(facts | {"position": facts["position"] + 1}))
    objects = parsed("stat", str(spoilt))["objects"]
    assert objects["orphans"] == {"objects": 1, "bytes": 6}
    assert objects["pending"] == {"objects": 1, "bytes": 7}
    assert objects["retired"] == {"objects": 1, "bytes": retired["size"]}
    assert objects["other"] == {"objects": 1, "bytes": 1}


def test_stat_in_words_has_a_line_for_each_fact(told: Told) -> None:
    text = output("stat", told.lake)
    facts = parsed("stat", told.lake)
    assert len(text.splitlines()) == len(facts) - 1 + len(facts["objects"])
    assert re.search(rf"^live rows +{facts['live_rows']}$", text, re.MULTILINE)
    assert re.search(r"^catalog at +20\d\d-\d\d-\d\dT.*Z$", text, re.MULTILINE)


def test_a_lake_without_a_segment_can_be_looked_at(tmp_path: Path) -> None:
    with writing(tmp_path) as writer:
        writer.make("/team/empty")
        writer.flush()
    lake = str(tmp_path / "lake")
    assert parsed("ls", lake) == parsed("ls", "--streams", lake) == parsed("verify", lake) == []
    assert parsed("stat", lake)["compression_ratio"] is None
    assert lines("sql", lake, "select count(*) as n from streams union all select count(*) from segments") == [
        {"n": 0},
        {"n": 0},
    ]


# -- verify ------------------------------------------------------------------------------------------------------------


def test_a_lake_that_is_well_says_nothing_to_a_program(told: Told) -> None:
    assert output("verify", told.lake) == ""
    assert output("verify", "--json-values", told.lake) == ""
    assert parsed("verify", told.lake) == []


def test_a_lake_that_is_well_says_so_on_a_terminal_with_progress(told: Told) -> None:
    shown = on_a_terminal("verify", told.lake)
    assert "100%" in shown
    assert re.search(r"No problem in \d+ segments, \d+ rows \(\d+ live\), [\d.]+ KiB of \d+ streams\.", shown)


def test_damage_is_a_line_for_each_problem_and_exit_code_1(spoilt: Path) -> None:
    first, second, *_ = sorted(spoilt.glob("segments/*/*.parquet"))
    data = bytearray(first.read_bytes())
    data[50] ^= 1
    first.write_bytes(data)
    second.unlink()
    finished = process_of("lake", "verify", str(spoilt))
    assert finished.returncode == 1
    problems = finished.stdout.splitlines()
    assert [line.partition(": ")[0] for line in sorted(problems)] == [
        f"segments/shard=0/{path.name}" for path in (first, second)
    ]
    assert finished.stderr.startswith("Error: The lake at file://")
    assert "has 2 problems; " in finished.stderr


def test_damage_is_a_list_for_a_program(spoilt: Path) -> None:
    path = max(spoilt.glob("catalog/*/*.tombstones.parquet"))
    path.write_bytes(path.read_bytes()[:-9])
    finished = headwater("lake", "verify", "--json", str(spoilt))
    assert finished.returncode == 1
    [problem] = json.loads(finished.stdout)
    assert problem.keys() == {"key", "row", "what"}
    assert problem["key"].endswith(path.name)


@pytest.mark.parametrize("verb", [["ls", "--streams"], ["stat"], ["sql", 'select sum("offset") from streams']])
def test_what_meets_damage_fails_and_says_how_to_find_out_more(spoilt: Path, verb: list[str]) -> None:
    min(spoilt.glob("segments/*/*.parquet")).unlink()
    finished = headwater("lake", verb[0], str(spoilt), *verb[1:])
    assert finished.returncode == 1
    assert "headwater lake verify" in finished.stderr
    assert "Traceback" not in finished.stderr
    assert len(finished.stderr.splitlines()) == 1


@pytest.mark.parametrize("verb", [["ls"], ["stat"], ["sql", "select 1"]])
def test_a_damaged_catalog_is_told_in_one_sentence(spoilt: Path, verb: list[str]) -> None:
    path = max(spoilt.glob("catalog/*/*.json"))
    path.write_bytes(path.read_bytes()[:-9])
    finished = headwater("lake", verb[0], str(spoilt), *verb[1:])
    assert finished.returncode == 1
    assert path.name in sentence(finished)


# -- sql ---------------------------------------------------------------------------------------------------------------


def bodies(rows: list[Any]) -> dict[str, bytes]:
    """What rows of JSON lines, in order, say of each stream."""
    found: dict[str, list[bytes]] = {}
    for row in rows:
        payload = re.sub(r"\\x(..)", lambda match: chr(int(match[1], 16)), row["payload"]).encode("latin-1")
        found.setdefault(f"{row['bucket']}/{row['stream']}", []).append(payload)
    documents = {name for name in found if "documents" in name}
    return {
        name: b"[" + b",".join(parts) + b"]" if name in documents else b"".join(parts) for name, parts in found.items()
    }


def test_streams_and_what_forks_inherit_are_all_that_the_server_answers(told: Told) -> None:
    query = 'from streams union all from inherited order by bucket, stream, "offset"'
    assert bodies(lines("sql", told.lake, query)) == {name: content.body for name, content in told.contents.items()}


def test_streams_have_every_live_row_once(told: Told) -> None:
    query = 'select count(*) as n, count(distinct (incarnation, "offset")) as different from streams'
    [found] = lines("sql", "--data", str(told.data), query)
    assert found["n"] == found["different"] == parsed("stat", told.lake)["live_rows"]


def test_streams_have_the_public_columns(told: Told) -> None:
    names = next(csv.reader(io.StringIO(output("sql", told.lake, "from streams", "--csv"))))
    assert names == next(csv.reader(io.StringIO(output("sql", told.lake, "from inherited", "--csv"))))
    assert names == SCHEMA.names


def test_a_query_does_not_gather_the_lake_in_memory(told: Told) -> None:
    """Rows stream past the tombstones, not the other way round, and only those that are asked for."""
    [found] = lines("sql", told.lake, "explain select max(payload) from streams where position > 3")
    assert "Join Type: ANTI" in found["explain_value"]
    assert 'Filters: "position" > 3' in found["explain_value"]


def test_what_the_catalog_says_can_be_asked(told: Told) -> None:
    [counts] = lines(
        "sql",
        told.lake,
        "select (select count(*) from tombstones) g, (select count(*) from forks) f, sum(rows) r from segments",
    )
    facts = parsed("stat", told.lake)
    assert counts["g"] == facts["tombstones"]
    assert counts["f"] >= facts["forks"]
    assert counts["r"] == facts["rows"]


def test_values_of_any_type_are_printed(told: Told) -> None:
    query = """select 1 as number, 1.5 as part, null as nothing, 'a,b' as word, true as yes, [1, null] as several,
        {'a': 'x'} as thing, 'ä\\'::blob as bytes, date '2026-01-02' as day, sum(2) as total,
        timestamptz '2026-01-02 03:04:05+00' as moment from range(2)"""
    query = query.replace("'ä\\'::blob", "from_hex('C3A45C41')")
    assert lines("sql", told.lake, query) == [
        {
            "number": 1,
            "part": 1.5,
            "nothing": None,
            "word": "a,b",
            "yes": True,
            "several": [1, None],
            "thing": {"a": "x"},
            "bytes": "\\xC3\\xA4\\x5CA",
            "day": "2026-01-02",
            "total": 4,
            "moment": "2026-01-02T03:04:05Z",
        }
    ]
    [head, row] = csv.reader(io.StringIO(output("sql", told.lake, query, "--csv")))
    assert dict(zip(head, row, strict=True)) == {
        "number": "1",
        "part": "1.5",
        "nothing": "",
        "word": "a,b",
        "yes": "true",
        "several": "[1, null]",
        "thing": '{"a": "x"}',
        "bytes": "\\xC3\\xA4\\x5CA",
        "day": "2026-01-02",
        "total": "4",
        "moment": "2026-01-02T03:04:05Z",
    }


def test_a_table_has_its_columns_in_line(told: Told) -> None:
    query = "select * from (values (1, 'a'), (1000, 'b\nc')) as t(number, word) order by 1"
    assert output("sql", told.lake, query) == "number  word\n     1  a\n  1000  b\\nc\n"


def test_a_process_that_fails_leaves_one_sentence_behind(told: Told, spoilt: Path) -> None:
    """DuckDB has much to say at the end of a process, if anything of it is still alive."""
    min(spoilt.glob("segments/*/*.parquet")).unlink()
    for lake, query, code in ((told.lake, "selec", 2), (str(spoilt), "select max(payload) from streams", 1)):
        finished = process_of("lake", "sql", lake, query)
        assert finished.returncode == code
        assert finished.stderr.splitlines()[-1].startswith("Error: ")
        assert finished.stderr.count("\n") == (4 if code == 2 else 1)


@pytest.mark.parametrize("query", ["selec", "select nope from streams", "select * from nowhere"])
def test_a_query_that_makes_no_sense_is_wrong_usage(told: Told, query: str) -> None:
    assert "DuckDB does not understand the query" in usage_error(headwater("lake", "sql", told.lake, query))


def test_a_query_that_fails_is_told_in_one_sentence(told: Told) -> None:
    finished = headwater("lake", "sql", told.lake, "select cast(stream as integer) from streams")
    assert finished.returncode == 1
    assert "DuckDB could not answer the query" in sentence(finished)


def test_csv_and_json_exclude_each_other(told: Told) -> None:
    assert usage_error(headwater("lake", "sql", told.lake, "select 1", "--csv", "--json"))


def test_without_duckdb_it_says_how_to_get_it(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    finished = headwater("lake", "sql", told.lake, "select 1")
    assert finished.returncode == 1
    assert "pip install duckdb" in sentence(finished)
    assert "pyarrow" in finished.stderr


def test_a_reader_that_has_seen_enough_hears_no_complaint(told: Told) -> None:
    command = f"{sys.executable} -m headwater lake sql {told.lake} 'from range(1000000)' --csv | head -1"
    finished = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert (finished.stdout, finished.stderr) == ("range\n", "")


# -- A server at work, and S3 ------------------------------------------------------------------------------------------


def test_a_lake_can_be_looked_at_while_its_server_works(tmp_path: Path) -> None:
    with writing(tmp_path) as writer:
        _write_some(writer)
        assert [entry["name"] for entry in parsed("ls", "--streams", "--data", str(tmp_path))] == ["team/one"]
        assert parsed("verify", "--data", str(tmp_path)) == []


def _write_some(writer: Writer) -> None:
    writer.make("/team/one", b"something")
    writer.flush()


def test_a_lake_on_s3_answers_all_verbs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running_s3() as s3:
        for name, value in s3.environment.items():
            monkeypatch.setenv(name, value)
        url = f"s3://{s3.bucket}/some/lake"
        with writing(tmp_path, "--lake", url) as writer:
            tell_a_story(writer)
            contents = writer.contents()
        assert len(parsed("ls", url)) == parsed("stat", url)["segments"]
        assert [entry["name"] for entry in parsed("ls", "--streams", url)] == sorted(contents)
        assert parsed("verify", url) == []
        query = 'from streams union all from inherited order by bucket, stream, "offset"'
        assert bodies(lines("sql", url, query)) == {name: content.body for name, content in contents.items()}


# -- The page ----------------------------------------------------------------------------------------------------------


def test_every_example_of_the_page_runs(told: Told, capsys: pytest.CaptureFixture[str]) -> None:
    blocks = BLOCK.findall(PAGE.read_text())
    assert {kind for kind, _ in blocks} == {"bash", "python"}
    names: dict[str, Any] = {}
    with chdir(told.data.parent):
        for kind, block in blocks:
            if kind == "bash":
                headed = f'headwater() {{ {sys.executable} -m headwater "$@"; }}\n{block}'
                subprocess.run(["bash", "-euo", "pipefail", "-c", headed], check=True, timeout=60, capture_output=True)
            elif "pyspark" not in block or find_spec("pyspark"):
                exec(block, names)
    assert "fork's" in capsys.readouterr().out
    assert names["live"].num_rows == sum(
        entry["rows"] for entry in parsed("ls", "--streams", "--prefix", "team/", told.lake)
    )


def test_the_page_lists_every_verb() -> None:
    for verb in re.findall(r"^  (\w+) ", output("--help").split("Commands:")[1], re.MULTILINE):
        assert f"| `{verb}" in PAGE.read_text()
