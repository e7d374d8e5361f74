"""Disks that fail, fill up and rot: the server ends, refuses or falls back; it never serves wrong bytes."""

import asyncio
import logging
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from headwater.log import directory
from headwater.log.journal.files import JournalDamaged
from headwater.log.journal.journal import SPARE
from headwater.protocol.refusals import Code, Refusal
from headwater.streams.commands.streams import Append, Create, Delete
from headwater.streams.images import image_of
from headwater.streams.replies import Appended, Created, Deleted, Reply

from ..doubles.faulty_disk import FaultyDisk, Step
from .history import History
from .load import Load
from .machine import DATA, JOURNAL_FILE_BYTES, Machine
from .nodes import RunningNode, running_node, until
from .seeds import all_seeds_run, for_each_seed

# -- Failed writes and syncs --------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [Step.WRITE, Step.SYNC])
def test_after_a_failed_commit_nothing_is_acknowledged(step: Step) -> None:
    async def fail(disk: FaultyDisk, history: History, load: Load) -> None:
        async with running_node(disk, history) as running:
            await running.ask(Create("orders", "text/plain"))
            disk.fail_next(step, in_name=".journal")
            for _ in range(20):
                running.node.submit(load.batch(running.node.only.state)[1][0], lambda _: None)
            await until(lambda: bool(running.failures))
            acknowledged = history.acknowledged
            for _ in range(20):
                running.node.submit(load.batch(running.node.only.state)[1][0], lambda _: None)
            await asyncio.sleep(0.01)
            assert history.acknowledged == acknowledged
            assert "Input/output error" in str(running.failures[0])

    def run(seed: int) -> None:
        random, history = Random(seed), History()
        disk = FaultyDisk(random)
        asyncio.run(fail(disk, history, Load(random, large=False)))
        if random.random() < 0.5:
            disk.lose_power()
        else:
            disk.kill_process()
        RunningNode(disk, history)

    for_each_seed(15, run)


def test_an_image_that_fails_harms_nothing_and_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    async def work(disk: FaultyDisk, history: History) -> None:
        async with running_node(disk, history) as running:
            await running.ask(Create("orders", "text/plain"))
            for step in (Step.LINK, Step.WRITE, Step.SYNC, Step.RENAME):
                disk.fail_next(step, in_name=".tmp")
            async with asyncio.timeout(30):
                while not any(path.suffix == ".image" for path in disk.paths()):
                    reply = await running.ask(Append("orders", b"x" * 1000, content_type="text/plain"))
                    assert isinstance(reply, Appended)
            assert not running.failures

    disk, history = FaultyDisk(Random(1)), History()
    with caplog.at_level(logging.ERROR):
        asyncio.run(work(disk, history))
    assert caplog.text.count("no image was taken") == 4
    disk.lose_power()
    RunningNode(disk, history)


# -- Full disks ---------------------------------------------------------------------------------------------------


def append(size: int) -> Append:
    return Append("orders", b"x" * size, content_type="text/plain")


async def fill_up(disk: FaultyDisk, running: RunningNode) -> Refusal:
    """Append until the disk is full, and return the refusal."""
    await running.ask(Create("orders", "text/plain"))
    disk.capacity_bytes = disk.used_bytes
    while True:
        reply = await running.ask(append(1000))
        if isinstance(reply, Refusal):
            return reply


def test_a_full_disk_refuses_appends_takes_deletes_and_heals() -> None:
    async def work(disk: FaultyDisk, history: History) -> None:
        async with running_node(disk, history) as running:
            refusal = await fill_up(disk, running)
            assert (refusal.code, running.journal.has_room) == (Code.OVERLOADED, False)
            assert "The disk is full" in refusal.detail
            assert isinstance(await running.ask(Create("more", "text/plain")), Refusal)
            assert isinstance(await running.ask(Delete("orders")), Deleted)
            disk.capacity_bytes = None
            await until(lambda: running.journal.has_room)
            assert isinstance(await running.ask(Create("more", "text/plain")), Created)
            assert not running.failures

    disk, history = FaultyDisk(Random(1)), History()
    asyncio.run(work(disk, history))
    disk.lose_power()
    RunningNode(disk, history)


def test_deletes_alone_make_room_on_a_full_disk() -> None:
    """They free the log before the older of two images, if there is a little space for these."""

    async def work(disk: FaultyDisk, history: History) -> None:
        async with running_node(disk, history) as running:
            names = ["orders", *(f"small-{number}" for number in range(15))]
            for name in names[1:]:
                await running.ask(Create(name, "text/plain"))
            await fill_up(disk, running)
            # An image that is written while the disk fills up would take the remaining space.
            await until(lambda: running.is_at_rest)
            disk.capacity_bytes = disk.used_bytes + JOURNAL_FILE_BYTES - 1
            while not running.journal.has_room:
                assert names, "everything is deleted, and there is still no room"
                assert isinstance(await running.ask(Delete(names.pop(0))), Deleted)
                await asyncio.sleep(0.06)
            assert disk.used_bytes <= disk.capacity_bytes
            assert isinstance(await running.ask(Create("orders", "text/plain")), Created)

    disk, history = FaultyDisk(Random(1)), History()
    asyncio.run(work(disk, history))
    disk.lose_power()
    RunningNode(disk, history)


def test_one_delete_of_a_large_stream_is_enough_for_a_full_disk_to_recover() -> None:
    async def work(disk: FaultyDisk, history: History) -> None:
        async with running_node(disk, history) as running:
            await fill_up(disk, running)
            await until(lambda: running.is_at_rest)
            # A little space for the images.
            disk.capacity_bytes = disk.used_bytes + JOURNAL_FILE_BYTES - 1
            assert isinstance(await running.ask(Delete("orders")), Deleted)
            await until(lambda: running.journal.has_room)
            assert isinstance(await running.ask(Create("orders", "text/plain")), Created)

    disk, history = FaultyDisk(Random(1)), History()
    asyncio.run(work(disk, history))
    disk.lose_power()
    RunningNode(disk, history)


