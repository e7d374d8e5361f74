"""Writing journal files: rotation, forgetting, threads, and what happens when the disk fails or is full."""

import asyncio
import errno
import os
import threading
import time
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path

import pytest

from headwater.log.journal import files
from headwater.log.journal import journal as journal_module
from headwater.log.journal.files import FIRST_FRAME
from headwater.log.journal.journal import (
    SHORT_BATCH_BYTES_MAX,
    SHORT_SYNC_SECONDS,
    SPARE,
    SYNCS_AVERAGED,
    Journal,
    NoRoom,
    end_process,
)
from headwater.log.seam import Ticket
from headwater.streams import batches
from headwater.streams.batches import Batch
from headwater.streams.commands import Command
from headwater.streams.commands.lake import ForgetSegments
from headwater.streams.commands.streams import Append, Delete

from ...doubles.faulty_disk import FaultyDisk, Step
from .journals import DIRECTORY, JOURNAL_FILE_BYTES, Workbench

# -- Files ---------------------------------------------------------------------------------------------------------


def test_a_full_file_is_followed_by_another_named_after_its_first_position() -> None:
    bench = Workbench()
    bench.fill(12, size=500)
    firsts = [files.first_position_of(path.name) for path in bench.files()]
    assert len(firsts) > 2
    assert firsts[0] == 1
    assert bench.replay() == bench.committed
    assert all(len(bench.disk.read(path)) == JOURNAL_FILE_BYTES for path in bench.files())


def test_a_restart_continues_in_the_last_file() -> None:
    bench = Workbench()
    for _ in range(5):
        journal = bench.reopen()
        bench.commit(journal, b"once")
    assert len(bench.files()) == 1
    assert bench.replay() == bench.committed


def test_a_batch_larger_than_a_file_makes_one_longer() -> None:
    bench = Workbench()
    journal = bench.reopen()
    for payload in (b"L" * 9000, b"small", b"M" * 9000, b"N" * 9000, b"small"):
        bench.commit(journal, payload)
    assert bench.replay() == bench.committed
    assert [files.first_position_of(path.name) for path in bench.files()] == [1, 2, 3, 4, 5]


def test_a_large_first_batch_is_not_lost_when_the_log_before_it_is_forgotten() -> None:
    bench = Workbench()
    journal = bench.reopen()
    for _ in range(4):
        bench.commit(journal, b"L" * 9000)
    journal.forget(2)
    assert bench.replay(after=2) == bench.committed[2:]


def test_forgetting_removes_whole_files_only() -> None:
    bench = Workbench()
    journal = bench.fill(20)
    middle = files.first_position_of(bench.files()[2].name)
    journal.forget(middle)
    assert files.first_position_of(bench.files()[0].name) == middle
    journal.forget(middle - 1)
    assert files.first_position_of(bench.files()[0].name) == middle
    assert bench.replay(after=middle) == bench.committed[middle:]


def test_the_last_file_is_never_forgotten() -> None:
    bench = Workbench()
    journal = bench.fill(20)
    journal.forget(20)
    assert len(bench.files()) == 1
    assert bench.replay(after=20) == []
    bench.commit(bench.reopen(after=20), b"next")
    assert bench.replay(after=20) == bench.committed[20:]


def test_after_a_cut_the_next_record_begins_a_file_and_torn_ends_are_gone() -> None:
    bench = Workbench()
    journal = bench.reopen()
    bench.commit(journal, b"before")
    torn = bench.files()[0].parent / "torn"
    assert bench.disk.names(torn) == []  # Which creates the folder.
    file = bench.disk.create(torn / "00000000000000000009-0.torn")
    file.write([b"half a frame"], 0)
    file.close()
    journal.cut()
    assert not journal.writer.has_space_for(1), "nothing may be committed on the loop, which would wait for the disk"
    bench.commit(journal, b"after")
    bench.commit(journal, b"later")
    assert [files.first_position_of(path.name) for path in bench.files()] == [1, 2]
    assert bench.disk.names(torn) == []
    assert journal.writer.has_space_for(1)
    journal.forget(2)
    assert [files.first_position_of(path.name) for path in bench.files()] == [2]
    assert asyncio.run(journal.has_forgotten(1))
    assert not asyncio.run(journal.has_forgotten(2))


