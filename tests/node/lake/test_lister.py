"""The table `streams`: a row for each living stream, written at intervals and on request, without holding the loop."""

import asyncio
from typing import Any

import pytest

from headwater.lake.iceberg.streams import STREAMS, read_streams
from headwater.node.lake import lister
from headwater.protocol.lifetimes import Lifetime
from headwater.storage.store import Store, StoreFailed
from headwater.streams.commands.buckets import OpenBucket
from headwater.streams.commands.forks import Ancestry
from headwater.streams.commands.streams import Append, Create, Delete
from headwater.streams.forking import ForkRequest
from headwater.streams.replies import Reply

from ...doubles.faulty_store import POSSIBLE, Fault, FaultyStore
from .lakes import JSON, ON_DEMAND, TEXT, Bench, bench, until

Row = dict[str, Any]


def rows_in(store: FaultyStore) -> list[Row]:
    """The rows of the table, in its order."""
    found = read_streams(store.store)
    assert found is not None
    return [row for table in found[1] for row in table.to_pylist()]


def expected(running: Bench) -> list[Row]:
    """The rows that the table must have."""
    rows = []
    for name, stream in running.state.streams.items():
        bucket, _, rest = name.partition("/")
        if not stream.deleted:
            rows.append((bucket, rest, stream.incarnation, stream.tail, stream.closed))
    return [dict(zip(("bucket", "stream", "incarnation", "tail", "closed"), row, strict=True)) for row in sorted(rows)]


def comparable(rows: list[Row]) -> list[Row]:
    return [{name: row[name] for name in ("bucket", "stream", "incarnation", "tail", "closed")} for row in rows]


def test_a_flush_of_all_tables_writes_a_row_for_each_stream() -> None:
    async def run() -> None:
        async with bench() as running:
            await running.ask(Create("team/notes", JSON, attrs=b'{"owner":"ann"}'))
            await running.ask(Append("team/notes", b"12", None, JSON))
            await running.create("team-a/x", b"abc", b"de")
            await running.create("team/gone", b"x")
            await running.ask(Delete("team/gone"))
            reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
            running.node.fork(
                ForkRequest("team/fork", Ancestry("team-a/x", 3, 0, None, None), True, b""), reply.set_result
            )
            await reply
            await running.lake.flush()
            assert read_streams(running.store.store) is None
            await running.lake.flush(all_tables=True)
            rows = rows_in(running.store)
            assert comparable(rows) == expected(running)
            assert [(row["bucket"], row["stream"]) for row in rows] == [
                ("team", "fork"),
                ("team", "notes"),
                ("team-a", "x"),
            ]
            fork, notes, x = rows
            assert (fork["forked_from"], fork["tail"], fork["records"], fork["closed"]) == ("team-a/x", 3, 1, True)
            assert (notes["content_type"], notes["attributes"], notes["forked_from"]) == (JSON, '{"owner":"ann"}', None)
            assert (x["start"], x["tail"], x["records"], x["content_type"]) == (0, 5, 2, TEXT)
            stream = running.state.streams["team-a/x"]
            assert (x["created_at"].timestamp(), x["written_at"].timestamp()) == pytest.approx(
                (stream.created_at / 1e6, stream.written_at / 1e6)
            )

    asyncio.run(run())


def test_an_expired_stream_is_not_listed_even_before_it_is_removed() -> None:
    async def run() -> None:
        async with bench() as running:
            await running.ask(Create("team/short", TEXT, Lifetime(ttl_seconds=1)))
            await running.create("team/long")
            now = running.housekeeping.lister._now
            running.housekeeping.lister._now = lambda: now() + 2_000_000
            await running.lake.flush(all_tables=True)
            assert [row["stream"] for row in rows_in(running.store)] == ["long"]

    asyncio.run(run())


def test_the_table_is_rewritten_only_if_something_has_changed() -> None:
    async def run() -> None:
        async with bench() as running:
            await running.create("team/x", b"abc")
            await running.lake.flush(all_tables=True)
            table = read_streams(running.store.store)
            await running.housekeeping.lister.write()
            await running.ask(OpenBucket("empty-bucket"))
            await running.lake.flush(all_tables=True)
            again = read_streams(running.store.store)
            assert table is not None and again is not None and again[0] == table[0]
            await running.append("team/x", b"d")
            await running.lake.flush(all_tables=True)
            [row] = rows_in(running.store)
            assert row["tail"] == 4

    asyncio.run(run())