def test_a_full_disk_is_not_worn_by_images_that_free_nothing() -> None:
    async def work(disk: FaultyDisk, history: History) -> int:
        async with running_node(disk, history) as running:
            await fill_up(disk, running)
            await until(lambda: running.is_at_rest)
            disk.capacity_bytes = disk.used_bytes + JOURNAL_FILE_BYTES - 1
            await asyncio.sleep(1)
            position = running.node.only.state.position
            await asyncio.sleep(1)
            assert not running.journal.has_room
            return running.node.only.state.position - position

    assert asyncio.run(work(FaultyDisk(Random(1)), History())) == 0


def test_a_delete_does_not_wait_behind_appends_that_no_longer_fit() -> None:
    async def work(disk: FaultyDisk, history: History) -> None:
        async with running_node(disk, history) as running:
            for name in ("orders", "large"):
                await running.ask(Create(name, "text/plain"))
            making = threading.Event()

            def delay(step: Step, path: Path) -> None:
                if step is Step.LINK and path.name == SPARE:
                    making.wait(10)

            disk.on_step = delay
            replies: list[Reply] = []
            appends = 3 * JOURNAL_FILE_BYTES // 1000
            # They are queued while there is room: the spare that the second file needs is still being made.
            for number in range(appends):
                running.node.submit(append(1000), replies.append)
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.1):
                        await until(lambda: len(replies) > number)  # noqa: B023 It is called at once.
            running.node.submit(Delete("large"), replies.append)
            assert len(replies) < appends
            disk.capacity_bytes = disk.used_bytes
            making.set()
            await until(lambda: len(replies) == appends + 1)
            assert isinstance(replies[-1], Deleted)
            refusals = [reply for reply in replies if isinstance(reply, Refusal)]
            assert refusals and all(refusal.code is Code.OVERLOADED for refusal in refusals)
            assert "The disk is full" in refusals[0].detail
            assert isinstance(await running.ask(Delete("orders")), Deleted)
            assert not running.failures

    disk, history = FaultyDisk(Random(1)), History()
    asyncio.run(work(disk, history))
    disk.lose_power()
    RunningNode(disk, history)


def test_a_server_starts_on_a_full_disk_and_takes_deletes() -> None:
    async def fill(disk: FaultyDisk, history: History) -> None:
        async with running_node(disk, history) as running:
            await fill_up(disk, running)

    async def delete(disk: FaultyDisk, history: History) -> None:
        async with running_node(disk, history) as running:
            assert not running.journal.has_room
            assert isinstance(await running.ask(append(10)), Refusal)
            assert isinstance(await running.ask(Delete("orders")), Deleted)

    disk, history = FaultyDisk(Random(1)), History()
    asyncio.run(fill(disk, history))
    disk.lose_power()
    asyncio.run(delete(disk, history))


# -- Bits that rot ------------------------------------------------------------------------------------------------


def aged_machine(seed: int) -> Machine:
    """A machine with several journal files and two images, and commands after the newest."""
    machine = Machine(seed)
    machine.start()
    for _ in range(3):
        for _ in range(25):
            machine.commit()
        machine.finish_image()
    for _ in range(12):
        machine.commit()
    return machine


def test_a_flipped_bit_is_found_or_harmless() -> None:
    """Damage is refused, avoided by an older image or, in the last batch, cut like a torn end; it is never served."""
    outcomes: Counter[str] = Counter()

    def run(seed: int) -> None:
        machine = aged_machine(seed)
        before = image_of(machine.state)
        machine.commit()
        whole = image_of(machine.state)
        for _ in range(40):
            disk = machine.disk.copy(machine.random)
            path = machine.random.choice(disk.paths())
            bit = machine.random.randrange(len(disk.read(path)) * 8)
            disk.flip_bit(path, bit)
            try:
                state = directory.recover(DATA, JOURNAL_FILE_BYTES, disk).state
            except JournalDamaged:
                outcomes[f"refused for {path.suffix}"] += 1
                continue
            cut = state.position < machine.state.position
            assert image_of(state) == (before if cut else whole), f"bit {bit} of {path} was served"
            fell_back = any(path.suffix == ".damaged" for path in disk.paths())
            outcomes["cut" if cut else "fell back" if fell_back else "harmless"] += 1

    for_each_seed(15, run)
    if all_seeds_run():
        expected = {"refused for .journal", "refused for .json", "cut", "fell back", "harmless"}
        assert set(outcomes) == expected, outcomes


def test_a_flipped_bit_cuts_the_last_batch_only() -> None:
    """Every bit of the last batch and of the one before: the last is cut as torn, the other is refused."""
    machine = aged_machine(1)
    ends = [machine.journal.writer.end]
    while len({path for path, _ in ends}) > 1 or len(ends) < 3:
        machine.commit()
        ends = [*ends[-2:], machine.journal.writer.end]
    (path, first), (_, second), (_, third) = ends
    for begin, end, outcome in ((first, second, "refused"), (second, third, "cut")):
        for at in range(begin, min(end, begin + 200)):
            disk = machine.disk.copy(machine.random)
            if not disk.read(path)[at]:
                continue  # perhaps padding, which may rot unnoticed
            disk.flip_bit(path, at * 8)
            try:
                state = directory.recover(DATA, JOURNAL_FILE_BYTES, disk).state
                found = "cut" if state.position < machine.state.position else "unnoticed"
            except JournalDamaged:
                found = "refused"
            assert found == outcome, f"byte {at} of {path}"
