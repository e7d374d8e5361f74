"""The snapshot job on Spark: from the lake, from the server, and with the user's functions."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headwater.client import Client, Fork
from headwater.spark.jobs.origin import Origin
from headwater.spark.jobs.report import JobFailed
from headwater.spark.jobs.snapshot import job as snapshot
from headwater.spark.jobs.snapshot.folds import Reducer, fold, reducer
from headwater.spark.jobs.snapshot.job import SnapshotConfig
from headwater.testing import RunningServer, running_server

from .folding import Bench

COUNT, NEWEST = reducer("counter"), reducer("last-write-wins", key="id")


@pytest.fixture
def bench(lake_server: RunningServer, bucket: str) -> Iterator[Bench]:
    with Client(f"{lake_server.url}/ds") as client:
        yield Bench(lake_server, client, bucket)


def streams_of_all_kinds(bench: Bench) -> dict[str, list[Any]]:
    """Create streams of all kinds; return the messages of those that can be folded."""
    for number in range(6):
        bench.write(f"s{number}", *({"id": other % 3, "n": number, "text": "é" * other} for other in range(number + 1)))
    bench.bucket.stream("s1").delete()
    bench.write("s1", {"id": "again", "n": 1})
    bench.bucket.stream("fork").create(fork=Fork(bench.bucket.stream("s5").url))
    bench.bucket.stream("fork").append(b'{"id": 7, "n": 70}')
    bench.bucket.stream("bytes").create("text/plain", body=b"no JSON")
    with Client(f"{bench.settings.url}/v1/stream") as flat:
        flat.stream(f"{bench.name}/deep/er").create("application/json", body=b'{"n": 1}')
    names = ["fork", *(f"s{number}" for number in range(6))]
    return {name: bench.bucket.stream(name).read_json() for name in names}


def run_on(spark: SparkSession, bench: Bench, by: Reducer, **options: str) -> dict[str, Any]:
    report = snapshot.run(spark, SnapshotConfig(Origin(bench.settings.url, bench.name, options=options), by))
    assert report.ok, report.problems
    return dict(report.facts)


@pytest.mark.parametrize("via", ["lake", "live"])
def test_a_bucket_is_folded_on_spark(spark: SparkSession, bench: Bench, via: str) -> None:
    held = streams_of_all_kinds(bench)
    facts = run_on(spark, bench, NEWEST, via=via)
    assert facts == {
        "streams": 9,
        "published": 7,
        "unchanged": 0,
        "not_json": 1,
        "unaddressed": 1,
        "stale": 0,
        "gone": 0,
        "failed": 0,
        "messages": sum(map(len, held.values())),
        "bytes_folded": facts["bytes_folded"],
        "bytes_published": facts["bytes_published"],
        "via": via,
    }
    for name, messages in held.items():
        assert bench.snapshot(name)[1] == json.loads(
            fold(NEWEST, None, *(json.dumps(one).encode() for one in messages))
        )
    assert run_on(spark, bench, NEWEST, via=via)["published"] == 0


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"startingTimestamp": "2026-01-01"}, "remove the option startingTimestamp"),
        ({"columns": "stream"}, "remove the option columns"),
        ({"starting": "1"}, "'starting'"),
    ],
)
def test_options_that_do_not_apply_to_snapshots_are_refused(
    spark: SparkSession, bench: Bench, options: dict[str, str], problem: str
) -> None:
    with pytest.raises(JobFailed, match=problem):
        run_on(spark, bench, COUNT, **options)


def test_a_server_without_a_lake_is_folded_too(spark: SparkSession, bucket: str) -> None:
    with running_server() as server, Client(f"{server.url}/ds") as client:
        bench = Bench(server, client, bucket)
        bench.write("a", {"n": 1}, {"n": 2})
        assert run_on(spark, bench, COUNT)["published"] == 1
        assert bench.snapshot("a")[1] == {"n": 3}
        with pytest.raises(JobFailed, match="cannot be read from here"):
            run_on(spark, bench, COUNT, via="lake")


def test_a_function_of_the_user_reaches_the_executors(
    spark: SparkSession, bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "STEP = 2\n\n\ndef count(state, message):\n    return (state or 0) + STEP\n"
    (tmp_path / "folds_of_mine.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    mine = reducer("folds_of_mine:count")
    bench.write("a", "x", "y")
    bench.write("b", "x")
    assert run_on(spark, bench, mine, via="live")["published"] == 2
    bench.write("b", "z")
    assert run_on(spark, bench, mine, via="live")["published"] == 1
    assert (bench.snapshot("a")[1], bench.snapshot("b")[1]) == (4, 4)
