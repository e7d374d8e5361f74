"""A node with a lake: flush, cold reads, catalog, sweep and back-pressure, also while the store fails."""

import asyncio
from types import SimpleNamespace

import pytest

from headwater.lake.catalog import read_catalog
from headwater.node.lake import flusher
from headwater.node.lake.flusher import FlushFailed
from headwater.protocol.message_ends import pack
from headwater.protocol.refusals import Code, Refusal
from headwater.storage.store import StoreFailed
from headwater.streams.commands.lake import PublishSegment
from headwater.streams.commands.snapshots import PublishSnapshot, Snapshot
from headwater.streams.commands.streams import Create, Delete, Touch
from headwater.streams.hot import hot_cost
from headwater.streams.queries import Boundary, Read, Records
from headwater.streams.reading import Slice
from headwater.streams.replies import Anchored, Appended, Page, Reply

from ...doubles.faulty_store import Fault, FaultyStore
from .handed_in import hand_in
from .lakes import JSON, NEVER, ON_DEMAND, TEXT, Bench, bench, until

OFTEN = ON_DEMAND._replace(flush_check_seconds=0.02, flush_retry_seconds=0.05)


def test_a_flush_moves_everything_applied_so_far_and_reads_do_not_notice() -> None:
    async def run() -> None:
        async with bench() as node:
            await node.create("b/text", b"one ", b"two ", b"three")
            await node.ask(Create("b/json", JSON, payload=b'12{"a":1}', ends=pack((1, 2, 9))))
            position = node.state.position
            assert await node.lake.flush() == position
            assert node.state.hot_bytes == 0
            assert not node.state.warm
            assert node.catalog().flushed >= position
            assert await node.whole("b/text") == b"one two three"
            assert await node.whole("b/json") == b'[1,2,{"a":1}]'
            await node.append("b/text", b" four")
            assert await node.whole("b/text") == b"one two three four"
            page = await node.read(Read("b/json", 1, None, None, Records(1, None, 1)))
            assert isinstance(page, Page)
            assert page.body == b"2\n"
            assert await node.read(Boundary("b/json", 2)) == Anchored(node.state.streams["b/json"].incarnation, 2, 2, 9)
            inside = await node.read(Boundary("b/json", 5))
            assert isinstance(inside, Refusal)
            assert inside.code is Code.OFFSET_UNALIGNED

    asyncio.run(run())


def test_a_second_flush_continues_where_the_first_one_ended() -> None:
    async def run() -> None:
        async with bench(page_bytes=7) as node:
            await node.create("b/s")
            expected = b""
            for number in range(6):
                payload = b"message %d;" % number
                expected += payload
                await node.append("b/s", payload)
                await node.lake.flush()
            stream = node.state.streams["b/s"]
            assert len(stream.extents) == 6
            assert await node.whole("b/s") == expected

    asyncio.run(run())


def test_a_flush_is_cut_into_segments_by_bytes_and_every_stream_stays_whole() -> None:
    async def run() -> None:
        limits = NEVER._replace(segment_bytes=100)
        async with bench(flush=limits) as node:
            expected = {}
            for number in range(20):
                name = f"b/{number:02}"
                appends = [b"%d-%d;" % (number, index) * 5 for index in range(number)]
                await node.create(name, *appends)
                expected[name] = b"".join(appends)
            await node.lake.flush()
            assert len(node.segments()) > 10
            assert node.state.hot_bytes == 0
            for name, body in expected.items():
                assert await node.whole(name) == body

    asyncio.run(run())


def test_a_request_during_a_flush_is_served_by_the_next_one() -> None:
    async def run() -> None:
        async with bench() as node:
            await node.create("b/s", b"first")
            first = asyncio.create_task(node.lake.flush())
            await asyncio.sleep(0)
            await node.append("b/s", b"second")
            later = [asyncio.create_task(node.lake.flush()) for _ in range(3)]
            positions = await asyncio.gather(first, *later)
            assert positions[0] < min(positions[1:])
            assert node.state.hot_bytes == 0
            assert len(node.segments()) == 2

    asyncio.run(run())


