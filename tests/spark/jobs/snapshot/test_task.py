"""Folding as a task does it, against a real server: what is published, and what is skipped."""

from collections import Counter
from collections.abc import Iterator

import pyarrow as pa
import pytest

from headwater.client import Client, OffsetTrimmed, ScanRange
from headwater.protocol.content_types import is_json
from headwater.spark.jobs.snapshot.folds import reducer
from headwater.spark.jobs.snapshot.plan import Pending, choose, pending_rows
from headwater.spark.jobs.snapshot.task import COLUMNS, Folder, SnapshotStore, fold_live, fold_sorted
from headwater.spark.link import Link
from headwater.testing import RunningServer

from .folding import Bench, counted

COUNT = reducer("counter")


@pytest.fixture
def bench(lake_server: RunningServer, bucket: str) -> Iterator[Bench]:
    with Client(f"{lake_server.url}/ds") as client:
        yield Bench(lake_server, client, bucket)


def test_each_stream_is_folded_from_its_last_snapshot(bench: Bench) -> None:
    bench.write("a", {"n": 1}, {"n": 2})
    bench.write("b", {"n": 10})
    counts = bench.fold(bench.pending())
    assert (counts["published"], counts["messages"]) == (2, 3)
    assert bench.pending() == []
    bench.write("a", {"n": 4})
    tail = int(bench.bucket.stream("a").head().next_offset)
    assert bench.fold(bench.pending())["messages"] == 1
    assert bench.snapshot("a") == (tail, {"n": 7})
    assert bench.snapshot("b")[1] == {"n": 10}


def test_messages_that_a_snapshot_covers_are_trimmed(bench: Bench) -> None:
    bench.write("a", {"n": 1})
    bench.fold(bench.pending())
    with pytest.raises(OffsetTrimmed):
        bench.bucket.stream("a").read_json()


def test_many_streams_are_folded_some_at_a_time(bench: Bench) -> None:
    for number in range(8):
        bench.write(f"s{number}", number, 100)
    assert bench.fold(bench.pending(), slice_streams=3)["published"] == 8
    assert [bench.snapshot(f"s{number}")[1] for number in range(8)] == [number + 100 for number in range(8)]


def test_a_stream_that_cannot_be_folded_is_not_changed(bench: Bench) -> None:
    bench.write("a", {"n": 1})
    bench.write("b", {"n": 1}, "no number", {"n": 2})
    bench.write("c", {"n": 3})
    with Link(bench.settings) as link:
        snapshots = SnapshotStore(link, bench.log_id)
        folder = Folder(COUNT, snapshots)
        fold_live(bench.pending(), link, folder)
    assert counted(folder)["published"] == 2
    assert counted(folder)["failed"] == 1
    [problem] = [one.detail for one in folder.results() if one.detail is not None]
    assert problem == f'{bench.name}/b: A message is neither a number nor an object: "no number".'
    assert bench.bucket.stream("b").read_json() == [{"n": 1}, "no number", {"n": 2}]


@pytest.mark.parametrize(
    ("by", "key"),
    [("counter", None), ("last-write-wins", "n"), ("merge-patch", None), ("state-protocol", None), ("math:pow", None)],
)
def test_a_message_with_a_number_of_any_size_spoils_only_its_own_stream(bench: Bench, by: str, key: str | None) -> None:
    good = {"n": 1, "type": "t", "key": "k", "value": 1, "headers": {"operation": "insert"}}
    bench.write("a", good)
    for name, digits in (("b", 400), ("c", 5000)):
        bench.write(name, good)
        bench.bucket.stream(name).append(b'{"n": %b}' % (b"9" * digits))
    bench.write("d", good)
    counts = bench.fold(bench.pending(), by, key)
    assert counts["published"] + counts["failed"] == 4
    if by != "math:pow":
        assert bench.snapshot("a")[1] == bench.snapshot("d")[1]


