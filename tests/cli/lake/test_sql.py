"""`headwater lake sql`: queries with DuckDB."""

import csv
import io
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headwater.lake.format import SCHEMA

from ..processes import headwater as process_of
from ..processes import sentence, usage_error
from .commands import Written, headwater, lines, output, parsed


def bodies(rows: list[Any]) -> dict[str, bytes]:
    """Return the content of each stream, from its rows in order."""
    found: dict[str, list[bytes]] = {}
    for row in rows:
        payload = re.sub(r"\\x(..)", lambda match: chr(int(match[1], 16)), row["payload"]).encode("latin-1")
        found.setdefault(f"{row['bucket']}/{row['stream']}", []).append(payload)
    documents = {name for name in found if "documents" in name}
    return {
        name: b"[" + b",".join(parts) + b"]" if name in documents else b"".join(parts) for name, parts in found.items()
    }


def test_messages_and_inherited_rows_are_everything_that_the_server_returns(written: Written) -> None:
    query = 'from messages union all from inherited order by bucket, stream, "offset"'
    assert bodies(lines("sql", written.lake, query)) == {
        name: content.body for name, content in written.contents.items()
    }


def test_messages_have_every_live_row_once(written: Written) -> None:
    query = 'select count(*) as n, count(distinct (incarnation, "offset")) as different from messages'
    [found] = lines("sql", "--data", str(written.data), query)
    assert found["n"] == found["different"] == parsed("show", written.lake)["live_rows"]


def test_messages_have_the_public_columns(written: Written) -> None:
    names = next(csv.reader(io.StringIO(output("sql", written.lake, "from messages", "--csv"))))
    assert names == next(csv.reader(io.StringIO(output("sql", written.lake, "from inherited", "--csv"))))
    assert names == SCHEMA.names


def test_a_query_does_not_load_the_lake_into_memory(written: Written) -> None:
    """Rows stream past the tombstones, not the other way round, and only those that the query needs."""
    [found] = lines("sql", written.lake, "explain select max(payload) from messages where position > 3")
    assert "Join Type: ANTI" in found["explain_value"]
    assert re.search(r'Filters: "?position"? ?> ?3', found["explain_value"])


def test_pinned_rows_are_those_of_the_table(written: Written) -> None:
    [counts] = lines("sql", written.lake, "select count(*) as n, count(distinct position) as different from pinned")
    assert counts["n"] == parsed("show", written.lake)["tables"]["pinned"]["rows"] > 0
    assert lines("sql", written.lake, "select 1 from messages semi join pinned using (incarnation, record)") == []


def test_the_list_of_the_streams_can_be_queried(written: Written) -> None:
    """It is written at intervals, so a lake may not have it yet; the fixture has asked for it."""
    found = lines("sql", written.lake, "select bucket || '/' || stream as name, start, tail from streams")
    assert {row["name"]: (row["start"], row["tail"]) for row in found} == {
        name: (content.start, content.end) for name, content in written.contents.items()
    }


def test_the_catalog_can_be_queried(written: Written) -> None:
    [counts] = lines(
        "sql",
        written.lake,
        "select (select count(*) from tombstones) g, (select count(*) from forks) f, sum(rows) r from segments",
    )
    facts = parsed("show", written.lake)
    assert counts["g"] == facts["tombstones"]
    assert counts["f"] >= facts["forks"]
    assert counts["r"] == facts["rows"]


def test_values_of_any_type_are_printed(written: Written) -> None:
    query = """select 1 as number, 1.5 as part, null as nothing, 'a,b' as word, true as yes, [1, null] as several,
        {'a': 'x'} as thing, 'ä\\'::blob as bytes, date '2026-01-02' as day, sum(2) as total,
        timestamptz '2026-01-02 03:04:05+00' as moment from range(2)"""
    query = query.replace("'ä\\'::blob", "from_hex('C3A45C41')")
    assert lines("sql", written.lake, query) == [
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
    [head, row] = csv.reader(io.StringIO(output("sql", written.lake, query, "--csv")))
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


def test_the_columns_of_a_table_are_aligned(written: Written) -> None:
    query = "select * from (values (1, 'a'), (1000, 'b\nc')) as t(number, word) order by 1"
    assert output("sql", written.lake, query) == "number  word\n     1  a\n  1000  b\\nc\n"


def test_a_failed_query_ends_with_one_sentence(written: Written, copied: Path) -> None:
    """DuckDB prints warnings at exit if anything of it is still alive."""
    min(copied.glob("segments/*/*.parquet")).unlink()
    for lake, query, code in ((written.lake, "selec", 2), (str(copied), "select max(payload) from messages", 1)):
        finished = process_of("lake", "sql", lake, query)
        assert finished.returncode == code
        assert finished.stderr.splitlines()[-1].startswith("Error: ")
        assert finished.stderr.count("\n") == (4 if code == 2 else 1)


@pytest.mark.parametrize("query", ["selec", "select nope from messages", "select * from nowhere"])
def test_an_invalid_query_is_wrong_usage(written: Written, query: str) -> None:
    assert "DuckDB does not understand the query" in usage_error(headwater("lake", "sql", written.lake, query))


def test_a_query_that_fails_is_reported_in_one_sentence(written: Written) -> None:
    finished = headwater("lake", "sql", written.lake, "select cast(stream as integer) from messages")
    assert finished.returncode == 1
    assert "DuckDB could not answer the query" in sentence(finished)


def test_csv_and_json_exclude_each_other(written: Written) -> None:
    assert usage_error(headwater("lake", "sql", written.lake, "select 1", "--csv", "--json"))


def test_without_duckdb_it_says_how_to_get_it(written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    finished = headwater("lake", "sql", written.lake, "select 1")
    assert finished.returncode == 1
    assert "pip install duckdb" in sentence(finished)
    assert "pyarrow" in finished.stderr


def test_a_closed_pipe_is_not_an_error(written: Written) -> None:
    command = f"{sys.executable} -m headwater lake sql {written.lake} 'from range(1000000)' --csv | head -1"
    finished = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert (finished.stdout, finished.stderr) == ("range\n", "")


@pytest.mark.parametrize(("query", "statements"), [("", 0), ("; ;", 0), ("select 1; select 2", 2)])
def test_a_query_is_one_statement(written: Written, query: str, statements: int) -> None:
    assert f"it has {statements} statements, not one" in usage_error(headwater("lake", "sql", written.lake, query))
