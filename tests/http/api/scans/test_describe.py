"""Describing many streams in one request, and locating records."""

import json
from collections.abc import Iterator
from itertools import count
from typing import Any

import pyarrow as pa
import pytest

from headwater.testing import RunningServer, running_server

from ...sockets import Wire, refused
from ..bulk.requests import bulk_table, row, table_of
from .requests import Row, ask, described, table

TEXT = {"Content-Type": "text/plain"}
JSON = {"Content-Type": "application/json"}
_numbers = count(1)


@pytest.fixture
def bucket() -> str:
    """A bucket that no other test uses."""
    return f"described-{next(_numbers)}"


def made(wire: Wire, name: str, body: bytes | None = None, **headers: str) -> None:
    lines = TEXT | {key.replace("_", "-"): value for key, value in headers.items()}
    assert wire.ask("PUT", f"/v1/stream/{name}", lines, body).status == 201


def names_of(rows: list[Row]) -> list[str]:
    return [row["stream"] for row in rows]


def test_every_fact_of_a_stream_is_shown(wire: Wire, bucket: str) -> None:
    made(wire, f"{bucket}/text", b"one")
    wire.ask("POST", f"/v1/stream/{bucket}/text", TEXT | {"Stream-Closed": "true"}, b"two")
    made(wire, f"{bucket}/json", b'[1,{"a":2},3]', Content_Type="application/json; charset=utf-8")
    assert wire.ask("PUT", f"/{bucket}/json/snapshot/{8:020}", JSON, b"{}").status == 204
    rows = described(wire, streams=[f"{bucket}/text", f"{bucket}/json"])
    lives = [row.pop("incarnation") for row in rows]
    assert rows == [
        {
            "stream": f"{bucket}/json",
            "start": 8,
            "tail": 9,
            "record_start": 2,
            "record_next": 3,
            "content_type": "application/json; charset=utf-8",
            "closed": False,
            "snapshot": 8,
        },
        {
            "stream": f"{bucket}/text",
            "start": 0,
            "tail": 6,
            "record_start": 0,
            "record_next": 2,
            "content_type": "text/plain",
            "closed": True,
            "snapshot": None,
        },
    ]
    assert lives[1] < lives[0]


def test_the_columns_have_their_types_also_when_there_is_no_row(wire: Wire) -> None:
    found = table(ask(wire, "describe", streams=[]))
    assert len(found) == 0
    types = {field.name: field.type for field in found.schema}
    integers = dict.fromkeys(("incarnation", "start", "tail", "record_start", "record_next", "snapshot"), pa.int64())
    assert types == {"stream": pa.string(), "content_type": pa.string(), "closed": pa.bool_(), **integers}


def test_streams_that_are_not_there_are_absent_and_one_named_twice_comes_once(wire: Wire, bucket: str) -> None:
    for name in ("b", "a", "source", "deleted"):
        made(wire, f"{bucket}/{name}", b"x")
    made(wire, f"{bucket}/fork", Stream_Forked_From=f"/v1/stream/{bucket}/source")
    for name in ("source", "deleted"):
        assert wire.ask("DELETE", f"/v1/stream/{bucket}/{name}").status == 204
    asked = [f"{bucket}/{name}" for name in ("b", "source", "a", "b", "deleted", "fork", "nothing")]
    assert names_of(described(wire, streams=[*asked, "", "no-slash"])) == [
        f"{bucket}/a",
        f"{bucket}/b",
        f"{bucket}/fork",
    ]


def test_a_flat_name_without_a_bucket_is_found_in_the_default_one(wire: Wire, bucket: str) -> None:
    made(wire, bucket)
    assert names_of(described(wire, streams=[bucket, f"_default/{bucket}"])) == [f"_default/{bucket}"]


def test_a_prefix_is_walked_page_by_page(wire: Wire, bucket: str) -> None:
    names = sorted(f"{bucket}/{word}{number}" for word in ("a", "ab", "b") for number in range(7))
    for name in [*names, f"{bucket}0/a1", f"{bucket}/ghost"]:
        made(wire, name)
    made(wire, f"{bucket}-fork/x", Stream_Forked_From=f"/v1/stream/{bucket}/ghost")
    wire.ask("DELETE", f"/v1/stream/{bucket}/ghost")
    assert names_of(described(wire, prefix=f"{bucket}/")) == names
    assert names_of(described(wire, prefix=f"{bucket}/ab")) == [f"{bucket}/ab{number}" for number in range(7)]
    assert names_of(described(wire, prefix=f"{bucket}/b3")) == [f"{bucket}/b3"]
    assert described(wire, prefix=f"{bucket}/c") == []
    for limit in (1, 4, 21, 22):
        pages: list[list[str]] = [[]]
        after = None
        while not pages[1:] or len(pages[-1]) == limit:
            pages.append(names_of(described(wire, prefix=f"{bucket}/", after=after, limit=limit)))
            after = pages[-1][-1] if pages[-1] else after
        assert [name for page in pages for name in page] == names
        assert max(map(len, pages)) == min(limit, 21)
    assert names_of(described(wire, prefix=f"{bucket}/a", after=f"{bucket}/a6")) == names[7:14]
    assert names_of(described(wire, prefix=f"{bucket}/a", after="")) == names[:14]
    assert set(names) < set(names_of(described(wire, prefix="")))