def test_a_snapshot_of_another_kind_is_not_replaced(bench: Bench) -> None:
    bench.write("a", {"n": 1})
    stream = bench.bucket.stream("a")
    stream.publish_snapshot(b"\x00\x01", offset=stream.head().next_offset)
    bench.write("a", {"n": 2})
    assert bench.fold(bench.pending())["failed"] == 1
    assert stream.snapshot().data == b"\x00\x01"


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (("counter",), ("merge-patch",)),
        (("merge-patch",), ("counter",)),
        (("last-write-wins", "id"), ("last-write-wins", "n")),
        (("state-protocol",), ("operator:or_",)),
    ],
)
def test_a_fold_does_not_start_from_the_snapshot_of_another_reducer(
    bench: Bench, first: tuple[str, ...], then: tuple[str, ...]
) -> None:
    message = {"id": 1, "n": 2, "type": "t", "key": "k", "value": 1, "headers": {"operation": "insert"}}
    bench.write("a", message)
    assert bench.fold(bench.pending(), *first)["published"] == 1
    bench.write("a", message)
    before = bench.bucket.stream("a").snapshot()
    assert before.content_type == reducer(*first).content_type
    with Link(bench.settings) as link:
        snapshots = SnapshotStore(link, bench.log_id)
        folder = Folder(reducer(*then), snapshots)
        fold_live(bench.pending(), link, folder)
    assert counted(folder) == Counter(failed=1)
    [problem] = [one.detail for one in folder.results() if one.detail is not None]
    assert problem == (
        f"{bench.name}/a: Its snapshot has the content type {before.content_type!r}, not "
        f"{reducer(*then).content_type!r}; use the reducer that made it, or publish a snapshot of this reducer first."
    )
    assert bench.bucket.stream("a").snapshot() == before
    assert bench.fold(bench.pending(), *first)["published"] == 1


def test_a_fold_starts_from_a_manual_snapshot_that_names_the_reducer(bench: Bench) -> None:
    bench.write("a", {"n": 1})
    stream = bench.bucket.stream("a")
    stream.publish_snapshot(b'{"n": 10}', offset=stream.head().next_offset, content_type="application/json")
    bench.write("a", {"n": 2})
    assert bench.fold(bench.pending()) == Counter(failed=1)
    named = 'Application/JSON;charset=utf-8; Reducer="counter"'
    stream.publish_snapshot(b'{"n": 12}', offset=stream.head().next_offset, content_type=named)
    bench.write("a", {"n": 3})
    assert bench.fold(bench.pending())["published"] == 1
    assert bench.snapshot("a")[1] == {"n": 15}


def test_a_bootstrap_returns_json_that_names_the_reducer(bench: Bench) -> None:
    bench.write("a", {"n": 1})
    bench.fold(bench.pending())
    bench.write("a", {"n": 2})
    with bench.bucket.stream("a").bootstrap() as joined:
        found = joined.snapshot
        assert found is not None and is_json(found.content_type)
        assert (found.content_type, found.data) == ("application/json; reducer=counter", b'{"n":1}')


def test_a_stream_with_a_newer_snapshot_is_stale(bench: Bench) -> None:
    bench.write("a", {"n": 1})
    bench.write("b", {"n": 1})
    bench.fold(bench.pending())
    bench.write("a", {"n": 2})
    bench.write("b", {"n": 2})
    planned = bench.pending()
    bench.write("a", {"n": 3})
    bench.fold([one for one in bench.pending() if one.stream.endswith("a")])
    counts = bench.fold(planned)
    assert (counts["published"], counts["gone"] + counts["stale"]) == (1, 1)
    assert (bench.snapshot("a")[1], bench.snapshot("b")[1]) == ({"n": 6}, {"n": 3})


