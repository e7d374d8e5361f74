"""The snapshot job: which streams are folded, from where, and what is published of them."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from headwater.client import Client, Fork, OffsetTrimmed
from headwater.spark.jobs import snapshot
from headwater.spark.jobs.folds import Reducer, fold, reducer
from headwater.spark.jobs.origin import Origin
from headwater.spark.jobs.report import JobFailed
from headwater.spark.jobs.snapshot import SnapshotConfig
from headwater.spark.jobs.snapshot_plan import WANTS, Want, choose, packed, split, wants_of
from headwater.spark.jobs.snapshot_store import SnapshotStore
from headwater.spark.jobs.snapshot_task import COLUMNS, Folder, fold_live, fold_sorted
from headwater.spark.link import Link, LinkSettings, Range
from headwater.testing import RunningServer, running_server

COUNT, NEWEST = reducer("counter"), reducer("last-write-wins", key="id")
DESCRIBED = pa.schema(
    [
        ("stream", pa.string()),
        ("incarnation", pa.int64()),
        ("start", pa.int64()),
        ("tail", pa.int64()),
        ("content_type", pa.string()),
        ("snapshot", pa.int64()),
    ]
)


def described(*rows: tuple[Any, ...]) -> pa.Table:
    return pa.table([list(column) for column in zip(*rows, strict=True)], DESCRIBED)


# -- Which streams -----------------------------------------------------------------------------------------------------


def test_streams_with_enough_new_history_are_chosen() -> None:
    page = described(
        ("team/new", 1, 0, 100, "application/json", None),
        ("team/short", 2, 0, 99, "application/json", None),
        ("team/folded", 3, 0, 500, "application/json; charset=utf-8", 400),
        ("team/fresh", 4, 200, 450, "application/json", 400),
        ("team/bytes", 5, 0, 500, "text/plain", None),
        ("team/a/b", 6, 0, 500, "application/json", None),
        ("team/streams", 7, 0, 500, "application/json", None),
        ("abc/x", 8, 0, 500, "application/json", None),
        ("_default/x", 9, 0, 500, "application/json", None),
    )
    chosen = choose([page, page.slice(0, 0)], 100)
    assert list(wants_of(chosen.wants)) == [
        Want("team/new", 1, 0, 100, False),
        Want("team/folded", 3, 400, 500, True),
        Want("_default/x", 9, 0, 500, False),
    ]
    assert (chosen.streams, chosen.unchanged, chosen.not_json, chosen.unaddressed) == (9, 2, 1, 3)
    assert (chosen.new_bytes, chosen.retained_bytes) == (700, 100 + 99 + 500 + 250 + 5 * 500)


def test_nothing_is_chosen_of_nothing() -> None:
    assert choose([], 1).wants.equals(WANTS.empty_table())
    assert packed(WANTS.empty_table(), 4) == []


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=60), st.integers(1, 8))
def test_bins_hold_every_stream_once_and_in_order(sizes: list[int], bins_min: int) -> None:
    rows = [(f"team/{number:03}", number, 0, size, False) for number, size in enumerate(sizes)]
    wants = pa.table([list(column) for column in zip(*rows, strict=True)], WANTS)
    bins = packed(wants, bins_min)
    assert pa.concat_tables(bins).equals(wants)
    assert all(len(one) for one in bins)


def test_streams_of_one_size_fill_bins_evenly() -> None:
    rows = [(f"team/{number:03}", number, 0, 1000, False) for number in range(100)]
    wants = pa.table([list(column) for column in zip(*rows, strict=True)], WANTS)
    assert [len(one) for one in packed(wants, 4)] == [25] * 4


def test_forks_whose_inherited_bytes_are_wanted_are_told_from_others() -> None:
    rows = [("team/plain", 1, 0, 9, False), ("team/fork", 2, 0, 9, False), ("team/beyond", 3, 5, 9, True)]
    wants = pa.table([list(column) for column in zip(*rows, strict=True)], WANTS)
    own, inherited = split(wants, {2: 4, 3: 5, 8: 9})
    assert [want.stream for want in wants_of(own)] == ["team/plain", "team/beyond"]
    assert [want.stream for want in wants_of(inherited)] == ["team/fork"]


# -- Folding -----------------------------------------------------------------------------------------------------------


class Bench:
    """A bucket of a real server, and what a task does with it."""

    def __init__(self, server: RunningServer, client: Client, bucket: str) -> None:
        self.settings = LinkSettings(server.url)
        self.name, self.bucket = bucket, client.bucket(bucket)
        self.bucket.create()
        with Link(self.settings) as link:
            self.journal = link.status()["journal"]

    def write(self, stream: str, *values: object) -> None:
        one = self.bucket.stream(stream)
        one.create("application/json")
        for value in values:
            one.append(json.dumps(value))

    def wants(self, min_bytes: int = 1) -> list[Want]:
        with Link(self.settings) as link:
            return list(wants_of(choose(link.describe_all(f"{self.name}/"), min_bytes).wants))

    def fold(self, wants: list[Want], by: str = "counter", key: str | None = None) -> Counter[str]:
        with Link(self.settings) as link, SnapshotStore(self.settings, self.journal) as snapshots:
            folder = Folder(reducer(by, key), snapshots)
            fold_live(wants, link, folder)
        return counted(folder)

    def snapshot(self, stream: str) -> tuple[int, Any]:
        found = self.bucket.stream(stream).snapshot()
        return int(found.offset), json.loads(found.data)


def counted(folder: Folder) -> Counter[str]:
    return Counter({one.what: one.number for one in folder.told() if one.detail is None})


@pytest.fixture
def bench(lake_server: RunningServer, bucket: str) -> Iterator[Bench]:
    with Client(f"{lake_server.url}/ds") as client:
        yield Bench(lake_server, client, bucket)


def test_each_stream_is_folded_on_from_its_snapshot(bench: Bench) -> None:
    bench.write("a", {"n": 1}, {"n": 2})
    bench.write("b", {"n": 10})
    told = bench.fold(bench.wants())
    assert (told["published"], told["messages"]) == (2, 3)
    assert bench.wants() == []
    bench.write("a", {"n": 4})
    tail = int(bench.bucket.stream("a").head().next_offset)
    assert bench.fold(bench.wants())["messages"] == 1
    assert bench.snapshot("a") == (tail, {"n": 7})
    assert bench.snapshot("b")[1] == {"n": 10}


def test_what_a_snapshot_covers_is_let_go_of(bench: Bench) -> None:
    bench.write("a", {"n": 1})
    bench.fold(bench.wants())
    with pytest.raises(OffsetTrimmed):
        bench.bucket.stream("a").read_json()


def test_many_streams_are_folded_some_at_a_time(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.spark.jobs.snapshot_task.SLICE_STREAMS", 3)
    for number in range(8):
        bench.write(f"s{number}", number, 100)
    assert bench.fold(bench.wants())["published"] == 8
    assert [bench.snapshot(f"s{number}")[1] for number in range(8)] == [number + 100 for number in range(8)]


def test_a_stream_that_cannot_be_folded_is_left_as_it_is(bench: Bench) -> None:
    bench.write("a", {"n": 1})
    bench.write("b", {"n": 1}, "no number", {"n": 2})
    bench.write("c", {"n": 3})
    with Link(bench.settings) as link, SnapshotStore(bench.settings, bench.journal) as snapshots:
        folder = Folder(COUNT, snapshots)
        fold_live(bench.wants(), link, folder)
    assert counted(folder)["published"] == 2
    assert counted(folder)["failed"] == 1
    [problem] = [one.detail for one in folder.told() if one.detail is not None]
    assert problem == f'{bench.name}/b: A message is neither a number nor an object: "no number".'
    assert bench.bucket.stream("b").read_json() == [{"n": 1}, "no number", {"n": 2}]


def test_a_snapshot_of_another_kind_is_not_replaced(bench: Bench) -> None:
    bench.write("a", {"n": 1})
    stream = bench.bucket.stream("a")
    stream.publish_snapshot(b"\x00\x01", offset=stream.head().next_offset)
    bench.write("a", {"n": 2})
    assert bench.fold(bench.wants())["failed"] == 1
    assert stream.snapshot().data == b"\x00\x01"


def test_a_stream_with_a_newer_snapshot_is_stale(bench: Bench) -> None:
    bench.write("a", {"n": 1})
    bench.write("b", {"n": 1})
    bench.fold(bench.wants())
    bench.write("a", {"n": 2})
    bench.write("b", {"n": 2})
    planned = bench.wants()
    bench.write("a", {"n": 3})
    bench.fold([want for want in bench.wants() if want.stream.endswith("a")])
    told = bench.fold(planned)
    assert (told["published"], told["gone"] + told["stale"]) == (1, 1)
    assert (bench.snapshot("a")[1], bench.snapshot("b")[1]) == ({"n": 6}, {"n": 3})


def test_a_stream_that_was_made_anew_is_not_given_the_snapshot_of_its_former_life(bench: Bench) -> None:
    bench.write("a", {"n": 1})
    bench.write("b", {"n": 1})
    bench.write("c", {"n": 1})
    planned = bench.wants()
    with SnapshotStore(bench.settings, bench.journal) as snapshots:
        folder = Folder(COUNT, snapshots)
        for want in planned:
            folder.begin(want)
            folder.add(want.start, want.tail, b'{"n": 1}')
            if want.stream.endswith("b"):
                bench.bucket.stream("b").delete()
                bench.write("b", {"m": 5})
            if want.stream.endswith("c"):
                bench.bucket.stream("c").delete()
        folder.end()
    assert counted(folder)["published"] == 1
    assert counted(folder)["gone"] == 2
    assert [want.stream for want in bench.wants()] == [f"{bench.name}/b"]


def test_streams_that_are_gone_do_not_keep_others_from_being_folded(bench: Bench) -> None:
    for name in "abcd":
        bench.write(name, {"n": 1})
    planned = bench.wants()
    bench.bucket.stream("b").delete()
    bench.bucket.stream("d").delete()
    told = bench.fold(planned)
    assert (told["published"], told["gone"]) == (2, 2)


def test_whatever_a_stream_is_called_its_snapshot_is_found(bench: Bench) -> None:
    names = [f"{bench.name}/a b?#%é&", f"_default/solo-{bench.name}"]
    bench.write("a b?#%é&", {"n": 1})
    with Client(f"{bench.settings.url}/v1/stream") as flat:
        flat.stream(f"solo-{bench.name}").create("application/json", body=b'{"n": 2}')
    with Link(bench.settings) as link:
        wants = list(wants_of(choose([link.describe(names)], 1).wants))
        assert bench.fold(wants)["published"] == 2
        assert all(offset is not None for offset in link.describe(names)["snapshot"].to_pylist())


# -- Rows that come sorted ---------------------------------------------------------------------------------------------


def rows_of(bench: Bench, wants: list[Want]) -> pa.Table:
    """The rows of streams with what is wanted beside them, as a join makes them."""
    ranges = [Range(want.stream, want.incarnation, want.start, want.tail) for want in wants]
    with Link(bench.settings) as link, link.scan(ranges, [*COLUMNS, "incarnation"]) as batches:
        table = pa.Table.from_batches(batches)
    by_life = {want.incarnation: want for want in wants}
    beside = [by_life[life] for life in table["incarnation"].to_pylist()]
    for name in ("start", "tail", "goes_on"):
        table = table.append_column(name, pa.array([getattr(want, name) for want in beside]))
    return table


def test_rows_are_folded_whatever_batches_they_come_in(bench: Bench) -> None:
    for number in range(5):
        bench.write(f"s{number}", *({"n": number, "m": other} for other in range(7)))
    wants = bench.wants()
    table = rows_of(bench, wants)
    with SnapshotStore(bench.settings, bench.journal) as snapshots:
        folder = Folder(COUNT, snapshots)
        fold_sorted(table.to_batches(max_chunksize=4), folder)
    assert counted(folder)["published"] == 5
    assert [bench.snapshot(f"s{number}")[1] for number in range(5)] == [{"n": 7 * n, "m": 21} for n in range(5)]


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_stream_with_a_row_missing_is_not_published(bench: Bench, missing: int) -> None:
    bench.write("a", {"n": 1}, {"n": 2}, {"n": 3})
    bench.write("b", {"n": 1})
    table = rows_of(bench, bench.wants())
    kept = pa.concat_tables([table.slice(0, missing), table.slice(missing + 1)])
    with SnapshotStore(bench.settings, bench.journal) as snapshots:
        folder = Folder(COUNT, snapshots)
        fold_sorted(kept.to_batches(), folder)
    assert counted(folder) == Counter(
        published=1, gone=1, messages=1, bytes_folded=len('{"n": 1}'), bytes_published=len('{"n":1}')
    )
    assert bench.bucket.stream("a").read_json() == [{"n": 1}, {"n": 2}, {"n": 3}]


# -- On Spark ----------------------------------------------------------------------------------------------------------


def streams_of_all_kinds(bench: Bench) -> dict[str, list[Any]]:
    """Streams, and what is in those that can be folded."""
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
        ({"startingTimestamp": "2026-01-01"}, "The option startingTimestamp has no place here"),
        ({"columns": "stream"}, "The option columns has no place here"),
        ({"starting": "1"}, "There is no option 'starting'"),
    ],
)
def test_what_a_snapshot_cannot_heed_is_refused(
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
