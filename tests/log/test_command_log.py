"""One contract over every `CommandLog`."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from headwater.log.journal.journal import Journal
from headwater.log.memory import MemoryLog
from headwater.log.seam import CommandLog
from headwater.streams.commands import Append, Batch, Command
from headwater.testing import FaultyDisk

SEGMENT_BYTES = 4096


class Home(NamedTuple):
    """Where a log lives: `open` opens it again after the last one was closed; does it keep what it held?"""

    open: Callable[[], CommandLog]
    keeps: bool


@pytest.fixture(params=["memory", "journal", "journal on a faulty disk"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Home:
    if request.param == "memory":
        return Home(lambda: MemoryLog("9f2c"), keeps=False)
    if request.param == "journal":
        return Home(lambda: Journal(tmp_path / "journal", segment_bytes=SEGMENT_BYTES), keeps=True)
    disk = FaultyDisk()
    return Home(lambda: Journal(Path("/journal"), disk, SEGMENT_BYTES), keeps=True)


def appends(count: int, size: int = 10) -> list[Command]:
    return [Append(f"stream-{number}", b"x" * size) for number in range(count)]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.001)


def run(log: CommandLog, use: Callable[[CommandLog, list[Batch]], Awaitable[None]]) -> list[Batch]:
    """Start a log, use it, close it; return all that it delivered."""
    delivered: list[Batch] = []

    async def main() -> None:
        log.start(delivered.append)
        await use(log, delivered)
        log.close()
        await asyncio.sleep(0)

    asyncio.run(main())
    return delivered


def write(log: CommandLog, batches: list[list[Command]]) -> list[Batch]:
    async def use(log: CommandLog, delivered: list[Batch]) -> None:
        for at, commands in enumerate(batches):
            log.append(at, commands)
        await until(lambda: len(delivered) == len(batches))

    assert list(log.replay(0)) == []
    return run(log, use)


def test_batches_are_delivered_in_the_order_in_which_they_were_appended(home: Home) -> None:
    batches = [appends(1 + number % 3) for number in range(50)]
    delivered = write(home.open(), batches)
    assert [batch.commands for batch in delivered] == batches
    assert [batch.at for batch in delivered] == list(range(50))


def test_positions_count_commands_from_one_without_a_gap(home: Home) -> None:
    delivered = write(home.open(), [appends(3), appends(1), appends(2)])
    assert [(batch.first_position, batch.last_position) for batch in delivered] == [(1, 3), (4, 4), (5, 6)]


def test_a_batch_is_delivered_on_the_loop_and_never_inside_append(home: Home) -> None:
    log = home.open()
    assert list(log.replay(0)) == []
    threads: list[int] = []

    async def main() -> None:
        log.start(lambda _: threads.append(threading.get_ident()))
        log.append(0, appends(1))
        assert threads == []
        await until(lambda: bool(threads))
        log.close()

    asyncio.run(main())
    assert threads == [threading.get_ident()]


def test_closing_finishes_what_was_appended(home: Home) -> None:
    async def append_only(log: CommandLog, _: list[Batch]) -> None:
        for at in range(20):
            log.append(at, appends(1))

    log = home.open()
    assert list(log.replay(0)) == []
    assert len(run(log, append_only)) == 20


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
    delivered = write(first, [appends(2, size=700) for _ in range(20)])
    second = home.open()
    assert second.log_id == first.log_id
    assert list(second.replay(0)) == (delivered if home.keeps else [])


def test_only_what_is_above_the_position_is_replayed(home: Home) -> None:
    delivered = write(home.open(), [appends(2, size=700) for _ in range(20)])
    for after in (0, 2, 20, 38, 40) if home.keeps else (0,):
        above = [batch for batch in delivered if batch.first_position > after]
        assert list(home.open().replay(after)) == (above if home.keeps else [])


def test_positions_go_on_after_a_restart_if_the_log_keeps_anything(home: Home) -> None:
    write(home.open(), [appends(2)])
    log = home.open()
    assert list(log.replay(2 if home.keeps else 0)) == []

    async def use(log: CommandLog, delivered: list[Batch]) -> None:
        log.append(0, appends(1))
        await until(lambda: bool(delivered))

    assert run(log, use)[0].first_position == (3 if home.keeps else 1)


def test_what_is_above_a_forgotten_position_stays(home: Home) -> None:
    log = home.open()
    delivered = write(log, [appends(2, size=700) for _ in range(20)])
    log.forget(20)
    again = home.open()
    above = [batch for batch in delivered if batch.first_position > 20]
    assert list(again.replay(20)) == (above if home.keeps else [])
