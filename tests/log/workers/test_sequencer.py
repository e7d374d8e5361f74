"""The sequencer: who is served, who is dropped, and what a full disk means for several proposers."""

import asyncio
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from headwater.log.journal.journal import Journal
from headwater.log.seam import CommandLog, Ticket
from headwater.log.workers.shared_journal import HistoryDropped, SharedJournal
from headwater.streams.commands import Command
from headwater.streams.commands.streams import Append, Delete

from ...doubles.faulty_disk import FaultyDisk, Step
from ...doubles.sequencing import SequencedJournal
from ..test_command_log import Deliveries, no_batch_is_given_back, until

FILE_BYTES = 4096


Open = Callable[..., SequencedJournal]


@pytest.fixture
def open_journal(tmp_path: Path) -> Iterator[Open]:
    """Opens a journal, on the real disk unless another is given; all are ended with the test."""
    opened: list[SequencedJournal] = []

    def open(disk: FaultyDisk | None = None, file_bytes: int = FILE_BYTES, **more: int) -> SequencedJournal:
        directory = tmp_path / "journal" if disk is None else Path("/journal")
        opened.append(SequencedJournal(directory, disk=disk, file_bytes=file_bytes, **more))
        return opened[-1]

    yield open
    for journal in opened:
        journal.end()


@pytest.fixture
def journal(open_journal: Open) -> Iterator[SequencedJournal]:
    opened = open_journal()
    yield opened
    assert opened.failures == []


def an_append(size: int = 10, name: str = "orders") -> list[Command]:
    return [Append(name, b"x" * size)]


def start(proposer: CommandLog, given_back: list[Ticket] | None = None) -> Deliveries:
    """Catch up and begin; what the proposer receives."""
    deliveries = Deliveries()
    for batch in proposer.replay(0):
        deliveries.receive(batch, None)
    proposer.start(deliveries.receive, no_batch_is_given_back if given_back is None else given_back.append)
    return deliveries


async def arrival(deliveries: Deliveries, count: int) -> None:
    """Wait until so many batches have arrived."""
    await until(lambda: len(deliveries) == count)


# -- Group commits -----------------------------------------------------------------------------------------------------


def test_batches_of_several_proposers_that_have_gathered_are_one_sync(open_journal: Open) -> None:
    disk, syncs = FaultyDisk(), list[Path]()
    journal = open_journal(disk, 1 << 20)

    async def main() -> None:
        proposers = [journal.proposer() for _ in range(4)]
        received = [start(proposer) for proposer in proposers]
        disk.on_step = lambda step, path: syncs.append(path) if step is Step.SYNC else None
        for at in range(25):
            for proposer in proposers:
                proposer.append(at, an_append(), at)
        await until(lambda: all(len(one) == 100 for one in received))
        disk.on_step = lambda step, path: None
        assert all(one.batches == received[0].batches for one in received)
        for proposer in proposers:
            proposer.close()

    asyncio.run(main())
    assert len(syncs) < 50, "every sync is for what all proposers had sent"
    assert journal.failures == []


def test_a_data_directory_has_the_same_journal_with_and_without_a_sequencer(open_journal: Open, tmp_path: Path) -> None:
    journal = open_journal()

    async def main() -> Deliveries:
        ours, theirs = journal.proposer(), journal.proposer()
        received, _ = start(ours), start(theirs)
        for at in range(20):
            ours.append(at, an_append(700), at)
            theirs.append(at, an_append(300), at)
        await until(lambda: len(received) == 40)
        ours.close()
        theirs.close()
        return received

    received = asyncio.run(main())
    journal.close()
    assert list(Journal(tmp_path / "journal", file_bytes=FILE_BYTES).replay(0)) == received.batches


# -- Barriers ----------------------------------------------------------------------------------------------------------


def note(seen: "asyncio.Future[int]", received: Deliveries, fresh: bool) -> None:
    assert fresh
    seen.set_result(len(received))


def test_a_barrier_is_reached_when_everything_that_another_received_has_arrived(journal: SequencedJournal) -> None:
    async def main() -> None:
        ours, theirs = journal.proposer(), journal.proposer()
        received, received_by_them = start(ours), start(theirs)
        for at in range(200):
            theirs.append(at, an_append(), at)
            await arrival(received_by_them, at + 1)
            seen = asyncio.get_running_loop().create_future()
            ours.barrier(partial(note, seen, received))
            assert await seen >= at + 1
        ours.close()
        theirs.close()

    asyncio.run(main())


def test_a_barrier_costs_nothing_where_nothing_is_missing(journal: SequencedJournal) -> None:
    async def main() -> None:
        ours = journal.proposer()
        received = start(ours)
        ours.append(0, an_append(), 1)
        await until(lambda: len(received) == 1)
        reached: list[bool] = []
        ours.barrier(reached.append)
        assert reached == [True]
        ours.close()

    asyncio.run(main())


# -- Proposers that stop reading, or leave -----------------------------------------------------------------------------


