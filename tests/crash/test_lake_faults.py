"""Whatever faults the store has and whenever the power fails, every stream reads as if it had never left memory."""

import asyncio
from collections import Counter
from random import Random

import pytest

from headwater.node.node import Node
from headwater.node.reads.queries import Queries
from headwater.protocol.refusals import Refusal
from headwater.streams.fetched import Fetched
from headwater.streams.queries import Read
from headwater.streams.replies import Page
from headwater.streams.state import State

from ..doubles.faulty_disk import FaultyDisk
from ..doubles.faulty_store import Fault, FaultyStore
from .history import History
from .load import Load
from .machine import AIMS
from .nodes import running_node
from .seeds import all_seeds_run, for_each_seed

pytestmark = pytest.mark.crash

LIVES = 3


def test_no_acknowledged_byte_is_lost_if_the_store_fails_corrupts_data_or_does_not_answer() -> None:
    seen: Counter[str] = Counter()

    def run(seed: int) -> None:
        random, history = Random(seed), History()
        disk, load = FaultyDisk(random), Load(random, large=False)
        store = FaultyStore(random=Random(seed), faults=frozenset(Fault))
        for _ in range(LIVES):
            store.odds = random.choice((0.0, 0.1, 0.5))
            aim = random.choice(AIMS)
            disk.halt_in(random.randrange(50, 50 + 5 * aim.steps_max), aim.hits)
            try:
                asyncio.run(_work(disk, history, load, store))
            except OSError:
                assert disk.halted
            seen["lost power"] += disk.halted
            disk.lose_power()
        store.heal()
        asyncio.run(_compare(disk, history, store, seen))
        seen.update(happened.fault.name for happened in store.happened)

    for_each_seed(40, run)
    if all_seeds_run():
        blind = {"lost power", "segments", "cold", "streams", *(fault.name for fault in Fault)} - set(+seen)
        assert not blind, f"these never occurred: {blind}"


async def _work(disk: FaultyDisk, history: History, load: Load, store: FaultyStore) -> None:
    """Submit commands as fast as possible and read a little, until the machine halts."""
    async with running_node(disk, history, store) as running:
        for _ in range(60):
            for command in load.batch(running.node.only.state)[1]:
                running.node.submit(command, lambda _: None)
            await asyncio.sleep(0.002)
            if disk.halted:
                return


async def _compare(disk: FaultyDisk, history: History, store: FaultyStore, seen: Counter[str]) -> None:
    """Compare every stream, from memory and lake, with a shadow that keeps everything in memory."""
    async with running_node(disk, history, store) as running:
        state, shadow = running.node.only.state, history.shadow
        assert set(state.streams) == set(shadow.streams)
        seen["segments"] += len(state.cold.segments)
        for name, stream in list(state.streams.items()):
            if not stream.deleted and not stream.expired(running.node.now()):
                seen["streams"] += 1
                seen["cold"] += bool(stream.extents)
                assert await _whole(running.node, name, stream.start) == _hot(shadow, name), name


async def _whole(node: Node, name: str, offset: int) -> bytes:
    found = b""
    while True:
        reply = node.read(Read(name, offset))
        page = await reply if isinstance(reply, asyncio.Task) else reply
        if isinstance(page, Refusal):
            raise AssertionError(f"{name}: {page}")
        assert isinstance(page, Page)
        found, offset = found + page.body, page.next_offset
        if page.up_to_date:
            return found


def _hot(shadow: State, name: str) -> bytes:
    """Everything the shadow has of a stream."""
    queries = Queries(shadow, lambda: shadow.now, lambda _: shadow.now, lambda _: None, 1 << 40)
    page = queries.read(Read(name, shadow.streams[name].start), Fetched())
    assert isinstance(page, Page), page
    return page.body
