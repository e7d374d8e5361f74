"""A node with all its threads and chores on a faulty disk."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

from headwater.log import directory
from headwater.log.journal.journal import Journal
from headwater.log.seam import Deliver, GiveBack, Ticket
from headwater.node.chores.imager import ImageLimits
from headwater.node.lake.parts import FlushLimits, LakeIntervals, LakeLimits
from headwater.node.node import Node
from headwater.node.shard_parts import ShardLimits, ShardParts
from headwater.storage.store import Store
from headwater.streams.batches import Batch
from headwater.streams.commands import Command
from headwater.streams.replies import Reply

from ..doubles.faulty_disk import FaultyDisk
from .history import History
from .machine import DATA, JOURNAL_FILE_BYTES

IMAGE_LIMITS = ImageLimits(20_000, slice_seconds=0.0, retry_seconds=0.05)
LAKE_LIMITS = LakeLimits(
    flush=FlushLimits(interval_seconds=0.01, bytes_min=1, bytes_max=4_000, segment_bytes=3_000),
    history_seconds=0.001,
    intervals=LakeIntervals(
        flush_check_seconds=0.005,
        flush_retry_seconds=0.005,
        catalog_check_seconds=0.005,
        compact_check_seconds=0.005,
        compact_retry_seconds=0.005,
        compact_avoid_seconds=0.0,
        sweep_check_seconds=0.005,
        orphans_check_seconds=0.02,
        read_retry_seconds=(0.0, 0.0),
    ),
)
"""Everything goes to the lake as soon as possible, in objects as small as possible."""


class WatchedJournal(Journal):
    """A journal that records in a history what is appended and what it delivers."""

    history: History

    def start(self, deliver: Deliver, give_back: GiveBack) -> None:
        def delivered(batch: Batch, ticket: Ticket | None) -> None:
            deliver(batch, ticket)
            self.history.acknowledge()

        def given_back(ticket: Ticket) -> None:
            self.history.withdraw()
            give_back(ticket)

        super().start(delivered, given_back)

    def append(self, at: int, commands: list[Command], ticket: Ticket) -> None:
        self.history.send(at, commands)
        super().append(at, commands, ticket)


class RunningNode:
    """A node that was recovered from its directory."""

    def __init__(self, disk: FaultyDisk, history: History, store: Store | None = None) -> None:
        self.failures: list[BaseException] = []
        disk.names(DATA)
        state, journal, images, blobs = directory.recover(
            DATA,
            JOURNAL_FILE_BYTES,
            disk,
            self.failures.append,
            open_journal=partial(WatchedJournal, spare_retry_seconds=0.01),
        )
        history.check(state)
        assert isinstance(journal, WatchedJournal)
        journal.history = history
        self.journal = journal
        self.node = Node(
            [ShardParts(state, journal, images, blobs)],
            limits=ShardLimits(IMAGE_LIMITS, lake=LAKE_LIMITS),
            store=store,
        )

    @property
    def is_at_rest(self) -> bool:
        """Whether no image is being written."""
        imager = self.node.only.imager
        return imager is not None and imager._task is None

    async def ask(self, command: Command) -> Reply:
        """Submit a command and wait for its reply."""
        reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self.node.submit(command, reply.set_result)
        async with asyncio.timeout(10):
            return await reply

    async def crash(self) -> None:
        """End all threads; undecided commands stay unanswered."""
        shard = self.node.only
        assert shard.imager is not None
        await shard.imager.stop()
        await shard.stop_chores()
        self.journal.close()


@asynccontextmanager
async def running_node(disk: FaultyDisk, history: History, store: Store | None = None) -> AsyncIterator[RunningNode]:
    """A node that runs while the block lasts, and crashes at its end."""
    running = RunningNode(disk, history, store)
    running.node.start()
    try:
        yield running
    finally:
        await running.crash()


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that happens in another thread."""
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.001)