def test_a_flush_begins_by_itself_when_enough_is_hot() -> None:
    async def run() -> None:
        async with bench(flush=NEVER._replace(bytes_max=hot_cost(1000, 2, 2))) as node:
            await node.create("b/s", b"x" * 999)
            await asyncio.sleep(0.1)
            assert node.state.hot_bytes == hot_cost(999, 1, 1)
            await node.append("b/s", b"x")
            await until(lambda: node.state.hot_bytes == 0)

    asyncio.run(run())


def test_age_makes_a_flush_due_only_if_enough_is_hot() -> None:
    async def run() -> None:
        async with bench(
            flush=NEVER._replace(interval_seconds=0.05, bytes_min=hot_cost(10, 2, 2)), intervals=OFTEN
        ) as node:
            await node.create("b/s", b"x" * 9)
            await asyncio.sleep(0.3)
            assert node.state.hot_bytes == hot_cost(9, 1, 1)
            await node.append("b/s", b"x")
            await until(lambda: node.state.hot_bytes == 0)

    asyncio.run(run())


def test_a_grown_journal_makes_a_flush_due_however_little_is_hot(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        async with bench(flush=NEVER._replace(journal_bytes=1000), intervals=OFTEN) as node:
            log = SimpleNamespace(size_bytes=999)
            monkeypatch.setattr(node.housekeeping.flusher, "_log", log)
            await node.create("b/s", b"x")
            await asyncio.sleep(0.2)
            assert node.state.hot_bytes == hot_cost(1, 1, 1)
            log.size_bytes = 1000
            await until(lambda: node.state.hot_bytes == 0)
            await node.append("b/s", b"y")
            await asyncio.sleep(0.2)
            assert node.state.hot_bytes == hot_cost(1, 1, 1), "it counts from the flush before"

    asyncio.run(run())


@pytest.mark.parametrize("fault", [Fault.FAIL_BEFORE, Fault.FAIL_AFTER, Fault.TRUNCATE, Fault.FLIP, Fault.LOSE])
def test_a_store_that_fails_or_lies_loses_nothing(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        async with bench() as node:
            await node.create("b/s", b"kept")
            node.store.plan["create"] = fault
            with pytest.raises(FlushFailed):
                await node.lake.flush()
            assert node.state.hot_bytes == hot_cost(4, 1, 1)
            assert await node.whole("b/s") == b"kept"
            node.store.heal()
            await node.lake.flush()
            assert node.state.hot_bytes == 0
            assert await node.whole("b/s") == b"kept"

    asyncio.run(run())


def test_rows_of_a_stream_that_was_deleted_during_a_flush_are_dead() -> None:
    async def run() -> None:
        async with bench() as node:
            await node.create("b/gone", b"gone")
            await node.create("b/stays", b"stays")
            old = node.state.streams["b/gone"].incarnation
            flush = asyncio.create_task(node.lake.flush())
            await asyncio.sleep(0)
            await node.ask(Delete("b/gone"))
            await node.create("b/gone", b"anew")
            await flush
            assert await node.whole("b/gone") == b"anew"
            assert await node.whole("b/stays") == b"stays"
            assert list(node.state.cold.tombstones) == [old]

    asyncio.run(run())


@pytest.mark.parametrize("flushes", [True, False])
def test_a_server_flushes_at_shutdown_if_configured(flushes: bool) -> None:
    async def run() -> None:
        async with bench(flush_at_stop=flushes) as node:
            await node.create("b/s", b"last words")
        assert (node.state.hot_bytes == 0) == flushes
        assert len(node.segments()) == flushes

    asyncio.run(run())


# -- Cold reads ------------------------------------------------------------------------------------------------------


def test_many_readers_of_one_stream_decode_it_once() -> None:
    async def run() -> None:
        async with bench() as node:
            await node.create("b/s", *[b"message %d" % number for number in range(50)])
            await node.lake.flush()
            node.shard.queries._pages._bytes_max = 0  # Pages themselves are not kept.
            before = node.lake.reads.reads
            assert len(set(await asyncio.gather(*[node.whole("b/s") for _ in range(1000)]))) == 1
            assert node.lake.reads.reads - before == 2  # A footer and a row group.

    asyncio.run(run())


def test_a_failing_store_fails_only_the_reads_that_need_it() -> None:
    async def run() -> None:
        async with bench() as node:
            await node.create("b/cold", b"cold")
            await node.lake.flush()
            await node.create("b/hot", b"hot")
            node.store.plan["read"] = Fault.FAIL_BEFORE
            refusal = await node.read(Read("b/cold"))
            assert isinstance(refusal, Refusal)
            assert refusal.code is Code.OVERLOADED
            assert await node.whole("b/hot") == b"hot"
            assert isinstance(await node.append("b/cold", b"er"), Appended)
            node.store.heal()
            assert await node.whole("b/cold") == b"colder"
            assert node.lake.reads.failures == 1

    asyncio.run(run())


@pytest.mark.parametrize("fault", [Fault.TRUNCATE, Fault.FLIP, Fault.FAIL_BEFORE, Fault.TIME_OUT])
def test_a_read_that_goes_wrong_once_is_tried_again(fault: Fault) -> None:
    async def run() -> None:
        async with bench() as node:
            await node.create("b/s", b"whole")
            await node.lake.flush()
            node.store.fail_next("read", fault)
            assert await node.whole("b/s") == b"whole"
            assert node.lake.reads.retries == 1

    asyncio.run(run())


def test_a_damaged_segment_is_never_served() -> None:
    async def run() -> None:
        async with bench() as node:
            await node.create("b/s", b"true")
            await node.lake.flush()
            node.store.plan["read"] = Fault.FLIP
            for _ in range(20):
                refusal = await node.read(Read("b/s"))
                assert isinstance(refusal, Refusal)
                assert refusal.code is Code.INTERNAL

    asyncio.run(run())


def test_a_stream_that_ends_while_its_bytes_are_fetched_is_gone() -> None:
    async def run() -> None:
        async with bench() as node:
            await node.create("b/s", b"bytes")
            await node.lake.flush()
            task = node.node.read(Read("b/s"))
            assert isinstance(task, asyncio.Task)
            await node.ask(Delete("b/s"))
            refusal = await task
            assert isinstance(refusal, Refusal)
            assert refusal.code is Code.STREAM_NOT_FOUND

    asyncio.run(run())


def test_a_bootstrap_reads_lake_and_memory_as_of_one_instant() -> None:
    async def run() -> None:
        async with bench() as node:
            await node.create("b/s", b"one", b"two")
            await node.lake.flush()
            await node.append("b/s", b"three")
            found = node.node.bootstrap("b/s", None)
            assert not isinstance(found, Refusal)
            await node.append("b/s", b"later")
            await node.ask(Delete("b/s"))
            slices: list[Slice] = [slice_ async for slice_ in found.slices()]
            body = b"".join(piece.payload[lo:hi] for slice_ in slices for piece, lo, hi in slice_.parts())
            assert body == b"onetwothree"
            assert not +node.lake.reads.in_use

    asyncio.run(run())


# -- Back-pressure ---------------------------------------------------------------------------------------------------


def test_appends_are_refused_while_the_lake_does_not_keep_up_and_accepted_again_when_it_does() -> None:
    async def run() -> None:
        async with bench(
            flush=NEVER._replace(bytes_max=hot_cost(100, 2, 2)), hot_bytes_max=hot_cost(300, 6, 6), intervals=OFTEN
        ) as node:
            node.store.plan["create"] = Fault.FAIL_BEFORE
            await node.create("b/s")
            replies: list[Reply] = []
            while not any(isinstance(reply, Refusal) for reply in replies):
                replies.append(await node.append("b/s", b"x" * 50))
            assert replies[-1] == Refusal(
                Code.OVERLOADED, "The lake cannot keep up with the writes; try again in a second."
            )
            assert len(await node.whole("b/s")) == 50 * (len(replies) - 1)
            node.store.heal()
            await until(lambda: node.state.hot_bytes == 0)
            assert isinstance(await node.append("b/s", b"y"), Appended)

    asyncio.run(run())


# -- Catalog and sweep -----------------------------------------------------------------------------------------------


def test_a_catalog_covers_deletes_and_trims_too() -> None:
    async def run() -> None:
        async with bench() as node:
            gone = await node.create("b/gone", b"gone")
            kept = await node.create("b/kept", b"one", b"two")
            await node.lake.flush()
            await node.ask(Delete("b/gone"))
            snapshot = Snapshot(3, 1, "blob", TEXT, 1, "digest")
            await node.ask(PublishSnapshot("b/kept", kept.incarnation, snapshot, trims=True))
            await node.housekeeping.cataloger.write()
            catalog = node.catalog()
            assert catalog.position == node.state.position
            assert {name: tombstone.below for name, tombstone in node.state.cold.tombstones.items()} == {
                gone.incarnation: 2**63 - 1,
                kept.incarnation: 3,
            }
            assert [listed.live_rows for listed in catalog.segments] == [1]

    asyncio.run(run())


def test_no_catalog_says_that_less_is_in_the_lake_than_one_before_it() -> None:
    async def run() -> None:
        async with bench() as node:
            await node.create("b/s", b"one")
            await node.create("b/gone", b"gone")
            await node.lake.flush()
            await node.ask(Touch("b/none", 1, 0))
            reached = await node.lake.flush()
            assert node.catalog().flushed == reached > node.state.cold.flushed
            # From here on something is hot, and the state itself knows only the first flush.
            await node.append("b/s", b"two")
            await node.ask(Delete("b/gone"))
            await node.housekeeping.cataloger.write()
            assert (node.catalog().position, node.catalog().flushed) == (node.state.position, reached)
        async with bench(node.store, node.state) as again:
            await again.create("b/t", b"x")
            await again.ask(Delete("b/t"))
            await again.housekeeping.cataloger.write()
            assert again.catalog().flushed >= reached

    asyncio.run(run())


def test_rows_on_their_way_to_the_lake_are_not_said_to_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        async with bench() as node:
            await node.create("b/s", b"one")
            seen: list[bool] = []
            publish = flusher.Flusher._publish

            async def delete_first(self: flusher.Flusher, command: PublishSegment) -> None:
                # Nothing is hot any more, but the rows of the ended life are not published yet.
                await node.ask(Delete("b/s"))
                await node.housekeeping.cataloger.write()
                catalog = read_catalog(node.store.store)
                seen.append(catalog is not None and catalog.flushed >= command.publication.segment.last_position)
                await publish(self, command)

            monkeypatch.setattr(flusher.Flusher, "_publish", delete_first)
            position = await node.lake.flush()
            assert seen == [False]
            assert node.catalog().flushed >= position

    asyncio.run(run())


def test_orphans_go_when_their_deadline_is_long_past(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        async with bench(history_seconds=0.001) as node:
            await node.create("b/s", b"x")
            monkeypatch.setattr(flusher, "PUBLISH_DEADLINE_US", 0)
            node.store.fail_next("create", Fault.FAIL_AFTER)
            with pytest.raises(FlushFailed):
                await node.lake.flush()
            assert len(node.segments()) == 1
            monkeypatch.setattr(flusher, "PUBLISH_DEADLINE_US", 60_000_000)
            await node.lake.flush()
            assert len(node.segments()) == 2
            await asyncio.sleep(0.01)
            await node.housekeeping.sweeper.sweep_orphans()
            assert len(node.segments()) == 1
            assert await node.whole("b/s") == b"x"

    asyncio.run(run())


def test_an_upload_in_progress_is_not_an_orphan() -> None:
    async def run() -> None:
        async with bench(history_seconds=0.001) as node:
            await node.create("b/s", b"x")
            node.store.fail_next("create", Fault.FAIL_AFTER)
            with pytest.raises(FlushFailed):
                await node.lake.flush()
            await node.housekeeping.sweeper.sweep_orphans()
            assert len(node.segments()) == 1

    asyncio.run(run())


async def swapped(node: Bench) -> set[str]:
    """Replace two segments that a catalog lists, and return their keys."""
    for payload in (b"one", b"two"):
        await node.create("b/s", payload)
        await node.lake.flush()
    old = {listed.key for listed in node.catalog().segments}
    assert len(old) == 2
    assert isinstance(await node.lake.swaps.swap(hand_in(node.state, node.store, node.node.now())), int)
    return old


def test_a_replaced_segment_stays_while_the_newest_catalog_lists_it() -> None:
    async def run() -> None:
        async with bench(history_seconds=0.0) as node:
            old = await swapped(node)
            await node.housekeeping.sweeper.sweep_retired()
            assert old <= set(node.segments())
            await node.housekeeping.cataloger.write()
            await node.housekeeping.sweeper.sweep_retired()
            assert set(node.segments()) == {listed.key for listed in node.catalog().segments}
            assert node.state.cold.retired == {}

    asyncio.run(run())


def test_a_replaced_segment_stays_while_no_catalog_can_be_written() -> None:
    async def run() -> None:
        async with bench(history_seconds=0.0) as node:
            old = await swapped(node)
            node.store.plan["create"] = Fault.FAIL_BEFORE
            with pytest.raises(StoreFailed):
                await node.housekeeping.cataloger.write()
            await node.housekeeping.sweeper.sweep_retired()
            assert old <= set(node.segments())
            node.store.heal()
            await node.housekeeping.cataloger.write()
            await node.housekeeping.sweeper.sweep_retired()
            assert not old & set(node.segments())

    asyncio.run(run())


def test_after_a_restart_a_replaced_segment_stays_as_long_as_a_snapshot_with_it() -> None:
    async def run() -> None:
        async with bench() as node:
            old, listed = await swapped(node), node.catalog().segments
        assert len(node.state.cold.retired) == 2
        async with bench(node.store, node.state) as again:
            await again.housekeeping.sweeper.sweep_retired()
            assert old <= set(again.segments())
            await again.housekeeping.cataloger.write()
            assert again.catalog().segments != listed
            # A reader of an earlier snapshot may still read what it lists.
            await again.housekeeping.sweeper.sweep_retired()
            assert old <= set(again.segments())
        async with bench(node.store, node.state, history_seconds=0.0) as at_last:
            await at_last.housekeeping.cataloger.write()
            await at_last.housekeeping.cataloger.tidy()
            await at_last.housekeeping.sweeper.sweep_retired()
            assert not old & set(at_last.segments())

    asyncio.run(run())


def test_a_restart_finds_its_lake_again() -> None:
    store = FaultyStore()

    async def run() -> None:
        async with bench(store) as first:
            await first.create("b/s", b"before")
            await first.lake.flush()
        async with bench(store, first.state) as second:
            assert await second.whole("b/s") == b"before"
            await second.append("b/s", b" and after")
            await second.lake.flush()
            assert await second.whole("b/s") == b"before and after"

    asyncio.run(run())


def test_half_written_commits_go_and_the_newest_whole_one_stays() -> None:
    async def run() -> None:
        store = FaultyStore()
        async with bench(store) as node:
            await node.create("b/s", b"x")
            await node.lake.flush()
            good = node.catalog().position
            await node.append("b/s", b"y")
            store.fail_next("create", Fault.FAIL_BEFORE, ".json")
            with pytest.raises((FlushFailed, StoreFailed)):
                await node.lake.flush()
            assert node.catalog().position == good
        async with bench(store, node.state) as again:
            await until(lambda: again.catalog().position > good)
            await again.housekeeping.cataloger.tidy()
            lists = [item.key for item in store.store.items("messages/") if item.key.endswith("-list.avro")]
            assert len(lists) == len(again.housekeeping.cataloger.tables.snapshots) == 2

    asyncio.run(run())
