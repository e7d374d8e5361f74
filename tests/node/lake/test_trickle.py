"""An hour of slow writes on a simulated clock: neither journal nor memory grows with time."""

import asyncio

import pytest

from headwater.log import directory
from headwater.node.chores.imager import ImageLimits
from headwater.node.clock import Clock
from headwater.node.committer import ask
from headwater.node.lake import flusher
from headwater.node.lake.parts import FlushLimits, LakeIntervals, LakeLimits
from headwater.node.node import Node
from headwater.node.shard_parts import ShardLimits, ShardParts
from headwater.storage.memory import MemoryStore
from headwater.streams.commands.streams import Append, Create
from headwater.streams.hot import hot_cost
from headwater.streams.queries import Read
from headwater.streams.replies import Appended, Page

from ...doubles.faulty_disk import FaultyDisk
from ..chores.test_imager import DATA, fail

SECONDS = 3_600
STREAMS = 20
PAYLOAD = b"x" * 199 + b"\n"
JOURNAL_FILE_BYTES = 8_192
IMAGE_LOG_BYTES = 30_000
FLUSH_SECONDS = 300


class Simulated(Clock):
    """A clock that the test advances."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0
        self._start = super().now()

    def now(self) -> int:
        return self._start + int(self.seconds * 1_000_000)

    def monotonic(self) -> float:
        return self.seconds


def test_an_hour_of_slow_writes_leaves_journal_and_memory_as_small_as_a_few_minutes_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, disk, store = Simulated(), FaultyDisk(), MemoryStore()
    monkeypatch.setattr(flusher, "time", clock)
    used_bytes: list[int] = []
    hot_bytes: list[int] = []

    async def run() -> None:
        disk.names(DATA)
        recovered = directory.recover(DATA, JOURNAL_FILE_BYTES, disk, fail)
        node = Node(
            [ShardParts(*recovered)],
            limits=ShardLimits(
                ImageLimits(IMAGE_LOG_BYTES),
                lake=LakeLimits(
                    flush=FlushLimits(interval_seconds=FLUSH_SECONDS, bytes_min=1),
                    intervals=LakeIntervals(flush_check_seconds=1e9),  # The test checks once a simulated second.
                ),
            ),
            clock=clock,
            store=store,
        )
        node.start()
        shard = node.only
        assert shard.lake is not None and shard.lake.housekeeping is not None
        assert shard.imager is not None
        flushes = shard.lake.housekeeping.flusher
        names = [f"b/{number}" for number in range(STREAMS)]
        for name in names:
            await ask(node.submit, Create(name, "text/plain"))
        for second in range(SECONDS):
            clock.seconds += 1
            command = Append(names[second % STREAMS], PAYLOAD, content_type="text/plain")
            assert isinstance(await ask(node.submit, command), Appended)
            flushes.check()
            # On this clock neither a flush nor an image takes any time.
            if flushes._running is not None:
                await asyncio.wait([flushes._running])
            if shard.imager._task is not None:
                await asyncio.wait([shard.imager._task])
            if second % 60 == 59:
                used_bytes.append(disk.used_bytes)
                hot_bytes.append(shard.state.hot_bytes)
        for name in names:
            reply = node.read(Read(name))
            page = await reply if isinstance(reply, asyncio.Task) else reply
            assert isinstance(page, Page)
            assert page.body == PAYLOAD * (SECONDS // STREAMS)
        await node.stop()

    asyncio.run(run())
    assert max(hot_bytes) < 2 * FLUSH_SECONDS * hot_cost(len(PAYLOAD), 1, 1)
    assert max(used_bytes[30:]) <= 1.5 * max(used_bytes[10:20])
    assert max(used_bytes) < SECONDS * len(PAYLOAD) / 2
