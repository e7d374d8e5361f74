"""The cataloger: what it writes is what the state says, and what it calls written is in the store."""

import asyncio
from collections import Counter
from contextlib import suppress
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.lake.catalog import read_catalog, read_forks, read_tombstones
from headwater.lake.iceberg.metadata import hint_key, hint_of, metadata_key
from headwater.lake.iceberg.reading import newest_table
from headwater.node.lake import flusher
from headwater.node.lake.cataloger import CHANGES_PER_TURN
from headwater.node.lake.flusher import Flusher, FlushFailed, HotRun
from headwater.storage.store import StoreFailed
from headwater.streams.cold import Held
from headwater.streams.commands.lake import PublishSegment
from headwater.streams.commands.streams import Delete
from headwater.streams.state import State

from ...doubles.faulty_store import Fault, FaultyStore
from .histories import Counted, CountedParts, with_history
from .lakes import ON_DEMAND, Bench, bench, until
from .stories import Story

# -- Stored is stored --------------------------------------------------------------------------------------------------


def test_a_catalog_written_while_a_flush_ends_does_not_hide_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        async with bench() as node:
            await node.create("b/s", b"one")
            release = flusher._release

            async def catalog_first(parts: list[HotRun]) -> None:
                # Everything is published, but the flush has not ended: this catalog declares one position too few.
                await node.housekeeping.cataloger.write()
                assert node.catalog().flushed < node.catalog().position == node.state.position
                await release(parts)

            monkeypatch.setattr(flusher, "_release", catalog_first)
            await node.lake.flush()
            monkeypatch.undo()
            reached = await node.lake.flush()
            assert reached == node.state.position
            assert_complete(node, reached)

    asyncio.run(run())


def test_a_version_that_another_server_has_taken_costs_one_attempt() -> None:
    async def run() -> None:
        async with bench() as node:
            await node.create("b/s", b"one")
            await node.lake.flush()
            table = newest_table(node.store, "messages")
            assert table is not None
            await node.append("b/s", b"two")
            node.store.store.create(metadata_key("messages", table.version + 1, table.log_id), b"of another")
            with pytest.raises(FlushFailed):
                await node.lake.flush()
            assert_complete(node, await node.lake.flush())

    asyncio.run(run())


@pytest.mark.parametrize("table", ["messages", "pinned", "forks"])
def test_a_hint_that_could_not_be_written_is_written_by_the_next_flush(table: str) -> None:
    store = FaultyStore()

    async def run() -> None:
        async with bench(store) as node:
            await node.create("b/s", b"one")
            store.fail_next("replace", in_key=table)
            with pytest.raises(FlushFailed):
                await node.lake.flush()
            await node.lake.flush()
            newest = newest_table(store, table)
            assert newest is not None
            assert store.read(hint_key(table)).decode() == hint_of(newest.version, newest.log_id)

    asyncio.run(run())


def test_what_failed_attempts_leave_behind_goes_with_the_snapshots_of_their_time() -> None:
    async def run() -> None:
        store = FaultyStore()
        async with bench(store, history_seconds=0.0) as node:
            await node.create("b/s", b"one")
            for fault, key in ((Fault.FAIL_AFTER, ".json"), (Fault.FAIL_BEFORE, ".json"), (Fault.FAIL_AFTER, "data")):
                store.fail_next("create", fault, key)
                with pytest.raises(FlushFailed):
                    await node.lake.flush()
            await node.lake.flush()
            await node.housekeeping.cataloger.tidy()
            kept = [item.key for item in store.store.items("messages/metadata/") if item.key.endswith(".avro")]
            assert len(kept) == 2

    asyncio.run(run())


