"""Writing journal files: rotation, forgetting, threads, and what happens when the disk fails or is full."""

import asyncio
import os
from pathlib import Path

import pytest

from headwater.log.journal import files
from headwater.log.journal.files import FIRST_FRAME
from headwater.log.journal.journal import SPARE, Journal, end_process
from headwater.streams import batches
from headwater.streams.batches import Batch
from headwater.streams.commands import Append, Command
from headwater.testing import FaultyDisk, Step

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


def test_files_of_other_names_are_left_alone() -> None:
    bench = Workbench()
    bench.fill(1)
    bench.disk.create(DIRECTORY / "copy of 1.journal")
    assert bench.replay() == bench.committed


# -- Threads and faults --------------------------------------------------------------------------------------------


def deliver_until(journal: Journal, batches: list[list[Command]], wanted: int, failures: list[BaseException]) -> int:
    """Append batches to a started journal until enough are delivered or it fails; how many were delivered."""
    delivered: list[Batch] = []

    async def main() -> None:
        journal.start(lambda batch, _: delivered.append(batch))
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
        journal.make_ready()


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
    assert journal.make_spare() is None
    assert journal.has_room
    assert bench.replay() == bench.committed


def test_closing_finishes_more_than_a_file_of_appends() -> None:
    disk = FaultyDisk()
    journal = Journal(DIRECTORY, disk, JOURNAL_FILE_BYTES, _unexpected, spare_retry_seconds=0.01)
    batches: list[list[Command]] = [[Append("orders", b"x" * 900)] for _ in range(50)]
    assert deliver_until(journal, batches, 0, []) == 50


def test_closing_a_full_journal_gives_up_what_waits_for_space() -> None:
    disk, failures = FaultyDisk(), list[BaseException]()
    disk.capacity_bytes = 3 * JOURNAL_FILE_BYTES
    journal = Journal(DIRECTORY, disk, JOURNAL_FILE_BYTES, failures.append, spare_retry_seconds=0.01)
    batches: list[list[Command]] = [[Append("orders", b"x" * 900)] for _ in range(50)]
    delivered = deliver_until(journal, batches, 8, [])
    assert [str(failure) for failure in failures] == [
        "[Errno 28] The journal was closed before there was space for another file"
    ]
    assert not journal.has_room
    assert len(list(Journal(DIRECTORY, disk, JOURNAL_FILE_BYTES).replay(0))) == delivered < 50


def _unexpected(error: BaseException) -> None:
    raise AssertionError from error


def test_the_first_frame_follows_the_header() -> None:
    bench = Workbench()
    bench.fill(1)
    assert bench.frames(bench.files()[0])[0][0] == FIRST_FRAME