def test_it_is_written_by_itself_when_its_time_has_come() -> None:
    async def run() -> None:
        quick = ON_DEMAND._replace(catalog_check_seconds=0.01, streams_write_seconds=0.01)
        async with bench(intervals=quick) as running:
            await running.create("team/x", b"abc")
            await until(lambda: read_streams(running.store.store) is not None)
            await running.append("team/x", b"d")
            await until(lambda: rows_in(running.store)[0]["tail"] == 4)

    asyncio.run(run())


def test_it_is_left_alone_for_a_while_after_it_was_written_even_by_another_process() -> None:
    async def run() -> None:
        store = FaultyStore()
        slow = ON_DEMAND._replace(catalog_check_seconds=0.01, streams_write_seconds=3600.0)
        async with bench(store, intervals=slow) as running:
            await running.create("team/x", b"abc")
            await running.lake.flush(all_tables=True)
            state = running.state
        async with bench(store, state, intervals=slow) as running:
            await running.append("team/x", b"d")
            await until(lambda: running.housekeeping.lister._last_seconds is not None)
            await asyncio.sleep(0.1)
            assert [row["tail"] for row in rows_in(store)] == [3]
            await running.lake.flush(all_tables=True)
            assert [row["tail"] for row in rows_in(store)] == [4]

    asyncio.run(run())


def test_a_large_table_has_several_files_and_is_gathered_in_many_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        monkeypatch.setattr("headwater.lake.iceberg.streams.FILE_ROWS", 7)
        monkeypatch.setattr(lister, "STREAMS_PER_TURN", 3)
        monkeypatch.setattr(lister, "TURNS_PER_BATCH", 2)
        async with bench() as running:
            for number in range(40):
                await running.create(f"team-{number % 5}/s{number:03}", b"x" * (number + 1))
            await running.lake.flush(all_tables=True)
            assert comparable(rows_in(running.store)) == expected(running)
            files = [item.key for item in running.store.store.items("streams/data/")]
            assert len(files) == 6
            # Only the files with changed rows are stored again.
            await running.append("team-4/s039", b"more")
            await running.lake.flush(all_tables=True)
            assert comparable(rows_in(running.store)) == expected(running)
            assert len(list(running.store.store.items("streams/data/"))) == 7

    asyncio.run(run())


def test_streams_that_come_and_go_during_a_walk_do_not_disturb_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        monkeypatch.setattr(lister, "STREAMS_PER_TURN", 2)
        async with bench() as running:
            for number in range(30):
                await running.create(f"team/s{number:02}")
            writing = asyncio.create_task(running.housekeeping.lister.write())
            for number in range(0, 30, 2):
                await running.ask(Delete(f"team/s{number:02}"))
                await running.create(f"more/s{number:02}")
            await writing
            names = [row["stream"] for row in rows_in(running.store) if row["bucket"] == "team"]
            assert {f"s{number:02}" for number in range(1, 30, 2)} <= set(names)
            assert names == sorted(set(names))
            await running.housekeeping.lister.write()
            assert comparable(rows_in(running.store)) == expected(running)

    asyncio.run(run())


def test_snapshots_expire_so_that_deleted_names_are_gone() -> None:
    async def run() -> None:
        async with bench(history_seconds=0.0) as running:
            await running.create("team/secret-name")
            await running.create("team/other")
            await running.lake.flush(all_tables=True)
            await running.ask(Delete("team/secret-name"))
            await running.lake.flush(all_tables=True)
            await running.housekeeping.lister.tidy()
            store: Store = running.store.store
            assert all(b"secret-name" not in store.read(item.key) for item in store.items("streams/"))
            assert len(list(store.items("streams/data/"))) == 1

    asyncio.run(run())


@pytest.mark.parametrize("fault", POSSIBLE["create"])
def test_the_table_is_complete_again_after_the_store_has_failed(fault: Fault) -> None:
    async def run() -> None:
        async with bench() as running:
            await running.create("team/x", b"abc")
            await running.lake.flush(all_tables=True)
            await running.append("team/x", b"d")
            await running.lake.flush()
            running.store.plan["create"] = fault
            with pytest.raises(StoreFailed):
                await running.housekeeping.lister.write()
            running.store.heal()
            await running.housekeeping.lister.write()
            assert [row["tail"] for row in rows_in(running.store)] == [4]

    asyncio.run(run())


def test_the_columns_have_the_types_of_the_documentation() -> None:
    assert STREAMS.names[:3] == ["bucket", "stream", "incarnation"]
    assert [field.name for field in STREAMS if field.nullable] == ["forked_from", "attributes"]
