"""`headwater lake ls`, `stat` and `verify`, and the examples of its reference page."""

import json
import re
import subprocess
import sys
from contextlib import chdir
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from headwater.lake.catalog import read_catalog
from headwater.lake.format import new_segment_id, segment_key
from headwater.storage.opening import open_store
from headwater.testing.s3_server import running_s3

from ...lake.built_lakes import Writer, tell_a_story, writing
from ...lake.relisting import relist
from ..processes import headwater as process_of
from ..processes import sentence, usage_error
from .commands import Written, headwater, lines, on_a_terminal, output, parsed
from .test_sql import bodies

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "lake.md"
BLOCK = re.compile(r"^```(bash|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


# -- Which lake --------------------------------------------------------------------------------------------------------


def test_a_folder_a_file_url_and_a_data_directory_name_the_same_lake(written: Written) -> None:
    expected = output("ls", written.lake)
    assert expected
    assert output("ls", f"file://{written.lake}") == expected
    assert output("ls", "--data", str(written.data)) == expected


@pytest.mark.parametrize("verb", ["ls", "show", "verify"])
@pytest.mark.parametrize("arguments", [[], ["x", "--data", "y"], ["http://x/y"], ["s3://"], ["memory:"], ["x", "y"]])
def test_a_lake_that_is_not_named_right_is_wrong_usage(verb: str, arguments: list[str]) -> None:
    assert usage_error(headwater("lake", verb, *arguments))


@pytest.mark.parametrize("arguments", [[], ["select 1"], ["x", "y", "z"], ["x", "y", "--data", "z"]])
def test_a_query_without_its_lake_is_wrong_usage(arguments: list[str]) -> None:
    assert usage_error(headwater("lake", "sql", *arguments))


@pytest.mark.parametrize(
    "verb", [["ls"], ["show"], ["verify"], ["verify", "--json"], ["sql", "--data", "x", "select 1"]]
)
def test_where_there_is_no_lake_the_error_names_the_next_step(verb: list[str], tmp_path: Path) -> None:
    finished = headwater("lake", *verb, *([] if verb[0] == "sql" else [str(tmp_path)]))
    assert finished.returncode == 1
    assert "check the URL" in sentence(finished)


def test_an_unreachable_store_is_reported_in_one_sentence() -> None:
    environment = {"AWS_ENDPOINT_URL": "http://127.0.0.1:1", "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x"}
    finished = headwater("lake", "ls", "s3://nowhere/lake", env={**environment, "AWS_REGION": "us-east-1"})
    assert finished.returncode == 1
    assert "s3://nowhere/lake" in sentence(finished)


# -- ls ----------------------------------------------------------------------------------------------------------------


def test_ls_lists_the_segments_of_the_newest_catalog(written: Written) -> None:
    listed = parsed("ls", written.lake)
    keys = sorted(str(path.relative_to(written.lake)) for path in Path(written.lake).glob("segments/*/*.parquet"))
    assert [entry["key"] for entry in listed] == keys
    assert len(output("ls", written.lake).splitlines()) == len(keys)
    for entry in listed:
        assert Path(written.lake, entry["key"]).stat().st_size == entry["size"]
        assert 0 <= entry["live_rows"] <= entry["rows"]


def test_ls_of_a_prefix_lists_segments_that_may_have_it(written: Written) -> None:
    assert len(parsed("ls", written.lake, "--prefix", "team-a/")) == 1
    assert parsed("ls", written.lake, "--prefix", "zzz/") == []
    assert output("ls", written.lake, "--prefix", "zzz/") == ""


def test_ls_lists_streams_with_their_rows_and_bytes(written: Written) -> None:
    listed = {entry["name"]: entry for entry in parsed("ls", "--streams", written.lake)}
    assert list(listed) == sorted(written.contents)
    for name, content in written.contents.items():
        assert listed[name]["bytes"] + listed[name]["inherited_bytes"] == content.end - content.start
    assert listed["team/fork-inside"]["inherited_bytes"] == 9
    assert listed["team/fork-of-ghost"]["rows"] == 0
    assert listed["team/documents"]["rows"] == 6


def test_ls_lists_the_streams_of_a_prefix(written: Written) -> None:
    names = [entry["name"] for entry in parsed("ls", "--streams", "--prefix", "team/fork-", written.lake)]
    assert names == [name for name in sorted(written.contents) if name.startswith("team/fork-")]


def test_columns_are_aligned_and_have_headings_only_on_a_terminal(written: Written) -> None:
    piped = output("ls", "--streams", written.lake).splitlines()
    assert len(piped) == len(written.contents)
    assert len({found.start() for line in piped if (found := re.search(r" 20\d\d-", line))}) == 1
    shown = on_a_terminal("ls", "--streams", written.lake).splitlines()
    assert shown[0].split() == ["STREAM", "INCARNATION", "ROWS", "BYTES", "INHERITED", "FROM", "TO"]
    assert len(shown) == len(piped) + 1


# -- stat --------------------------------------------------------------------------------------------------------------


def test_stat_counts_the_lake(written: Written) -> None:
    facts = parsed("show", written.lake)
    segments = parsed("ls", written.lake)
    streams = parsed("ls", "--streams", written.lake)
    assert facts["streams"] == len(written.contents)
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


def test_stat_counts_what_the_newest_catalog_does_not_need(copied: Path) -> None:
    store = open_store(str(copied))
    store.create(segment_key(0, 1, 2, new_segment_id(1, "old")), b"orphan")
    store.create(segment_key(0, 1, 2, new_segment_id(2**50 * 4, "new")), b"not yet")
    store.create("notes.txt", b"?")
    catalog = read_catalog(store)
    assert catalog is not None
    retired = catalog.segments[-1].segment
    relist(store, replace(catalog, segments=catalog.segments[:-1], position=catalog.position + 1))
    objects = parsed("show", str(copied))["objects"]
    assert objects["orphans"] == {"objects": 1, "bytes": 6}
    assert objects["pending"] == {"objects": 1, "bytes": 7}
    assert objects["retired"] == {"objects": 1, "bytes": retired.size}
    assert objects["other"] == {"objects": 1, "bytes": 1}


def test_stat_in_words_has_a_line_for_each_fact(written: Written) -> None:
    text = output("show", written.lake)
    facts = parsed("show", written.lake)
    assert len(text.splitlines()) == len(facts) - 2 + len(facts["objects"]) + len(facts["tables"])
    assert re.search(rf"^live rows +{facts['live_rows']}$", text, re.MULTILINE)
    assert re.search(r"^catalog at +20\d\d-\d\d-\d\dT.*Z$", text, re.MULTILINE)


def test_a_lake_without_a_segment_can_be_inspected(tmp_path: Path) -> None:
    with writing(tmp_path) as writer:
        writer.make("/team/empty")
        writer.flush()
    lake = str(tmp_path / "lake")
    assert parsed("ls", lake) == parsed("ls", "--streams", lake) == parsed("verify", lake) == []
    assert parsed("show", lake)["compression_ratio"] is None
    assert lines("sql", lake, "select count(*) as n from messages union all select count(*) from segments") == [
        {"n": 0},
        {"n": 0},
    ]


# -- verify ------------------------------------------------------------------------------------------------------------


def test_an_intact_lake_is_reported_in_a_sentence_and_to_a_program_as_an_empty_list(written: Written) -> None:
    intact = r"The lake is intact: \d+ segments, \d+ rows \(\d+ live\), [\d.]+ KiB of \d+ streams\.\n"
    assert re.fullmatch(intact, output("verify", written.lake))
    assert re.fullmatch(intact, output("verify", "--json-values", written.lake))
    assert parsed("verify", written.lake) == []


def test_verifying_shows_its_progress_on_a_terminal(written: Written) -> None:
    shown = on_a_terminal("verify", written.lake)
    assert "Verifying [########################] 100%" in shown
    assert "The lake is intact" in shown


def test_damage_is_a_line_for_each_problem_and_exit_code_1(copied: Path) -> None:
    first, second, *_ = sorted(copied.glob("segments/*/*.parquet"))
    data = bytearray(first.read_bytes())
    data[50] ^= 1
    first.write_bytes(data)
    second.unlink()
    finished = process_of("lake", "verify", str(copied))
    assert finished.returncode == 1
    problems = finished.stdout.splitlines()
    assert [line.partition(": ")[0] for line in sorted(problems)] == [
        f"segments/shard=0/{path.name}" for path in (first, second)
    ]
    assert finished.stderr.startswith("Error: The lake at file://")
    assert "has 2 problems; " in finished.stderr


def test_damage_is_a_list_for_a_program(copied: Path) -> None:
    path = max(copied.glob("messages/deletes/*.parquet"))
    path.write_bytes(path.read_bytes()[:-9])
    finished = headwater("lake", "verify", "--json", str(copied))
    assert finished.returncode == 1
    [problem] = json.loads(finished.stdout)
    assert problem.keys() == {"key", "row", "what"}
    assert problem["key"].endswith(path.name)


@pytest.mark.parametrize("verb", [["ls", "--streams"], ["show"], ["sql", 'select sum("offset") from messages']])
def test_a_command_that_meets_damage_fails_and_points_to_verify(copied: Path, verb: list[str]) -> None:
    min(copied.glob("segments/*/*.parquet")).unlink()
    finished = headwater("lake", verb[0], str(copied), *verb[1:])
    assert finished.returncode == 1
    assert "headwater lake verify" in finished.stderr
    assert "Traceback" not in finished.stderr
    assert len(finished.stderr.splitlines()) == 1


@pytest.mark.parametrize("verb", [["ls"], ["show"], ["sql", "select 1"]])
def test_a_damaged_catalog_is_reported_in_one_sentence(copied: Path, verb: list[str]) -> None:
    path = max(copied.glob("messages/metadata/*.json"))
    path.write_bytes(path.read_bytes()[:-9])
    finished = headwater("lake", verb[0], str(copied), *verb[1:])
    assert finished.returncode == 1
    assert path.name in sentence(finished)


# -- A server at work, and S3 ------------------------------------------------------------------------------------------


def test_a_lake_can_be_inspected_while_its_server_runs(tmp_path: Path) -> None:
    with writing(tmp_path) as writer:
        _write_some(writer)
        assert [entry["name"] for entry in parsed("ls", "--streams", "--data", str(tmp_path))] == ["team/one"]
        assert parsed("verify", "--data", str(tmp_path)) == []


def _write_some(writer: Writer) -> None:
    writer.make("/team/one", b"something")
    writer.flush()


def test_every_verb_works_on_s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running_s3() as s3:
        for name, value in s3.environment.items():
            monkeypatch.setenv(name, value)
        url = f"s3://{s3.bucket}/some/lake"
        with writing(tmp_path, "--lake", url) as writer:
            tell_a_story(writer)
            contents = writer.contents()
        assert len(parsed("ls", url)) == parsed("show", url)["segments"]
        assert [entry["name"] for entry in parsed("ls", "--streams", url)] == sorted(contents)
        assert parsed("verify", url) == []
        query = 'from messages union all from inherited order by bucket, stream, "offset"'
        assert bodies(lines("sql", url, query)) == {name: content.body for name, content in contents.items()}


# -- The page ----------------------------------------------------------------------------------------------------------


def test_every_example_of_the_page_runs(written: Written, capsys: pytest.CaptureFixture[str]) -> None:
    blocks = BLOCK.findall(PAGE.read_text())
    assert {kind for kind, _ in blocks} == {"bash", "python"}
    names: dict[str, Any] = {}
    with chdir(written.data.parent):
        for kind, block in blocks:
            if kind == "bash":
                headed = f'headwater() {{ {sys.executable} -m headwater "$@"; }}\n{block}'
                subprocess.run(["bash", "-euo", "pipefail", "-c", headed], check=True, timeout=60, capture_output=True)
            elif "pyspark" not in block or find_spec("pyspark"):
                exec(block, names)
    assert "inherited by a fork" in capsys.readouterr().out
    assert names["live"].num_rows == sum(
        entry["rows"] for entry in parsed("ls", "--streams", "--prefix", "team/", written.lake)
    )


def test_the_page_lists_every_verb() -> None:
    for verb in re.findall(r"^  (\w+) ", output("--help").split("Commands:")[1], re.MULTILINE):
        assert f"| `{verb}" in PAGE.read_text()


# -- The other tables --------------------------------------------------------------------------------------------------


def test_the_tables_are_listed(written: Written) -> None:
    found = {one["table"]: one for one in parsed("ls", "--tables", written.lake)}
    assert list(found) == ["messages", "pinned", "forks", "streams"]
    facts = parsed("show", written.lake)
    assert found == facts["tables"]
    assert found["messages"]["rows"] == facts["live_rows"]
    assert found["streams"]["rows"] == len(written.contents) > 0
    assert re.search(r"^pinned +\d+ +\d+ +\d+ +\d+ +\d+ +20\d\d-", output("ls", "--tables", written.lake), re.MULTILINE)


def test_the_list_of_the_tables_is_of_the_whole_lake(written: Written) -> None:
    assert headwater("lake", "ls", "--tables", "--streams", written.lake).returncode == 2


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("pinned/deletes/*.parquet", "its checksum does not match"),
        ("streams/data/*.parquet", "its checksum does not match"),
        ("pinned/metadata/*-list.avro", "its checksum does not match"),
        ("streams/metadata/*-list.avro", "its checksum does not match"),
    ],
)
def test_damage_to_the_other_tables_is_found(copied: Path, pattern: str, problem: str) -> None:
    for path in copied.glob(pattern):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    found = headwater("lake", "verify", str(copied))
    assert found.returncode == 1
    assert problem in found.stdout


@pytest.mark.parametrize("pattern", ["pinned/deletes/*.parquet", "streams/data/*.parquet", "pinned/metadata/*.json"])
def test_a_missing_object_of_the_other_tables_is_found(copied: Path, pattern: str) -> None:
    for path in copied.glob(pattern):
        path.unlink()
    found = headwater("lake", "verify", str(copied))
    assert found.returncode == 1
    assert "missing" in found.stdout
