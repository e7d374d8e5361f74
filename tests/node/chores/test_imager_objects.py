"""Images in an object store, taken by a node that shares its log with another one."""

import asyncio
from random import Random

import pytest

from headwater.log.images.objects import ObjectImages
from headwater.log.images.restoring import newest_good_image
from headwater.node.chores.imager import ImageLimits
from headwater.node.node import Node
from headwater.node.shard_parts import ShardLimits, ShardParts
from headwater.storage.blobs import MemoryBlobs
from headwater.storage.store import StoreFailed
from headwater.streams import images as stream_images
from headwater.streams.apply import apply
from headwater.streams.images import image_of
from headwater.streams.state import State

from ...crash.load import Load
from ...doubles.faulty_store import FaultyStore
from ...doubles.shared_log import Proposer, SharedLog

LOG_ID = "9f2c"


class Marking(Proposer):
    """Its mark is the position that was delivered last."""

    def mark(self) -> bytes:
        return b"%d" % self._delivered


def node_on(shared: SharedLog, images: ObjectImages | None) -> Node:
    limits = ShardLimits(ImageLimits(20_000, slice_seconds=0.0, retry_seconds=0.01))
    return Node([ShardParts(State(LOG_ID), Marking(shared), images, MemoryBlobs())], limits=limits)


@pytest.mark.parametrize("odds", [0.0, 0.1])
def test_an_image_has_the_mark_of_its_position_whoever_writes_meanwhile(
    monkeypatch: pytest.MonkeyPatch, odds: float
) -> None:
    monkeypatch.setattr(stream_images, "PIECE_BYTES", 700)
    monkeypatch.setattr(stream_images, "NAMES_PER_STEP", 3)
    store = FaultyStore(random=Random(5), odds=odds)
    images = ObjectImages(store, LOG_ID)
    marks: dict[int, bytes] = {}

    async def run() -> tuple[SharedLog, State]:
        shared = SharedLog(LOG_ID)
        nodes = [node_on(shared, images), node_on(shared, None)]
        load = Load(Random(3), large=False)
        for node in nodes:
            node.start()
        for turn in range(400):
            for command in load.batch(nodes[0].only.state)[1]:
                nodes[turn % 2].submit(command, lambda _: None)
            await asyncio.sleep(0.0005)
            if turn % 10 == 0 and not odds:
                marks.update({position: images.mark(position) for position in images.positions()})
        while any(node.only.state.position < shared.position for node in nodes):
            await asyncio.sleep(0.001)
        for node in nodes:
            await node.stop()
        return shared, nodes[1].only.state

    shared, state = asyncio.run(run())
    store.heal()
    assert odds or len(marks) >= 3
    assert all(mark == b"%d" % position for position, mark in marks.items())
    found = newest_good_image(images)
    assert found is not None
    assert found.mark == b"%d" % found.state.position
    for batch in shared.decided(found.state.position):
        apply(found.state, batch)
    assert image_of(found.state) == image_of(state), "an image and the log after it are not the state"


def test_a_store_that_fails_costs_an_image_and_nothing_else() -> None:
    store = FaultyStore()
    store.odds, store.plan = 0.0, {}

    async def run() -> int:
        shared = SharedLog(LOG_ID)
        node = node_on(shared, ObjectImages(store, LOG_ID))
        load = Load(Random(3), large=False)
        node.start()
        store.fail_next("create", in_key="images/")
        while not ObjectImages(store, LOG_ID).positions():
            for command in load.batch(node.only.state)[1]:
                node.submit(command, lambda _: None)
            await asyncio.sleep(0.0005)
        await node.stop()
        return len(store.happened)

    assert asyncio.run(run()) == 1
    with pytest.raises(StoreFailed):
        store.fail_next("read")
        newest_good_image(ObjectImages(store, LOG_ID))
