"""A node over several shards, and several nodes on one log."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from headwater.log.memory import MemoryLog
from headwater.log.seam import CommandLog
from headwater.node.chores.imager import ImageLimits
from headwater.node.committer import Done, ask
from headwater.node.node import Node, place
from headwater.node.shard_parts import ShardLimits, ShardParts
from headwater.protocol.refusals import Code, Refusal
from headwater.storage.blobs import MemoryBlobs
from headwater.streams.commands.forks import Ancestry
from headwater.streams.commands.streams import Append, Create, Delete
from headwater.streams.forking import ForkRequest
from headwater.streams.queries import Buckets, Head, Listing, Read
from headwater.streams.replies import (
    Appended,
    BucketDropped,
    BucketEntry,
    BucketFacts,
    BucketOpened,
    Created,
    Deleted,
    Listed,
    Page,
    Reply,
)
from headwater.streams.state import State

LOG_ID = "9f2c"
LIMITS = ShardLimits(ImageLimits(1 << 40))
TEXT = "text/plain"
NAMES = [f"agents/{number:02d}" for number in range(40)]


@asynccontextmanager
async def running(*logs: CommandLog) -> AsyncIterator[Node]:
    """A node with a shard on each of these logs."""
    node = Node([ShardParts(State(LOG_ID), log, None, MemoryBlobs()) for log in logs], limits=LIMITS)
    node.start()
    try:
        yield node
    finally:
        await node.stop()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.001)


async def reply_of(work: Callable[[Done], None]) -> Reply:
    """The reply that a saga ends with."""
    done: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
    work(done.set_result)
    return await asyncio.wait_for(done, 10)


async def create_all(node: Node) -> None:
    for name in NAMES:
        assert isinstance(await ask(node.submit, Create(name, TEXT)), Created)


# -- Several shards --------------------------------------------------------------------------------------------------


def test_every_stream_is_placed_on_one_shard_and_a_new_shard_moves_streams_to_itself_only() -> None:
    names = [f"bucket/{number}" for number in range(3_000)]
    assert {place(name, 1) for name in names} == {0}
    for shards in (2, 3, 8):
        before, after = [place(name, shards) for name in names], [place(name, shards + 1) for name in names]
        assert all(new in (old, shards) for old, new in zip(before, after, strict=True))
        counts = [before.count(number) for number in range(shards)]
        assert min(counts) > 0.8 * len(names) / shards


def test_with_one_shard_nothing_lies_between_a_request_and_the_shard() -> None:
    async def main() -> None:
        async with running(MemoryLog(LOG_ID)) as node:
            assert (node.submit, node.read, node.now) == (node.only.submit, node.only.read, node.only.now)

    asyncio.run(main())


def test_commands_and_queries_reach_the_shard_of_their_stream() -> None:
    async def main() -> None:
        async with running(*(MemoryLog(LOG_ID) for _ in range(3))) as node:
            await create_all(node)
            for name in NAMES:
                assert isinstance(await ask(node.submit, Append(name, name.encode(), content_type=TEXT)), Appended)
            for name in NAMES:
                page = node.read(Read(name))
                assert isinstance(page, Page)
                assert page.body == name.encode()
                assert node.describe(Head(name)) == node.shard_of(name).describe(Head(name))
                assert [name in shard.state.streams for shard in node.shards].count(True) == 1
            assert all(shard.state.streams for shard in node.shards)
            assert node.now() >= max(shard.state.now for shard in node.shards)

    asyncio.run(main())


@pytest.mark.parametrize("limit", [1, 3, 7, 40, 100])
def test_a_listing_merges_the_pages_of_all_shards(limit: int) -> None:
    async def main() -> None:
        async with running(*(MemoryLog(LOG_ID) for _ in range(3))) as node:
            await create_all(node)
            found: list[str] = []
            while True:
                listed = node.list_streams(Listing("agents", "", found[-1] if found else "", limit))
                assert isinstance(listed, Listed)
                assert len(listed.streams) <= limit
                found += [entry.stream_id for entry in listed.streams]
                if not listed.has_more:
                    break
            assert [f"agents/{name}" for name in found] == NAMES
            missing = node.list_streams(Listing("nothing", "", "", limit))
            assert isinstance(missing, Refusal)
            assert missing.code is Code.BUCKET_NOT_FOUND

    asyncio.run(main())


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_a_listing_of_buckets_counts_the_streams_of_all_shards(limit: int) -> None:
    async def main() -> None:
        async with running(*(MemoryLog(LOG_ID) for _ in range(3))) as node:
            await create_all(node)
            assert await reply_of(lambda done: node.open_bucket("zero", done)) == BucketOpened()
            found: list[BucketEntry] = []
            while True:
                page = node.list_buckets(Buckets("", found[-1].bucket_id if found else "", limit))
                assert len(page.buckets) <= limit
                found += page.buckets
                if not page.has_more:
                    break
            assert found == [BucketEntry("agents", len(NAMES)), BucketEntry("zero", 0)]

    asyncio.run(main())


def test_a_bucket_is_opened_counted_and_dropped_on_all_shards() -> None:
    async def main() -> None:
        async with running(*(MemoryLog(LOG_ID) for _ in range(3))) as node:
            assert await reply_of(lambda done: node.open_bucket("agents", done)) == BucketOpened()
            assert all("agents" in shard.state.buckets for shard in node.shards)
            await create_all(node)
            facts = await reply_of(lambda done: node.inspect_bucket("agents", done))
            assert isinstance(facts, BucketFacts)
            assert facts.streams == len(NAMES)
            refused = await reply_of(lambda done: node.drop_bucket("agents", done))
            assert isinstance(refused, Refusal)
            assert refused.code is Code.BUCKET_NOT_EMPTY
            for name in NAMES:
                assert isinstance(await ask(node.submit, Delete(name)), Deleted)
            assert await reply_of(lambda done: node.drop_bucket("agents", done)) == BucketDropped()
            assert not any(shard.state.buckets for shard in node.shards)

    asyncio.run(main())


def test_a_fork_pins_its_source_on_another_shard_and_its_end_releases_it() -> None:
    async def main() -> None:
        async with running(MemoryLog(LOG_ID), MemoryLog(LOG_ID)) as node:
            await create_all(node)
            source = NAMES[0]
            home = node.shard_of(source)
            fork = next(name for name in map("forks/{}".format, range(99)) if node.shard_of(name) is not home)
            request = ForkRequest(fork, Ancestry(source, None, 0, None, None), closed=False, body=b"")
            assert isinstance(await reply_of(lambda done: node.fork(request, done)), Created)
            await until(lambda: not home.state.unconfirmed)
            assert home.state.streams[source].pins
            assert isinstance(await ask(node.submit, Delete(fork)), Deleted)
            await until(lambda: not node.shard_of(fork).state.owed)
            assert not home.state.streams[source].pins

    asyncio.run(main())