def test_a_cut_of_an_empty_file_begins_no_other() -> None:
    bench = Workbench()
    journal = bench.reopen()
    journal.cut()
    bench.commit(journal, b"first")
    assert len(bench.files()) == 1
    assert bench.replay() == bench.committed


def test_files_of_other_names_are_left_alone() -> None:
    bench = Workbench()
    bench.fill(1)
    bench.disk.create(DIRECTORY / "copy of 1.journal")
    assert bench.replay() == bench.committed


# -- Syncs on the loop ---------------------------------------------------------------------------------------------


class Clock:
    """A clock that each look at it moves on by a step."""

    def __init__(self) -> None:
        self.now = self.step_seconds = 0.0

    def __call__(self) -> float:
        self.now += self.step_seconds
        return self.now


class Loop:
    """A started journal on a loop, and in which thread each of its batches was synced."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, file_bytes: int = JOURNAL_FILE_BYTES) -> None:
        self.clock, self.disk, self.failures = Clock(), FaultyDisk(), list[BaseException]()
        monkeypatch.setattr(journal_module, "monotonic", self.clock)
        self.journal = Journal(DIRECTORY, self.disk, file_bytes, self.failures.append, spare_retry_seconds=0.01)
        self.here: list[bool] = []
        self.delivered: list[Ticket | None] = []
        list(self.journal.replay(0))

    def run(self, story: Callable[[], Awaitable[None]]) -> None:
        async def main() -> None:
            self.journal.start(lambda _, ticket: self.delivered.append(ticket), lambda _: None)
            self.disk.on_step = self._watch
            await story()
            self.journal.close()

        asyncio.run(main())

    def _watch(self, step: Step, path: Path) -> None:
        if step is Step.SYNC and path.name.endswith(".journal"):
            self.here.append(threading.current_thread() is threading.main_thread())

    async def commit(self, count: int, payload: bytes = b"x") -> list[bool]:
        """Commit batches one after another, and return which of them were synced on the loop."""
        return [here for _ in range(count) for here in await self.commit_one(Append("orders", payload))]

    async def commit_one(self, command: Command) -> list[bool]:
        """Commit a batch of one command, and return whether it was synced on the loop, for each of its syncs."""
        self.here.clear()
        before = len(self.delivered)
        self.journal.append(before, [command], before)
        async with asyncio.timeout(10):
            while len(self.delivered) == before and not self.failures:
                await asyncio.sleep(0.0005)
        return list(self.here)


def test_a_batch_is_synced_on_the_loop_while_syncs_are_short_on_average(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = Loop(monkeypatch, file_bytes=1 << 21)
    known = SYNCS_AVERAGED - 5  # After so many short ones, the average is half of what it was.

    async def story() -> None:
        assert await loop.commit(known) == [False] * known, "at first, syncs are not known to be short"
        assert await loop.commit(3) == [True] * 3
        assert await loop.commit(3, b"x" * SHORT_BATCH_BYTES_MAX) == [False] * 3, "these take long to write"
        loop.clock.step_seconds = 4 * SHORT_SYNC_SECONDS
        assert await loop.commit(1) == [True]
        loop.clock.step_seconds = 0.0
        assert await loop.commit(1) == [True], "one that is a little longer does not matter"
        loop.clock.step_seconds = 40 * SHORT_SYNC_SECONDS
        assert await loop.commit(2) == [True, False], "the first was so long that the next must not hold the loop"
        loop.clock.step_seconds = 0.0
        assert set(await loop.commit(SYNCS_AVERAGED)) == {False}
        await loop.commit(2 * SYNCS_AVERAGED)
        assert await loop.commit(1) == [True]

    loop.run(story)
    assert loop.failures == []
    replayed = list(Journal(DIRECTORY, loop.disk, 1 << 21).replay(0))
    assert len(replayed) == len(loop.delivered) == known + 3 + 3 + 4 + 3 * SYNCS_AVERAGED + 1


def test_a_batch_for_which_another_file_may_be_needed_is_left_to_the_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop(monkeypatch, file_bytes=16 * JOURNAL_FILE_BYTES)

    async def story() -> None:
        await loop.commit(SYNCS_AVERAGED)
        on_loop = await loop.commit(60, b"x" * 2000)
        assert 5 < sum(on_loop) < 60

    loop.run(story)
    assert loop.failures == []


def test_a_failed_sync_on_the_loop_ends_the_process_too(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop(monkeypatch, file_bytes=1 << 20)

    async def story() -> None:
        await loop.commit(SYNCS_AVERAGED + 1)
        loop.disk.fail_next(Step.SYNC, in_name=".journal")
        await loop.commit(1)

    loop.run(story)
    assert ["Input/output error" in str(failure) for failure in loop.failures] == [True]
    assert len(loop.delivered) == SYNCS_AVERAGED + 1


def test_a_batch_whose_record_needs_another_file_is_left_to_the_thread_whatever_it_was_taken_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = Loop(monkeypatch, file_bytes=16 * JOURNAL_FILE_BYTES)
    forget = ForgetSegments(tuple(f"{number:040}" for number in range(1000)))
    large = len(batches.encode(0, [forget]))
    assert forget.cost_bytes() < large // 100, "what a command takes in the log is known only roughly"

    async def story() -> None:
        await loop.commit(SYNCS_AVERAGED)
        while loop.journal.writer.has_space_for(large):
            assert await loop.commit(1, b"x" * 1000) == [True]
        assert loop.journal.writer.has_space_for(2000)
        assert await loop.commit_one(forget) == [False]

    loop.run(story)
    assert loop.failures == []


def test_what_is_appended_after_the_end_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop(monkeypatch, file_bytes=1 << 20)

    async def story() -> None:
        await loop.commit(SYNCS_AVERAGED + 1)
        loop.journal.close()
        loop.journal.append(0, [Append("orders", b"late")], 0)

    loop.run(story)
    assert loop.failures == [], "a server that stops must not end as if its disk had failed"
    assert len(list(Journal(DIRECTORY, loop.disk, 1 << 20).replay(0))) == SYNCS_AVERAGED + 1


# -- Threads and faults --------------------------------------------------------------------------------------------


def deliver_until(
    journal: Journal,
    batches: list[list[Command]],
    wanted: int,
    failures: list[BaseException],
    given_back: list[Ticket] | None = None,
) -> int:
    """Append batches to a started journal until enough are delivered or it fails; how many were delivered."""
    delivered: list[Batch] = []

    async def main() -> None:
        journal.start(lambda batch, _: delivered.append(batch), ([] if given_back is None else given_back).append)
        for at, batch in enumerate(batches):
            journal.append(at, batch, at)
        async with asyncio.timeout(10):
            while len(delivered) < wanted and not failures:
                await asyncio.sleep(0.001)
        journal.close()
        await asyncio.sleep(0)

    list(journal.replay(0))
    asyncio.run(main())
    return len(delivered)


@pytest.mark.parametrize(
    ("step", "in_name"), [(Step.WRITE, ".journal"), (Step.SYNC, ".journal"), (Step.RENAME, "spare")]
)
def test_a_failed_step_of_a_commit_ends_it_and_nothing_is_delivered_after(step: Step, in_name: str) -> None:
    disk, failures = FaultyDisk(), list[BaseException]()
    journal = Journal(DIRECTORY, disk, JOURNAL_FILE_BYTES, failures.append)
    batches: list[list[Command]] = [[Append("orders", b"x" * 900)] for _ in range(20)]
    started = False

    def fail_later(now: Step, path: Path) -> None:
        nonlocal started
        if now is Step.SYNC and path.name.endswith(".journal") and not started:
            started = True
            disk.fail_next(step, in_name=in_name)

    disk.on_step = fail_later
    delivered = deliver_until(journal, batches, len(batches), failures)
    assert ["Input/output error" in str(failure) for failure in failures] == [True]
    assert delivered < len(batches)
    disk.lose_power()
    replayed = list(Journal(DIRECTORY, disk, JOURNAL_FILE_BYTES).replay(0))
    assert delivered <= len(replayed) <= delivered + 1


@pytest.mark.parametrize("step", [Step.WRITE, Step.SYNC])
def test_a_failed_header_ends_the_commit_that_needed_a_file(step: Step) -> None:
    bench = Workbench()
    journal = bench.fill(3)
    bench.disk.fail_next(step, in_name=SPARE)
    with pytest.raises(OSError, match="Input/output error"):
        for _ in range(10):
            bench.commit(journal, b"x" * 500)
    bench.disk.lose_power()
    assert bench.replay() == bench.committed


def test_a_bug_in_the_commit_thread_ends_the_process_too(monkeypatch: pytest.MonkeyPatch) -> None:
    failures: list[BaseException] = []
    journal = Journal(DIRECTORY, FaultyDisk(), JOURNAL_FILE_BYTES, failures.append)

    def broken(at: int, batch: list[Command]) -> bytes:
        raise RuntimeError("a bug")

    monkeypatch.setattr(batches, "encode", broken)
    assert deliver_until(journal, [[Append("orders", b"")]], 1, failures) == 0
    assert str(failures[0]) == "a bug"


def test_a_failed_journal_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    codes: list[int] = []
    monkeypatch.setattr(os, "_exit", codes.append)
    end_process(OSError("broken"))
    assert codes == [1]


def test_a_first_start_on_a_full_disk_fails() -> None:
    journal = Journal(DIRECTORY, FaultyDisk(capacity_bytes=JOURNAL_FILE_BYTES // 2), JOURNAL_FILE_BYTES)
    list(journal.replay(0))
    with pytest.raises(OSError, match="No space left"):
        journal.writer.make_ready()


def test_without_a_spare_there_is_no_room_until_one_can_be_made() -> None:
    bench = Workbench()
    journal = bench.fill(3)
    bench.disk.capacity_bytes = bench.disk.used_bytes
    history = [journal.has_room]
    while history[-1]:
        bench.commit(journal, b"x" * 500)
        history.append(journal.has_room)
    assert len(bench.files()) == 2
    bench.commit(journal, b"a delete is still accepted")
    assert not bench.reopen().has_room
    bench.disk.capacity_bytes = None
    assert journal.writer.make_spare() is None
    assert journal.has_room
    assert bench.replay() == bench.committed


def test_closing_finishes_more_than_a_file_of_appends() -> None:
    disk = FaultyDisk()
    journal = Journal(DIRECTORY, disk, JOURNAL_FILE_BYTES, _unexpected, spare_retry_seconds=0.01)
    batches: list[list[Command]] = [[Append("orders", b"x" * 900)] for _ in range(50)]
    assert deliver_until(journal, batches, 0, []) == 50


def test_a_batch_that_needs_space_is_given_back_when_there_is_none() -> None:
    disk, given_back = FaultyDisk(), list[Ticket]()
    disk.capacity_bytes = 3 * JOURNAL_FILE_BYTES
    journal = Journal(DIRECTORY, disk, JOURNAL_FILE_BYTES, _unexpected, spare_retry_seconds=0.01)
    batches: list[list[Command]] = [[Append("orders", b"x" * 900)] for _ in range(50)]
    batches.append([Append("orders", b"x" * 900), Delete("orders")])
    batches.append([Delete("orders")])
    delivered = deliver_until(journal, batches, 8, [], given_back)
    assert not journal.has_room
    assert given_back == list(range(delivered - 1, 51)), "all but the first ones and the delete at the end"
    replayed = list(Journal(DIRECTORY, disk, JOURNAL_FILE_BYTES).replay(0))
    assert [batch.commands for batch in replayed] == [*batches[: delivered - 1], batches[-1]]


def test_closing_a_full_journal_gives_back_what_waits_for_space() -> None:
    disk, given_back = FaultyDisk(), list[Ticket]()
    disk.capacity_bytes = 3 * JOURNAL_FILE_BYTES
    journal = Journal(DIRECTORY, disk, JOURNAL_FILE_BYTES, _unexpected, spare_retry_seconds=0.01)
    batches: list[list[Command]] = [[Delete("orders" * 100)] for _ in range(50)]
    delivered = deliver_until(journal, batches, 8, [], given_back)
    assert given_back == list(range(delivered, 50))
    assert len(list(Journal(DIRECTORY, disk, JOURNAL_FILE_BYTES).replay(0))) == delivered < 50


def test_the_end_of_the_last_file_is_kept_for_commands_that_free_space() -> None:
    bench = Workbench(file_bytes=64 * 1024)
    journal = bench.fill(1)
    bench.disk.capacity_bytes = bench.disk.used_bytes
    with pytest.raises(NoRoom):
        for _ in range(1000):
            bench.commit(journal, b"x" * 500)
    assert len(bench.files()) == 2
    for number in range(30):
        bench.committed.append(journal.commit(number, [Delete(f"orders-{number}")]))
    with pytest.raises(NoRoom):
        bench.commit(journal, b"x")
    assert bench.replay() == bench.committed


def test_a_file_of_smaller_ones_is_not_made_longer_on_a_full_disk() -> None:
    bench = Workbench()
    bench.fill(1)
    bench.file_bytes = 8 * JOURNAL_FILE_BYTES
    journal = bench.open()
    assert list(journal.replay(0)) == bench.committed
    bench.disk.capacity_bytes = bench.disk.used_bytes
    journal.writer.make_ready()
    with pytest.raises(NoRoom):
        for _ in range(100):
            bench.commit(journal, b"x" * 500)
    assert bench.replay() == bench.committed


def test_an_empty_file_without_room_is_replaced_at_the_start() -> None:
    bench = Workbench()
    bench.reopen()
    bench.file_bytes = 8 * JOURNAL_FILE_BYTES
    journal = bench.reopen()
    assert [len(bench.disk.read(path)) for path in bench.files()] == [bench.file_bytes]
    bench.disk.capacity_bytes = bench.disk.used_bytes
    for _ in range(20):
        bench.commit(journal, b"x" * 500)
    assert bench.replay() == bench.committed


@pytest.mark.parametrize(
    ("error", "words"), [(errno.ENOSPC, "The disk is full"), (errno.EDQUOT, "The disk is full"), (errno.EMFILE, "open")]
)
def test_a_shortage_says_what_is_missing(error: int, words: str) -> None:
    bench = Workbench()
    journal = bench.fill(1)
    bench.disk.fail_next(Step.LINK, error, SPARE)
    while journal.has_room:
        bench.commit(journal, b"x" * 500)
    assert words in journal.shortage and ("disk" in journal.shortage) == (error != errno.EMFILE)
    assert journal.writer.make_spare() is None and journal.has_room


def fill_disk(disk: FaultyDisk, journal: Journal, tries: list[float], then: Callable[[], Awaitable[None]]) -> None:
    """Run a journal on a disk that is full after its second file, with the times at which a spare is tried."""

    async def main() -> None:
        journal.start(lambda batch, ticket: None, lambda ticket: None)
        disk.on_step = lambda step, path: tries.append(time.monotonic()) if step is Step.LINK else None
        disk.capacity_bytes = disk.used_bytes
        for number in range(5):
            journal.append(number, [Append("orders", b"x" * 900)], number)
        async with asyncio.timeout(10):
            while journal.has_room:
                await asyncio.sleep(0.001)
            await then()
        journal.close()

    list(journal.replay(0))
    asyncio.run(main())


def test_on_a_full_disk_spares_are_tried_ever_more_rarely() -> None:
    disk, tries = FaultyDisk(), list[float]()
    journal = Journal(DIRECTORY, disk, JOURNAL_FILE_BYTES, _unexpected, spare_retry_seconds=0.002)

    async def wait() -> None:
        while len(tries) < 6:
            await asyncio.sleep(0.001)

    fill_disk(disk, journal, tries, wait)
    pauses = [later - earlier for earlier, later in pairwise(tries[:6])]
    assert all(pause >= 0.002 * 2**number for number, pause in enumerate(pauses)), pauses
    assert journal.writer.spare_failures >= 6


def test_a_journal_file_that_is_removed_is_a_reason_to_try_a_spare_at_once() -> None:
    disk, tries = FaultyDisk(), list[float]()
    journal = Journal(DIRECTORY, disk, JOURNAL_FILE_BYTES, _unexpected, spare_retry_seconds=1000)

    async def remove() -> None:
        journal.forget(4)
        while not journal.has_room:
            await asyncio.sleep(0.001)

    fill_disk(disk, journal, tries, remove)
    assert len(tries) == 2


def _unexpected(error: BaseException) -> None:
    raise AssertionError from error


def test_the_first_frame_follows_the_header() -> None:
    bench = Workbench()
    bench.fill(1)
    assert bench.frames(bench.files()[0])[0][0] == FIRST_FRAME