def test_fifty_thousand_streams_are_described_by_name_and_by_prefix(bucket: str) -> None:
    with running_server() as server, Wire(server.url, timeout_seconds=240) as wire:
        names = [f"{bucket}/{(number * 7919) % 50_000:05}" for number in range(50_000)]
        bulk_table(wire, table_of([row(name, b"x" * 10, create=True) for name in names]))
        by_name = table(ask(wire, "describe", streams=names))
        assert by_name["stream"].to_pylist() == sorted(names)
        assert by_name["tail"].unique().to_pylist() == [10]
        assert table(ask(wire, "describe", prefix=bucket)).equals(by_name)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"streams": "a/b"}',
        b'{"streams": [1]}',
        b'{"streams": ["a/b"], "prefix": ""}',
        b'{"streams": ["a/b"], "limit": 3}',
        b'{"streams": ["a/b"], "after": "a"}',
        b'{"prefix": "a", "limit": 0}',
        b'{"prefix": "a", "limit": 100001}',
        b'{"prefix": 7}',
        b'{"prefix": "a", "more": 1}',
        b'{"prefix": "a"',
        b'{"streams": ' + b"[" * 100_000,
        b'{"streams": ["\xff/b"]}',
        json.dumps({"streams": ["a"] * 100_001}).encode(),
    ],
    ids=lambda body: body[:40].decode(errors="replace"),
)
def test_a_request_that_makes_no_sense_is_refused(wire: Wire, body: bytes) -> None:
    refused(wire.ask("POST", "/__headwater/describe", JSON, body), 400, "bad_request")


# -- Where records begin ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def lake_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server("--flush-seconds", "100000", data=tmp_path_factory.mktemp("located")) as server:
        yield server


def located(wire: Wire, records: list[list[Any]]) -> list[int | None]:
    response = ask(wire, "locate", records=records)
    assert response.status == 200, response.body
    assert response.headers["content-type"] == "application/json"
    answer = json.loads(response.body)
    assert list(answer) == ["offsets"]
    offsets: list[int | None] = answer["offsets"]
    return offsets


def test_records_are_located_in_memory_and_in_the_lake(lake_server: RunningServer, bucket: str) -> None:
    with Wire(lake_server.url, timeout_seconds=240) as wire:
        made(wire, f"{bucket}/json", b'[1,22,"333"]', Content_Type="application/json")
        made(wire, f"{bucket}/text", b"one")
        wire.ask("POST", f"/v1/stream/{bucket}/text", TEXT, b"two")
        for _ in range(2):
            made(wire, f"{bucket}/fork", Stream_Forked_From=f"/v1/stream/{bucket}/text", Stream_Fork_Offset=f"{4:020}")
            wire.ask("POST", f"/v1/stream/{bucket}/fork", TEXT, b"own")
            names = [f"{bucket}/{name}" for name in ("json", "text", "fork")]
            lives = {row["stream"]: row["incarnation"] for row in described(wire, streams=names)}
            asked = [[name, lives[name], record] for name in names for record in range(5)]
            expected = [0, 1, 3, 8, None, 0, 3, 6, None, None, 0, 3, 4, 7, None]
            assert located(wire, asked) == expected
            assert wire.ask("POST", "/__headwater/flush").status == 200
            assert located(wire, asked) == expected
            wire.ask("DELETE", f"/v1/stream/{bucket}/fork")
        assert located(wire, asked)[10:] == [None] * 5


def test_records_of_another_life_or_before_the_beginning_are_nowhere(wire: Wire, bucket: str) -> None:
    made(wire, f"{bucket}/s", b"[1,2,3]", Content_Type="application/json")
    assert wire.ask("PUT", f"/{bucket}/s/snapshot/{2:020}", JSON, b"{}").status == 204
    [life] = [row["incarnation"] for row in described(wire, streams=[f"{bucket}/s"])]
    name = f"{bucket}/s"
    asked = [[name, life, 1], [name, life, 2], [name, life + 1, 2], [f"{bucket}/t", life, 0], [name, life, 3]]
    assert located(wire, asked) == [None, 2, None, None, 3]
    assert located(wire, []) == []


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b'{"records": {}}',
        b'{"records": [["a/b", 1]]}',
        b'{"records": [["a/b", 1, 2, 3]]}',
        b'{"records": [["a/b", 1, -2]]}',
        b'{"records": [["a/b", 1, 2], ["a/b", "1", 2]]}',
        b'{"records": [["a/b", 1, 9223372036854775808]]}',
        b'{"records": ' + b"[" * 100_000,
        b'{"records": [["\xff/b", 1, 2]]}',
        json.dumps({"records": [["a/b", 1, 2]] * 100_001}).encode(),
    ],
    ids=lambda body: body[:40].decode(errors="replace"),
)
def test_records_that_make_no_sense_are_refused(wire: Wire, body: bytes) -> None:
    refused(wire.ask("POST", "/__headwater/locate", JSON, body), 400, "bad_request")