def test_a_recreated_stream_does_not_get_the_snapshot_of_its_former_life(bench: Bench) -> None:
    bench.write("a", {"n": 1})
    bench.write("b", {"n": 1})
    bench.write("c", {"n": 1})
    planned = bench.pending()
    with Link(bench.settings) as link:
        snapshots = SnapshotStore(link, bench.log_id)
        folder = Folder(COUNT, snapshots)
        for one in planned:
            folder.begin(one)
            folder.add(one.start, one.tail, b'{"n": 1}')
            if one.stream.endswith("b"):
                bench.bucket.stream("b").delete()
                bench.write("b", {"m": 5})
            if one.stream.endswith("c"):
                bench.bucket.stream("c").delete()
        folder.end()
    assert counted(folder)["published"] == 1
    assert counted(folder)["gone"] == 2
    assert [one.stream for one in bench.pending()] == [f"{bench.name}/b"]


def test_deleted_streams_do_not_prevent_others_from_being_folded(bench: Bench) -> None:
    for name in "abcd":
        bench.write(name, {"n": 1})
    planned = bench.pending()
    bench.bucket.stream("b").delete()
    bench.bucket.stream("d").delete()
    counts = bench.fold(planned)
    assert (counts["published"], counts["gone"]) == (2, 2)


def test_the_snapshot_of_a_stream_with_any_name_is_found(bench: Bench) -> None:
    names = [f"{bench.name}/a b?#%é&", f"_default/solo-{bench.name}"]
    bench.write("a b?#%é&", {"n": 1})
    with Client(f"{bench.settings.url}/v1/stream") as flat:
        flat.stream(f"solo-{bench.name}").create("application/json", body=b'{"n": 2}')
    with Link(bench.settings) as link:
        pending = list(pending_rows(choose([link.describe(names)], 1).pending))
        assert bench.fold(pending)["published"] == 2
        assert all(offset is not None for offset in link.describe(names)["snapshot"].to_pylist())


# -- Sorted rows -------------------------------------------------------------------------------------------------------


def rows_of(bench: Bench, pending: list[Pending]) -> pa.Table:
    """The rows of streams, joined with the columns of `Pending`."""
    ranges = [ScanRange(one.stream, one.incarnation, one.start, one.tail) for one in pending]
    with Link(bench.settings) as link, link.scan(ranges, [*COLUMNS, "incarnation"]) as batches:
        table = pa.Table.from_batches(batches)
    by_life = {one.incarnation: one for one in pending}
    beside = [by_life[life] for life in table["incarnation"].to_pylist()]
    for name in ("start", "tail", "resumes"):
        table = table.append_column(name, pa.array([getattr(one, name) for one in beside]))
    return table


def test_rows_may_be_split_into_any_batches(bench: Bench) -> None:
    for number in range(5):
        bench.write(f"s{number}", *({"n": number, "m": other} for other in range(7)))
    pending = bench.pending()
    table = rows_of(bench, pending)
    with Link(bench.settings) as link:
        snapshots = SnapshotStore(link, bench.log_id)
        folder = Folder(COUNT, snapshots)
        fold_sorted(table.to_batches(max_chunksize=4), folder)
    assert counted(folder)["published"] == 5
    assert [bench.snapshot(f"s{number}")[1] for number in range(5)] == [{"n": 7 * n, "m": 21} for n in range(5)]


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_stream_with_a_row_missing_is_not_published(bench: Bench, missing: int) -> None:
    bench.write("a", {"n": 1}, {"n": 2}, {"n": 3})
    bench.write("b", {"n": 1})
    table = rows_of(bench, bench.pending())
    kept = pa.concat_tables([table.slice(0, missing), table.slice(missing + 1)])
    with Link(bench.settings) as link:
        snapshots = SnapshotStore(link, bench.log_id)
        folder = Folder(COUNT, snapshots)
        fold_sorted(kept.to_batches(), folder)
    assert counted(folder) == Counter(
        published=1, gone=1, messages=1, bytes_folded=len('{"n": 1}'), bytes_published=len('{"n":1}')
    )
    assert bench.bucket.stream("a").read_json() == [{"n": 1}, {"n": 2}, {"n": 3}]
