"""Uploads: bounded in memory, and read to the end even if the disk fails."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from errno import ENOSPC
from threading import Event

import pytest

from headwater.http.wire.budgets import Budget
from headwater.http.wire.uploads import PENDING_BYTES_MAX, Upload
from headwater.storage.blobs import Blob
from headwater.storage.disk import shortage_of

PIECE = bytes(256 * 1024)


class SlowWriter:
    """Writes on request, or fails."""

    def __init__(self, go: Event, fails: bool) -> None:
        self._go, self._fails = go, fails
        self.written = 0
        self.abandoned = False
        self.abandoning, self.may_abandon = Event(), Event()
        self.may_abandon.set()

    def write(self, data: bytes) -> None:
        self._go.wait(10)
        if self._fails:
            raise OSError(ENOSPC, "No space left on device", "/secret/path")
        self.written += len(data)

    def finish(self) -> Blob:
        return Blob("blob", self.written, "digest", 7)

    def abandon(self) -> None:
        self.abandoning.set()
        self.may_abandon.wait(10)
        self.abandoned = True


def upload(*, fails: bool) -> tuple[list[bool], Blob | OSError, SlowWriter]:
    """Send far more than may wait while the disk hangs; returns when the client was paused, and the outcome."""

    async def run() -> tuple[list[bool], Blob | OSError, SlowWriter]:
        go, full = Event(), list[bool]()
        writer = SlowWriter(go, fails)
        with ThreadPoolExecutor(1) as threads:
            sent = Upload(lambda: writer, threads, Budget(1), lambda: full.append(sent.full))
            sent.begin(None, lambda refusal: pytest.fail(refusal.detail))
            for _ in range(2 * PENDING_BYTES_MAX // len(PIECE)):
                sent.write(PIECE)
                await asyncio.sleep(0)
            go.set()
            while full[-1]:
                await asyncio.sleep(0.001)
            sent.write(PIECE)
            finished: asyncio.Future[Blob | OSError] = asyncio.get_running_loop().create_future()
            sent.finish(finished.set_result)
            return full, await finished, writer

    return asyncio.run(run())


def test_a_client_is_held_up_as_soon_as_too_much_waits_for_the_disk_and_goes_on_when_it_is_written() -> None:
    full, outcome, writer = upload(fails=False)
    assert (full[0], full[-1]) == (True, False)
    assert outcome == Blob("blob", 2 * PENDING_BYTES_MAX + len(PIECE), "digest", 7)
    assert not writer.abandoned


def test_a_client_is_read_on_after_the_disk_gave_up_and_nothing_is_left_behind() -> None:
    full, outcome, writer = upload(fails=True)
    assert (full[0], full[-1]) == (True, False)
    assert isinstance(outcome, OSError)
    assert shortage_of(outcome).startswith("The disk is full")
    assert "secret" not in str(outcome)
    assert writer.abandoned


def test_a_client_is_read_on_while_what_the_disk_has_taken_is_removed() -> None:
    async def run() -> None:
        go = Event()
        go.set()
        writer = SlowWriter(go, fails=True)
        writer.may_abandon.clear()
        with ThreadPoolExecutor(1) as threads:
            sent = Upload(lambda: writer, threads, Budget(1), lambda: None)
            sent.begin(None, lambda refusal: pytest.fail(refusal.detail))
            sent.write(PIECE)
            while not writer.abandoning.is_set():
                await asyncio.sleep(0.001)
            for _ in range(2 * PENDING_BYTES_MAX // len(PIECE)):
                sent.write(PIECE)
            assert not sent.full
            writer.may_abandon.set()
            finished: asyncio.Future[Blob | OSError] = asyncio.get_running_loop().create_future()
            sent.finish(finished.set_result)
            assert isinstance(await finished, OSError)

    asyncio.run(run())
