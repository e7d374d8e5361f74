"""Leases: a reader of the lake finds everything that its catalog refers to, for as long as its lease is in force."""

import asyncio

import pytest

from headwater.lake.catalog import Catalog, read_catalog, read_forks, read_tombstones
from headwater.node.lake import cataloger
from headwater.node.node import Node
from headwater.protocol.limits import SECOND_US
from headwater.protocol.refusals import Code, Refusal
from headwater.streams.commands.consumers import DropConsumer, LeaseLake
from headwater.streams.commands.streams import Delete
from headwater.streams.replies import Done

from .handed_in import hand_in
from .lakes import Bench, bench

LIFE_US = 60 * SECOND_US


async def planned(node: Bench, lease: str) -> Catalog:
    """What a reader does: lease, flush, catalog."""
    assert await node.ask(LeaseLake(lease, LIFE_US)) == Done()
    await node.lake.flush()
    catalog = read_catalog(node.store)
    assert catalog is not None
    return catalog


async def replace_all(node: Bench) -> None:
    """Replace all segments, write catalogs and delete whatever may be deleted."""
    assert isinstance(await node.lake.swaps.swap(hand_in(node.state, node.store, node.node.now())), int)
    await sweep(node)


async def sweep(node: Bench) -> None:
    for _ in range(2):
        await node.lake.flush()
        await node.housekeeping.cataloger.tidy()
        await node.housekeeping.sweeper.sweep_retired()


def snapshots(node: Bench) -> int:
    return len(node.housekeeping.cataloger.tables.snapshots)


def readable(node: Bench, catalog: Catalog) -> bool:
    """Whether everything that a catalog refers to is there; it is all there or all gone."""
    there = {item.key for item in node.store.store.items("")}
    needed = {listed.key for listed in catalog.segments}
    needed |= {listed.deletes.key for listed in catalog.segments if listed.deletes is not None}
    assert needed <= there or needed.isdisjoint(there), needed - there
    if needed <= there:
        read_tombstones(node.store, catalog)
        read_forks(node.store, catalog)
    return needed <= there


def test_a_read_may_outlive_the_grace_period_as_long_as_it_holds_its_lease() -> None:
    async def run() -> None:
        async with bench(history_seconds=0.0) as node:
            for payload in (b"one", b"two"):
                await node.create("b/s", payload)
                await node.lake.flush()
            catalog = await planned(node, "batch")
            await replace_all(node)
            assert readable(node, catalog)
            # Another lease that began later does not need those, and does not end this one.
            newer = await planned(node, "another")
            await replace_all(node)
            assert readable(node, catalog)
            assert readable(node, newer)
            await node.ask(DropConsumer("batch"))
            await sweep(node)
            assert not readable(node, catalog)
            assert readable(node, newer)

    asyncio.run(run())


def test_a_lease_keeps_the_catalogs_that_its_reader_can_have_read_and_not_all_that_follow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cataloger, "CATALOG_MS", 0)

    async def run() -> None:
        async with bench(history_seconds=0.0) as node:
            await node.create("b/s", b"one")
            await node.lake.flush()
            catalog = await planned(node, "batch")
            for _ in range(10):
                await node.append("b/s", b"more")
                await sweep(node)
            assert readable(node, catalog)
            # The one in force when the lease began, the first one after it, and the newest.
            assert snapshots(node) == 3
            await node.ask(DropConsumer("batch"))
            await sweep(node)
            assert snapshots(node) == 1
            assert len([item for item in node.store.store.items("messages/") if item.key.endswith("list.avro")]) == 1

    asyncio.run(run())


def test_a_lease_does_not_keep_deleted_rows_in_new_segments() -> None:
    async def run() -> None:
        async with bench(history_seconds=0.0) as node:
            await node.create("b/s", b"secret")
            catalog = await planned(node, "batch")
            await node.ask(Delete("b/s"))
            assert await node.housekeeping.compactor.compact_once()
            await sweep(node)
            assert readable(node, catalog)
            assert not node.catalog().segments

    asyncio.run(run())


def test_the_lease_of_a_reader_that_was_killed_lapses_by_itself() -> None:
    async def run() -> None:
        async with bench(history_seconds=0.0) as node:
            for payload in (b"one", b"two"):
                await node.create("b/s", payload)
                await node.lake.flush()
            catalog = await planned(node, "batch")
            await replace_all(node)
            later(node.node, LIFE_US)
            # Nothing is written in between: the sweep does not wait for the next command.
            await node.housekeeping.cataloger.tidy()
            await node.housekeeping.sweeper.sweep_retired()
            assert not {listed.key for listed in catalog.segments} & set(node.segments())
            refusal = await node.ask(LeaseLake("batch", LIFE_US, renews=True))
            assert isinstance(refusal, Refusal)
            assert refusal.code is Code.CONSUMER_LAPSED

    asyncio.run(run())


def later(node: Node, microseconds: int) -> None:
    """Set the clock of a node forward."""
    shard = node.only
    clock = shard._clock
    shard._clock = lambda: clock() + microseconds
    shard.committer._now = shard._clock
