"""A node with a lake in memory, whose faults a test decides."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from headwater.lake.catalog import Catalog, read_catalog
from headwater.log.memory import MemoryLog
from headwater.node.chores.imager import ImageLimits
from headwater.node.committer import ask
from headwater.node.lake.housekeeping import Housekeeping
from headwater.node.lake.lake import Lake
from headwater.node.lake.parts import FlushLimits, LakeIntervals, LakeLimits
from headwater.node.node import Node
from headwater.node.reads.pages import PageCache
from headwater.node.shard_parts import ShardLimits, ShardParts
from headwater.storage.blobs import MemoryBlobs
from headwater.streams.commands import Command
from headwater.streams.commands.streams import Append, Create
from headwater.streams.queries import Query, Read
from headwater.streams.replies import Page, Reply
from headwater.streams.state import State, Stream

from ...doubles.faulty_store import FaultyStore

TEXT = "text/plain"
JSON = "application/json"
NEVER = FlushLimits(interval_seconds=1e9, bytes_min=0, bytes_max=1 << 40, journal_bytes=1 << 40)
"""Flushed on demand only."""
ON_DEMAND = LakeIntervals(
    catalog_check_seconds=1e6, compact_check_seconds=1e6, sweep_check_seconds=1e6, read_retry_seconds=(0.0, 0.0)
)
"""After the start no chore does anything by itself, however long a test takes; failed reads are retried at once."""


class Bench:
    """A running node with shortcuts for requests."""

    def __init__(self, node: Node, store: FaultyStore) -> None:
        self.node, self.store, self.shard, self.state = node, store, node.only, node.only.state

    @property
    def lake(self) -> Lake:
        assert self.shard.lake is not None
        return self.shard.lake

    @property
    def housekeeping(self) -> Housekeeping:
        assert self.lake.housekeeping is not None
        return self.lake.housekeeping

    async def ask(self, command: Command) -> Reply:
        return await asyncio.wait_for(ask(self.node.submit, command), 10)

    async def create(self, name: str, *appends: bytes, content_type: str = TEXT) -> Stream:
        await self.ask(Create(name, content_type))
        for payload in appends:
            await self.append(name, payload, content_type=content_type)
        return self.state.streams[name]

    async def append(self, name: str, payload: bytes, content_type: str = TEXT) -> Reply:
        return await self.ask(Append(name, payload, content_type=content_type))

    async def read(self, query: Query) -> Reply:
        reply = self.node.read(query)
        return await asyncio.wait_for(reply, 10) if isinstance(reply, asyncio.Task) else reply

    async def whole(self, name: str) -> bytes:
        """All bytes of a stream, page by page, from where they are now and not from the cache of pages."""
        self.shard.queries._pages = PageCache()
        found, offset = b"", self.state.streams[name].start
        while True:
            page = await self.read(Read(name, offset))
            assert isinstance(page, Page), page
            found, offset = found + page.body, page.next_offset
            if page.up_to_date:
                return found

    def catalog(self) -> Catalog:
        catalog = read_catalog(self.store.store)
        assert catalog is not None
        return catalog

    def segments(self) -> list[str]:
        return [item.key for item in self.store.store.items("segments/")]


@asynccontextmanager
async def bench(
    store: FaultyStore | None = None,
    state: State | None = None,
    *,
    flush: FlushLimits = NEVER,
    hot_bytes_max: int = 1 << 40,
    history_seconds: float = 900.0,
    erase_seconds: float = 604_800.0,
    page_bytes: int = 1 << 20,
    flush_at_stop: bool = False,
    intervals: LakeIntervals = ON_DEMAND,
) -> AsyncIterator[Bench]:
    """A node that runs while the block lasts."""
    store, state = store or FaultyStore(), state or State("journal")
    log = MemoryLog(state.log_id, state.position)
    limits = LakeLimits(hot_bytes_max, flush, history_seconds, flush_at_stop, intervals, erase_seconds)
    node = Node(
        [ShardParts(state, log, None, MemoryBlobs())],
        limits=ShardLimits(ImageLimits(1 << 40), page_bytes, limits),
        store=store,
    )
    node.start()
    try:
        yield Bench(node, store)
    finally:
        await node.stop()


async def until(what: object) -> None:
    """Wait until a callable returns something true."""
    assert callable(what)
    for _ in range(1500):
        if what():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it never became true")
