"""Deleted means gone: after a while no object of the lake has a byte of a deleted message."""

import asyncio

from headwater.streams.commands.streams import Delete

from .lakes import Bench, bench

SECRET = b"the secret that must go"


def holders(node: Bench) -> list[str]:
    """The objects that have the secret, as it is or compressed: segments with a row of its stream."""
    store = node.store.store
    return [item.key for item in store.items("") if SECRET in store.read(item.key)]


async def one_dead_stream_among_many(node: Bench) -> None:
    await node.create("b/secret", SECRET)
    for number in range(9):
        await node.create(f"b/other{number}", b"kept")
    await node.lake.flush()
    assert len(holders(node)) == 1, "a message this short is stored as it is"
    await node.ask(Delete("b/secret"))
    await node.lake.flush()


def test_a_few_dead_rows_are_rewritten_away_when_their_time_has_come() -> None:
    async def run() -> None:
        async with bench(history_seconds=0.0, erase_seconds=0.0) as node:
            await one_dead_stream_among_many(node)
            for _ in range(2):
                await asyncio.sleep(0.01)
                await node.housekeeping.cataloger.tidy()
                await node.housekeeping.compactor.compact_once()
                await node.lake.flush()
                await node.housekeeping.cataloger.tidy()
                await node.housekeeping.sweeper.sweep_retired()
            assert holders(node) == []
            for number in range(9):
                assert await node.whole(f"b/other{number}") == b"kept"

    asyncio.run(run())


def test_they_stay_until_then() -> None:
    async def run() -> None:
        async with bench(history_seconds=0.0) as node:
            await one_dead_stream_among_many(node)
            await node.housekeeping.cataloger.tidy()
            assert not await node.housekeeping.compactor.compact_once()
            assert len(holders(node)) == 1

    asyncio.run(run())
