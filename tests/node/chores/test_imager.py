"""Images are taken while commands are applied, and the log before them is dropped."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from headwater.log import directory
from headwater.log.images.files import ImageFiles
from headwater.log.seam import Ticket
from headwater.node.chores.imager import ImageLimits
from headwater.node.node import Node
from headwater.node.shard_parts import ShardLimits, ShardParts
from headwater.streams import images as stream_images
from headwater.streams.apply import apply
from headwater.streams.batches import Batch
from headwater.streams.commands import Command
from headwater.streams.commands.streams import Append, Create, Delete
from headwater.streams.images import image_of
from headwater.streams.state import State

from ...crash.load import Load
from ...doubles.faulty_disk import FaultyDisk

DATA = Path("/data")
JOURNAL_FILE_BYTES = 8192
IMAGE_LOG_BYTES = 20_000


@pytest.fixture(autouse=True)
def many_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_images, "PIECE_BYTES", 700)
    monkeypatch.setattr(stream_images, "NAMES_PER_STEP", 3)


def anything(seed: int) -> Callable[[State], list[Command]]:
    """Commands of every kind."""
    load = Load(Random(seed), large=False)
    return lambda state: load.batch(state)[1]


def fail(error: BaseException) -> None:
    raise AssertionError from error


class Run:
    """A running node, and every batch that it applied."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.disk = FaultyDisk()
        self.batches: list[Batch] = []
        self.images: dict[int, list[bytes]] = {}
        self.used_bytes: list[int] = []
        drop_old = ImageFiles.drop_old

        def note_then_drop(files: ImageFiles, *, damaged: bool = False) -> int:
            position = files.positions()[0]
            self.images[position] = list(files.read(position))
            upto = drop_old(files, damaged=damaged)
            self.used_bytes.append(self.disk.used_bytes)
            return upto

        monkeypatch.setattr(ImageFiles, "drop_old", note_then_drop)

    async def work(self, turns: int, commands: Callable[[State], list[Command]]) -> Node:
        """Submit commands for this many turns of the loop, and stop as a server does."""
        recovered = directory.recover(DATA, JOURNAL_FILE_BYTES, self.disk, fail)
        node = Node([ShardParts(*recovered)], limits=ShardLimits(ImageLimits(IMAGE_LOG_BYTES, slice_seconds=0.0)))
        deliver = node.only.committer.deliver

        def note(batch: Batch, ticket: Ticket | None) -> None:
            self.batches.append(batch)
            deliver(batch, ticket)

        node.only.committer.deliver = note  # type: ignore[method-assign]
        node.start()
        for _ in range(turns):
            for command in commands(node.only.state):
                node.submit(command, lambda _: None)
            await asyncio.sleep(0.0005)
        await node.stop()
        return node

    def state_at(self, position: int) -> State:
        state = State(directory.recover(DATA, JOURNAL_FILE_BYTES, self.disk, fail).journal.log_id)
        for batch in self.batches:
            if batch.last_position <= position:
                apply(state, batch)
        return state


def test_an_image_taken_between_commands_is_the_state_at_its_position(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = Run(monkeypatch)
    asyncio.run(run.work(300, anything(3)))
    assert len(run.images) >= 3
    for position, pieces in run.images.items():
        assert pieces == image_of(run.state_at(position)), f"the image at {position} is not a state that ever was"


def test_a_restart_from_such_an_image_is_the_state_that_was_left(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(monkeypatch)
    node = asyncio.run(run.work(200, anything(4)))
    again = directory.recover(DATA, JOURNAL_FILE_BYTES, run.disk, fail)
    assert again.images.positions()
    assert image_of(again.state) == image_of(node.only.state)


def new_life(_: State) -> list[Command]:
    """The state stays small, the log does not."""
    appends = [Append("orders", b"x" * 500, content_type="text/plain") for _ in range(3)]
    return [Delete("orders"), Create("orders", "text/plain"), *appends]


def test_disk_use_stays_bounded_in_a_long_run(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(monkeypatch)
    asyncio.run(run.work(500, new_life))
    assert run.batches[-1].last_position > 2400
    assert max(run.used_bytes) < 100_000, "1.5 KB a turn were logged, 750 KB in all"
    assert run.disk.used_bytes < 100_000