def test_a_proposer_that_does_not_read_is_dropped_and_holds_up_nobody(open_journal: Open) -> None:
    journal = open_journal(file_bytes=1 << 20, unread_bytes_max=1 << 20)

    async def main() -> None:
        ours, deaf = journal.proposer(), journal.proposer()
        received = start(ours)
        list(deaf.replay(0))  # It is connected, and never starts to read.
        for at in range(60):
            ours.append(at, an_append(100_000), at)
        await until(lambda: len(received) == 60)
        await until(lambda: journal.dropped == [os.getpid()])
        ours.append(60, an_append(), 60)
        await until(lambda: len(received) == 61)
        ours.close()

    asyncio.run(main())
    assert journal.failures == []


def test_a_proposer_notices_that_the_sequencer_has_ended(open_journal: Open) -> None:
    journal = open_journal()

    async def main() -> None:
        start(journal.proposer())
        journal.close()
        await until(lambda: bool(journal.failures))

    asyncio.run(main())
    assert isinstance(journal.failures[0], ConnectionError)


# -- Catching up -------------------------------------------------------------------------------------------------------


def test_a_proposer_catches_up_while_others_append(journal: SequencedJournal) -> None:
    async def main() -> None:
        ours = journal.proposer()
        received = start(ours)
        for round in range(5):
            for at in range(40):
                ours.append(at, an_append(200), at)
            late = journal.proposer()
            caught_up = await asyncio.get_running_loop().run_in_executor(None, list, late.replay(0))
            rest = Deliveries()
            late.start(rest.receive, no_batch_is_given_back)
            await arrival(received, 40 * (round + 1))
            await arrival(rest, len(received) - len(caught_up))
            assert caught_up + rest.batches == received.batches
            late.close()
        ours.close()

    asyncio.run(main())


def test_files_that_are_dropped_while_a_proposer_reads_them_are_a_reason_to_start_anew(
    journal: SequencedJournal, tmp_path: Path
) -> None:
    async def main() -> None:
        ours = journal.proposer()
        received = start(ours)
        for at in range(2_000):
            ours.append(at, an_append(300), at)
        await until(lambda: len(received) == 2_000)
        late = journal.proposer()
        reading = late.replay(0)
        assert next(reading) == received.batches[0]
        ours.forget(1_500)
        await until(lambda: len(list((tmp_path / "journal").glob("*.journal"))) < 100)
        with pytest.raises(HistoryDropped):
            list(reading)
        again = journal.proposer()
        assert list(again.replay(1_500)) == received.batches[1_500:]
        ours.close()

    asyncio.run(main())


# -- A full disk -------------------------------------------------------------------------------------------------------


def test_on_a_full_disk_all_proposers_know_it_and_get_back_what_needs_space(open_journal: Open) -> None:
    disk = FaultyDisk()
    journal = open_journal(disk)
    disk.capacity_bytes = disk.used_bytes
    given_back: list[Ticket] = []
    others: list[Ticket] = []

    async def main() -> None:
        ours, theirs = journal.proposer(), journal.proposer()
        received = start(ours, given_back)
        start(theirs, others)
        for at in range(30):
            ours.append(at, an_append(900), at)
        await until(lambda: len(received) + len(given_back) == 30)
        assert given_back == list(range(len(received), 30))
        await until(lambda: not (ours.has_room or theirs.has_room))
        assert "The disk is full" in ours.shortage and ours.shortage == theirs.shortage
        before = len(received)
        theirs.append(0, [Delete("orders")], 1)
        await until(lambda: len(received) == before + 1)
        assert others == [], "what frees space has a reserve"
        disk.capacity_bytes = None
        await until(lambda: ours.has_room and theirs.has_room)
        theirs.append(0, an_append(900), 2)
        await until(lambda: len(received) == before + 2)
        ours.close()
        theirs.close()

    asyncio.run(main())
    assert journal.failures == []


def test_files_can_be_dropped_while_a_batch_that_frees_space_waits_for_some(open_journal: Open) -> None:
    disk = FaultyDisk()
    journal = open_journal(disk)

    async def main() -> None:
        ours = journal.proposer()
        received = start(ours, [])
        disk.capacity_bytes = disk.used_bytes + 2 * FILE_BYTES
        for at in range(12):
            ours.append(at, an_append(900), at)
        for at in range(40):
            ours.append(at, [Delete("orders" * 100)], 100 + at)
        await until(lambda: not ours.has_room)

        def all_decided_while_files_are_dropped() -> bool:
            ours.forget(received.batches[-1].last_position)
            return received.tickets[-1] == 139

        await until(all_decided_while_files_are_dropped)
        ours.close()

    asyncio.run(main())
    assert journal.failures == []


def test_a_disk_that_fails_ends_the_sequencer(open_journal: Open) -> None:
    disk = FaultyDisk()
    journal = open_journal(disk)

    async def main() -> None:
        ours: SharedJournal = journal.proposer()
        start(ours)
        disk.fail_next(Step.SYNC, 5, "journal")
        ours.append(0, an_append(), 1)
        await until(lambda: bool(journal.failures))

    asyncio.run(main())
    assert any(isinstance(error, OSError) for error in journal.failures)


def test_it_may_be_stopped_again_after_it_has_ended(journal: SequencedJournal) -> None:
    journal.close()
    journal.sequencer.stop()  # As by a signal that comes late.