@pytest.mark.parametrize("table", ["messages", "streams"])
def test_an_earlier_snapshot_that_is_damaged_does_not_end_the_chores(table: str) -> None:
    async def run() -> None:
        store = FaultyStore()
        async with bench(store) as node:
            for name in ("b/one", "b/two"):
                await node.create(name, b"x")
                await node.lake.flush(all_tables=True)
            state = node.state
        before = newest_table(store, table)
        assert before is not None
        store.store.replace(before.snapshots[-2].list_key, b"garbage")
        orphan = f"{table}/metadata/0000000001-00-data.avro"
        store.store.create(orphan, b"of a commit that failed")
        quick = ON_DEMAND._replace(catalog_check_seconds=0.01, streams_write_seconds=0.01)
        async with bench(store, state, intervals=quick) as node:
            await asyncio.sleep(0.1)
            await node.ask(Delete("b/one"))
            await until(lambda: read_catalog(store.store).position == state.position)  # type: ignore[union-attr]
            await until(lambda: newest_table(store, "streams").current.position == state.position)  # type: ignore[union-attr]
            assert orphan in [item.key for item in store.store.items(f"{table}/")]
        async with bench(store, state, history_seconds=0.0) as node:
            await node.append("b/two", b"y")
            await node.lake.flush(all_tables=True)
            await node.housekeeping.cataloger.tidy()
            await node.housekeeping.lister.tidy()
            # The damaged snapshot has expired.
            assert orphan not in [item.key for item in store.store.items(f"{table}/")]

    asyncio.run(run())


@pytest.mark.parametrize("operation", ["create", "items"])
def test_no_failure_of_the_store_ends_the_chores(operation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Unexpected(Exception):
        """What no store is said to raise."""

    async def run() -> None:
        store = FaultyStore()
        quick = ON_DEMAND._replace(catalog_check_seconds=0.01, streams_write_seconds=0.01, sweep_check_seconds=0.01)
        async with bench(store, intervals=quick) as node:
            failures = []

            def fail(*arguments: object) -> None:
                failures.append(arguments)
                raise Unexpected

            await node.create("b/s", b"one")
            with monkeypatch.context() as failing:
                failing.setattr(store, operation, fail)
                await node.append("b/s", b"two")
                await until(lambda: len(failures) > 2)
            await node.ask(Delete("b/s"))
            await node.create("b/t")
            await until(
                lambda: (found := newest_table(store, "streams")) and found.current.position == node.state.position
            )

    asyncio.run(run())


def assert_complete(node: Bench, position: int) -> None:
    """Check that a reader of the store sees what the state says, up to this position at least."""
    catalog = read_catalog(node.store.store)
    if catalog is None:
        assert position == 0, "only an empty lake has no catalog"
        return
    assert catalog.flushed >= position
    state, cold = node.state, node.state.cold
    assert {one.number: Held(one.segment, one.live_rows) for one in catalog.segments} == cold.segments
    # Where all rows of a life are dead, it does not matter by which offset.
    dead: Counter[int] = Counter()
    for rows in (rows for tombstone in cold.tombstones.values() for rows in tombstone.dead):
        dead[rows.segment] += rows.rows
    assert {one.number: one.deletes.rows for one in catalog.segments if one.deletes is not None} == dead
    tombstones = read_tombstones(node.store.store, catalog)
    assert set(tombstones["incarnation"].to_pylist()) == set(cold.tombstones)
    assert len(tombstones) == len(cold.tombstones)
    forks = read_forks(node.store.store, catalog)
    assert {(fork.name, fork.incarnation, fork.deleted) for fork in forks} == {
        (name, state.streams[name].incarnation, state.streams[name].deleted) for name in state.forks
    }
    assert len(forks) == len(state.forks)


class Interfering:
    """Writes catalogs in the middle of flushes, makes the store fail, and gives up waiting."""

    def __init__(self, node: Bench, random: Random, patch: pytest.MonkeyPatch) -> None:
        self._node, self._random = node, random
        publish, release = Flusher._publish, flusher._release

        async def around_publish(one: Flusher, command: PublishSegment) -> None:
            await self.step()
            await publish(one, command)
            await self.step()

        async def before_release(parts: list[HotRun]) -> None:
            await self.step()
            await release(parts)

        patch.setattr(Flusher, "_publish", around_publish)
        patch.setattr(flusher, "_release", before_release)

    async def step(self) -> None:
        kind = self._random.choice(["nothing", "write", "fail", "give up"])
        if kind == "nothing":
            return
        if kind == "fail":
            fault = self._random.choice([Fault.FAIL_BEFORE, Fault.FAIL_AFTER])
            self._node.store.fail_next("create", fault, self._random.choice(["deletes", "data", "list", ".json"]))
        writing = asyncio.ensure_future(self._node.housekeeping.cataloger.write())
        if kind == "give up":
            for _ in range(self._random.randint(0, 4)):
                await asyncio.sleep(0)
            writing.cancel()
        (outcome,) = await asyncio.gather(writing, return_exceptions=True)
        assert outcome is None or isinstance(outcome, StoreFailed | asyncio.CancelledError), outcome


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32))
def test_on_a_quiet_server_the_newest_catalog_covers_every_barrier_whatever_happened(seed: int) -> None:
    async def run() -> None:
        random = Random(seed)
        with pytest.MonkeyPatch.context() as patch:
            store, state = FaultyStore(), State("journal")
            for _ in range(2):
                async with bench(store, state) as node:
                    story, interfering = Story(node, random.randrange(2**32)), Interfering(node, random, patch)
                    await forget_streams(node)
                    for _ in range(random.randint(1, 25)):
                        with suppress(FlushFailed, StoreFailed):
                            await random.choice([story.act, story.act, interfering.step])()
                    patch.undo()
                    store.heal()
                    while await node.housekeeping.compactor.compact_once():
                        pass  # At the start it compacts by itself, too, and would change what is compared below.
                    for _ in range(2):
                        assert_complete(node, await node.lake.flush())

    asyncio.run(run())


