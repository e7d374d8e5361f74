"""One contract over every `CommandLog`."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from headwater.log.jetstream.log import JetStreamLog
from headwater.log.journal.journal import Journal
from headwater.log.memory import MemoryLog
from headwater.log.seam import CommandLog, Ticket
from headwater.streams.batches import Batch
from headwater.streams.commands import Command
from headwater.streams.commands.streams import Append

from ..doubles.faulty_disk import FaultyDisk
from ..doubles.sequencing import SequencedJournal
from ..doubles.shared_log import SharedLog
from .jetstream.nodes import Cluster

JOURNAL_FILE_BYTES = 4096


class Home(NamedTuple):
    """Where a log lives: `open` opens it again after the last one was closed; `keeps` says whether it is durable."""

    open: Callable[[], CommandLog]
    keeps: bool


@pytest.fixture
def sequenced(tmp_path: Path) -> Iterator[SequencedJournal]:
    journal = SequencedJournal(tmp_path / "sequenced", file_bytes=JOURNAL_FILE_BYTES)
    yield journal
    journal.end()
    assert journal.failures == []


@pytest.fixture(
    params=["memory", "journal", "journal on a faulty disk", "shared", "sequenced", "sequenced anew", "jetstream"]
)
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Home:
    if request.param == "jetstream":
        cluster: Cluster = request.getfixturevalue("cluster")
        return Home(cluster.open, keeps=True)
    if request.param == "memory":
        return Home(lambda: MemoryLog("9f2c"), keeps=False)
    if request.param == "shared":
        return Home(SharedLog("9f2c").proposer, keeps=True)
    if request.param == "journal":
        return Home(lambda: Journal(tmp_path / "journal", file_bytes=JOURNAL_FILE_BYTES), keeps=True)
    if request.param.startswith("sequenced"):
        journal: SequencedJournal = request.getfixturevalue("sequenced")

        def open_proposer() -> CommandLog:
            if request.param == "sequenced anew":
                journal.close()
                journal.open()
            return journal.proposer()

        return Home(open_proposer, keeps=True)
    disk = FaultyDisk()
    return Home(lambda: Journal(Path("/journal"), disk, JOURNAL_FILE_BYTES), keeps=True)


@pytest.fixture(params=["shared", "sequenced", "jetstream", "jetstream on three servers"])
def open_proposer(request: pytest.FixtureRequest) -> Callable[[], CommandLog]:
    """Opens one more proposer of one log; the logs with a single proposer cannot."""
    if request.param == "shared":
        return SharedLog("9f2c").proposer
    if request.param == "sequenced":
        journal: SequencedJournal = request.getfixturevalue("sequenced")
        return journal.proposer
    cluster: Cluster = request.getfixturevalue("cluster" if request.param == "jetstream" else "cluster_of_three")
    return cluster.open


class Delivered(NamedTuple):
    batch: Batch
    ticket: Ticket | None


class Deliveries(list[Delivered]):
    """Everything a log delivers to one proposer."""

    def receive(self, batch: Batch, ticket: Ticket | None) -> None:
        self.append(Delivered(batch, ticket))

    @property
    def batches(self) -> list[Batch]:
        return [delivered.batch for delivered in self]

    @property
    def tickets(self) -> list[Ticket | None]:
        return [delivered.ticket for delivered in self]


def no_batch_is_given_back(ticket: Ticket) -> None:
    raise AssertionError(f"batch {ticket} was given back")


def appends(count: int, size: int = 10) -> list[Command]:
    return [Append(f"stream-{number}", b"x" * size) for number in range(count)]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.001)


async def close(*logs: CommandLog) -> None:
    """Close logs; what was appended is delivered in the turns of the loop that follow."""
    for log in logs:
        log.close()
    await asyncio.sleep(0)
    for log in logs:
        if isinstance(log, JetStreamLog):
            assert log.closing is not None
            await log.closing


def run(log: CommandLog, use: Callable[[CommandLog, Deliveries], Awaitable[None]]) -> Deliveries:
    """Start a log, use it, close it; return everything it delivered."""
    deliveries = Deliveries()

    async def main() -> None:
        log.start(deliveries.receive, no_batch_is_given_back)
        await use(log, deliveries)
        await close(log)

    asyncio.run(main())
    return deliveries


def write(log: CommandLog, batches: list[list[Command]]) -> Deliveries:
    """Append batches to an empty log without waiting for any; their tickets count down from 1000."""

    async def use(log: CommandLog, deliveries: Deliveries) -> None:
        for at, commands in enumerate(batches):
            log.append(at, commands, 1000 - at)
        await until(lambda: len(deliveries) == len(batches))

    assert list(log.replay(0)) == []
    return run(log, use)


# -- One proposer ------------------------------------------------------------------------------------------------------


def test_batches_are_delivered_in_the_order_in_which_they_were_appended(home: Home) -> None:
    batches = [appends(1 + number % 3) for number in range(50)]
    delivered = write(home.open(), batches).batches
    assert [batch.commands for batch in delivered] == batches
    assert [batch.at for batch in delivered] == list(range(50))


def test_each_of_several_batches_in_flight_comes_back_with_its_own_ticket(home: Home) -> None:
    batches = [appends(1 + number % 3) for number in range(50)]
    deliveries = write(home.open(), batches)
    assert deliveries.tickets == [1000 - at for at in range(50)]
    assert [(1000 - at, commands) for at, commands in enumerate(batches)] == [
        (ticket, batch.commands) for batch, ticket in deliveries
    ]


def test_a_log_allows_at_least_one_batch_in_flight(home: Home) -> None:
    assert home.open().batches_in_flight_max >= 1


def test_positions_count_commands_from_one_without_a_gap(home: Home) -> None:
    delivered = write(home.open(), [appends(3), appends(1), appends(2)]).batches
    assert [(batch.first_position, batch.last_position) for batch in delivered] == [(1, 3), (4, 4), (5, 6)]


def test_a_batch_is_delivered_on_the_loop_and_never_inside_append(home: Home) -> None:
    log = home.open()
    assert list(log.replay(0)) == []
    threads: list[int] = []

    async def main() -> None:
        log.start(lambda *_: threads.append(threading.get_ident()), no_batch_is_given_back)
        log.append(0, appends(1), 1)
        assert threads == []
        await until(lambda: bool(threads))
        await close(log)

    asyncio.run(main())
    assert threads == [threading.get_ident()]


def test_closing_finishes_what_was_appended(home: Home) -> None:
    async def append_only(log: CommandLog, _: Deliveries) -> None:
        for at in range(20):
            log.append(at, appends(1), at)

    log = home.open()
    assert list(log.replay(0)) == []
    assert run(log, append_only).tickets == list(range(20))


def test_a_log_has_room_and_an_id(home: Home) -> None:
    log = home.open()
    assert log.has_room
    assert log.log_id


def test_the_size_grows_with_what_is_appended_or_never(home: Home) -> None:
    log = home.open()
    before = log.size_bytes
    write(log, [appends(1, size=1000)])
    assert (log.size_bytes - before > 1000) is home.keeps


def test_what_was_delivered_is_replayed_after_a_restart_if_the_log_keeps_anything(home: Home) -> None:
    first = home.open()
    delivered = write(first, [appends(2, size=700) for _ in range(20)]).batches
    second = home.open()
    assert second.log_id == first.log_id
    assert list(second.replay(0)) == (delivered if home.keeps else [])


def test_only_what_is_above_the_position_is_replayed(home: Home) -> None:
    delivered = write(home.open(), [appends(2, size=700) for _ in range(20)]).batches
    for after in (0, 2, 20, 38, 40) if home.keeps else (0,):
        above = [batch for batch in delivered if batch.first_position > after]
        assert list(home.open().replay(after)) == (above if home.keeps else [])


def test_positions_continue_after_a_restart_if_the_log_keeps_anything(home: Home) -> None:
    write(home.open(), [appends(2)])
    log = home.open()
    assert list(log.replay(2 if home.keeps else 0)) == []

    async def use(log: CommandLog, deliveries: Deliveries) -> None:
        log.append(0, appends(1), 1)
        await until(lambda: bool(deliveries))

    assert run(log, use).batches[0].first_position == (3 if home.keeps else 1)


def test_what_is_above_a_forgotten_position_stays(home: Home) -> None:
    log = home.open()
    delivered = write(log, [appends(2, size=700) for _ in range(20)]).batches
    log.forget(20)
    again = home.open()
    above = [batch for batch in delivered if batch.first_position > 20]
    assert list(again.replay(20)) == (above if home.keeps else [])


def test_after_a_cut_everything_before_it_can_be_forgotten(home: Home) -> None:
    """Not only whole files that happen to be full: what a purge removes may have been appended just now."""

    async def use(log: CommandLog, deliveries: Deliveries) -> None:
        log.append(1, [Append("stream", b"to be removed")], 1)
        await until(lambda: len(deliveries) == 1)
        bytes_left, cut_at = log.cut(), deliveries.batches[-1].last_position
        log.append(2, [Append("stream", b"kept")], 2)
        await until(lambda: len(deliveries) == 2)
        for ticket in range(3, 3 + bytes_left // 500_000 + 1):
            log.append(ticket, [Append("stream", bytes(500_000))], ticket)
            await until(lambda expected=ticket: len(deliveries) == expected)  # type: ignore[misc]
        log.mark()
        log.forget(deliveries.batches[-1].last_position)
        async with asyncio.timeout(10):
            while not await log.has_forgotten(cut_at):
                await asyncio.sleep(0.01)

    log = home.open()
    assert list(log.replay(0)) == []
    delivered = run(log, use)
    if home.keeps and not isinstance(log, JetStreamLog):  # Which would begin with the mark of an image.
        again = home.open()
        left = [command for batch in again.replay(delivered.batches[-1].last_position) for command in batch.commands]
        assert left == []
        run(again, lambda log, deliveries: asyncio.sleep(0))


# -- Several proposers -------------------------------------------------------------------------------------------------


def test_every_proposer_receives_all_batches_in_one_order_and_its_own_with_their_tickets(
    open_proposer: Callable[[], CommandLog],
) -> None:
    ours, theirs = open_proposer(), open_proposer()
    assert list(ours.replay(0)) == list(theirs.replay(0)) == []
    received, received_by_them = Deliveries(), Deliveries()

    async def main() -> None:
        ours.start(received.receive, no_batch_is_given_back)
        theirs.start(received_by_them.receive, no_batch_is_given_back)
        for at in range(30):
            # The same tickets on both sides: a ticket means something to its own proposer only.
            ours.append(at, [Append("ours", b"%d" % at)], at)
            theirs.append(at, [Append("theirs", b"%d" % at)], at)
            if at % 7 == 0:
                await asyncio.sleep(0)
            if at == 20:
                await until(lambda: None in received.tickets and None in received_by_them.tickets)
        await until(lambda: len(received) == len(received_by_them) == 60)
        await close(ours, theirs)

    asyncio.run(main())
    assert received.batches == received_by_them.batches
    assert [batch.first_position for batch in received.batches] == list(range(1, 61))
    for deliveries, name in ((received, "ours"), (received_by_them, "theirs")):
        own = [(batch, ticket) for batch, ticket in deliveries if ticket is not None]
        assert [ticket for _, ticket in own] == list(range(30))
        assert [batch.commands for batch, _ in own] == [[Append(name, b"%d" % at)] for at in range(30)]
        assert None in deliveries.tickets[: deliveries.tickets.index(29)], "foreign batches come between own ones"


def test_a_proposer_that_starts_late_first_receives_what_was_decided_after_its_replay(
    open_proposer: Callable[[], CommandLog],
) -> None:
    ours, theirs = open_proposer(), open_proposer()
    received, received_by_them = Deliveries(), Deliveries()

    async def main() -> None:
        assert list(theirs.replay(0)) == []
        theirs.start(received_by_them.receive, no_batch_is_given_back)
        for at in range(5):
            theirs.append(at, appends(2), at)
        await until(lambda: len(received_by_them) == 5)
        assert list(ours.replay(4)) == received_by_them.batches[2:]
        theirs.append(5, appends(2), 5)
        await until(lambda: len(received_by_them) == 6)
        ours.start(received.receive, no_batch_is_given_back)
        ours.append(6, appends(1), 77)
        await until(lambda: len(received) == 2 and len(received_by_them) == 7)
        await close(ours, theirs)

    asyncio.run(main())
    assert received.batches == received_by_them.batches[5:]
    assert received.tickets == [None, 77]


def test_a_closed_proposer_does_not_keep_the_others_from_theirs(open_proposer: Callable[[], CommandLog]) -> None:
    ours, theirs = open_proposer(), open_proposer()
    received, received_by_them = Deliveries(), Deliveries()

    async def main() -> None:
        ours.start(received.receive, no_batch_is_given_back)
        theirs.start(received_by_them.receive, no_batch_is_given_back)
        theirs.append(0, appends(1), 1)
        await close(theirs)
        ours.append(1, appends(1), 1)
        await until(lambda: len(received) == 2)
        await close(ours)

    asyncio.run(main())
    assert received.tickets == [None, 1]
    assert received_by_them.tickets == [1]