async def forget_streams(node: Bench) -> None:
    """Delete what an earlier story has left, so that the next one knows of everything."""
    for name in [name for name, stream in node.state.streams.items() if not stream.deleted]:
        await node.ask(Delete(name))


# -- Work on the loop --------------------------------------------------------------------------------------------------


def test_a_flush_of_one_row_looks_at_what_changed_and_not_at_the_history_of_the_lake() -> None:
    lives, segments = 100_000, 2_000

    async def run() -> None:
        state = with_history(lives, segments)
        cold = state.cold
        async with bench(state=state) as node:
            assert not await node.housekeeping.compactor.compact_once()
            await node.create("b/s", b"one")
            await node.lake.flush()
            assert len(read_tombstones(node.store, node.catalog())) == lives
            tombstones, held = CountedParts(cold.tombstones), Counted(cold.segments)
            cold.tombstones, cold.segments = tombstones, held
            await node.append("b/s", b"two")
            reached = await node.lake.flush()
            assert node.catalog().flushed >= reached
            assert len(node.catalog().segments) == segments + 2
            assert tombstones.seen == 0
            assert held.seen < 10

    asyncio.run(run())


def test_however_much_has_changed_only_a_part_of_it_is_taken_before_others_have_their_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lives = 10 * CHANGES_PER_TURN

    async def run() -> None:
        async with bench(state=with_history(lives, 10)) as node:
            cataloger = node.housekeeping.cataloger
            taken: Counter[int] = Counter()
            turn = 0
            take = cataloger._take

            def counted(limit: int) -> None:
                before = len(cataloger._unlisted)
                take(limit)
                taken[turn] += before - len(cataloger._unlisted)

            monkeypatch.setattr(cataloger, "_take", counted)
            writing = asyncio.ensure_future(cataloger.write())
            while not writing.done():
                turn += 1
                await asyncio.sleep(0)
            assert taken.total() == lives + 10
            assert max(taken.values()) == CHANGES_PER_TURN
            assert len(read_tombstones(node.store, node.catalog())) == lives

    asyncio.run(run())
