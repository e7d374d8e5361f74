"""What the blob sweeper deletes and when, by the time of the log and no other."""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from headwater.log.memory import MemoryLog
from headwater.log.seam import CommandLog, Reached
from headwater.node.chores import blob_sweeper
from headwater.node.chores.blob_sweeper import MARGIN_US, BlobSweeper, SweepIntervals
from headwater.protocol.limits import SECOND_US
from headwater.protocol.refusals import Code, Refusal
from headwater.storage.blobs import Blob, BlobStore, FolderBlobs, MemoryBlobs
from headwater.storage.disk import RealDisk
from headwater.storage.object_blobs import ObjectBlobs
from headwater.streams.commands import Command
from headwater.streams.commands.forks import Pin
from headwater.streams.commands.snapshots import PublishSnapshot, Snapshot
from headwater.streams.commands.streams import Create
from headwater.streams.replies import Done, Pinned, Published, Reply

from ...doubles.faulty_store import Fault, FaultyStore
from ...doubles.shared_log import SharedLog
from ...streams.shards import START_US, Shard

GRACE_SECONDS = 900.0
GRACE_US = int(GRACE_SECONDS * SECOND_US)
HOUR_US = 3600 * SECOND_US
OFTEN = SweepIntervals(0.001, 0.001)


class Sharing(MemoryLog):
    """A log that others use, too, and whose barrier may fail."""

    shared = True
    reaches = True

    def barrier(self, reached: Reached) -> None:
        reached(self.reaches)


class Counting(BlobSweeper):
    """Counts how often it has looked for uploads."""

    rounds = 0

    async def sweep_uploads(self) -> None:
        await super().sweep_uploads()
        self.rounds += 1


class Bench:
    """A shard, its blobs and its sweeper. Time is that of the commands, and stands still between them."""

    def __init__(self, blobs: BlobStore, log: CommandLog, threads: ThreadPoolExecutor) -> None:
        self.shard, self.blobs, self.log = Shard(), blobs, log
        self.state = self.shard.state
        self.now = START_US
        self.commands: list[Command] = []
        self.sweeper = Counting(
            self.state,
            blobs,
            self.submit,
            threads,
            log,
            now=lambda: self.now,
            grace_seconds=GRACE_SECONDS,
            intervals=OFTEN,
        )
        self.do(Create("b/s", "text/plain", payload=b"abc"))

    def submit(self, command: Command, done: Callable[[Reply], None]) -> None:
        self.commands.append(command)
        done(self.do(command))

    def do(self, command: Command) -> Reply:
        [reply] = self.shard.submit([command], self.now)
        self.sweeper.sweep()
        return reply

    def pass_time(self, microseconds: int) -> None:
        """Have the log decide something later."""
        self.now += microseconds
        self.do(Create("b/other", "text/plain"))

    def upload(self, data: bytes = b"folded") -> Blob:
        writer = self.blobs.create(self.now + HOUR_US)
        writer.write(data)
        return writer.finish()

    def publish(self, blob: Blob, offset: int) -> Reply:
        snapshot = Snapshot(offset, 0, blob.id, "text/plain", blob.size, blob.digest)
        command = PublishSnapshot("b/s", 1, snapshot, trims=False, deadline=blob.deadline)
        return self.do(command)

    def has(self, blob: Blob) -> bool:
        try:
            self.blobs.open(blob.id).close()
        except FileNotFoundError:
            return False
        return True

    async def settle(self) -> None:
        """Give the sweeper some rounds."""
        enough = self.sweeper.rounds + 4
        for _ in range(10_000):
            await asyncio.sleep(0.001)
            if not self.sweeper._sweeps or (self.sweeper.rounds >= enough and not self.sweeper._tasks):
                return
        raise AssertionError("the sweeper does not go on")


@asynccontextmanager
async def bench(blobs: BlobStore | None = None, log: CommandLog | None = None) -> AsyncIterator[Bench]:
    with ThreadPoolExecutor(1) as threads:
        found = Bench(blobs or MemoryBlobs(), log or MemoryLog("9f2c"), threads)
        found.sweeper.start()
        try:
            yield found
        finally:
            await found.sweeper.stop()


@pytest.fixture(params=["memory", "folder", "objects"])
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> BlobStore:
    if request.param == "folder":
        return FolderBlobs(tmp_path, RealDisk())
    return MemoryBlobs() if request.param == "memory" else ObjectBlobs(FaultyStore())


# -- Discarded ones ----------------------------------------------------------------------------------------------------


def test_alone_a_replaced_snapshot_goes_at_once_and_is_forgotten(blobs: BlobStore) -> None:
    async def run() -> None:
        async with bench(blobs) as one:
            first, second = one.upload(), one.upload(b"again")
            assert isinstance(one.publish(first, 1), Published)
            assert isinstance(one.publish(second, 2), Published)
            await one.settle()
            assert (one.has(first), one.has(second)) == (False, True)
            assert not one.state.discarded

    asyncio.run(run())


def test_where_others_may_send_it_a_replaced_snapshot_stays_for_the_grace(blobs: BlobStore) -> None:
    async def run() -> None:
        async with bench(blobs, Sharing("9f2c")) as one:
            first = one.upload()
            one.publish(first, 1)
            one.pass_time(2 * HOUR_US)
            one.publish(one.upload(b"again"), 2)
            one.pass_time(GRACE_US - 1)
            await one.settle()
            assert one.has(first), "it went before its grace was over"
            one.pass_time(1)
            await one.settle()
            assert not one.has(first)
            assert not one.state.discarded

    asyncio.run(run())


def test_a_node_that_takes_over_begins_the_grace_anew() -> None:
    async def run() -> None:
        async with bench(log=Sharing("9f2c")) as one:
            first = one.upload()
            one.publish(first, 1)
            one.publish(one.upload(b"again"), 2)
            one.pass_time(GRACE_US - 1)
            await one.sweeper.stop()
            one.pass_time(GRACE_US)
            await one.settle()
            assert one.has(first), "it swept although it had been stopped"
            one.sweeper.start()
            one.pass_time(GRACE_US - 1)
            await one.settle()
            assert one.has(first)
            one.pass_time(1)
            await one.settle()
            assert not one.has(first)

    asyncio.run(run())


def test_a_deletion_that_fails_is_repeated(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        store = FaultyStore()
        async with bench(ObjectBlobs(store)) as one:
            first = one.upload()
            one.publish(first, 1)
            store.plan["delete"] = Fault.FAIL_BEFORE
            one.publish(one.upload(b"again"), 2)
            await one.settle()
            assert list(one.state.discarded) == [first.id]
            store.heal()
            await one.settle()
            assert not one.has(first)
            assert not one.state.discarded

    asyncio.run(run())
    assert "cannot be deleted and will be tried again" in caplog.text


def test_a_snapshot_for_which_there_was_no_room_is_deleted_and_one_of_unknown_fate_is_not() -> None:
    async def run() -> None:
        async with bench() as one:
            for reply, stays in ((Refusal(Code.OVERLOADED, ""), False), (Refusal(Code.INTERNAL, ""), True)):
                blob, replies = one.upload(), list[Reply]()
                one.sweeper.watch(blob.id, replies.append)(reply)
                await one.settle()
                assert (one.has(blob), replies) == (stays, [reply])

    asyncio.run(run())


# -- Uploads -----------------------------------------------------------------------------------------------------------


def test_an_upload_that_was_never_published_goes_when_the_log_is_past_its_deadline(blobs: BlobStore) -> None:
    async def run() -> None:
        async with bench(blobs, Sharing("9f2c")) as one:
            left = one.upload()
            unfinished = blobs.create(one.now + HOUR_US)
            unfinished.write(bytes(3 * 1024 * 1024))
            one.pass_time(HOUR_US + MARGIN_US)
            listed = blobs.names()
            await one.settle()
            assert blobs.names() == listed, "something went before its time"
            one.pass_time(1)
            await one.settle()
            assert blobs.names() == []
            refusal = one.publish(left, 1)
            assert isinstance(refusal, Refusal)
            assert refusal.code is Code.REQUEST_TIMEOUT

    asyncio.run(run())


def test_what_the_clock_says_does_not_matter_while_the_log_decides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: (START_US + 1000 * HOUR_US) / 1e6)

    async def run() -> None:
        async with bench(log=Sharing("9f2c")) as one:
            left = one.upload()
            one.now += 1000 * HOUR_US
            await one.settle()
            assert one.has(left)
            assert isinstance(one.publish(Blob(left.id, left.size, left.digest, one.now), 1), Published)

    asyncio.run(run())


def test_nothing_goes_while_the_barrier_is_not_reached() -> None:
    async def run() -> None:
        log = Sharing("9f2c")
        async with bench(log=log) as one:
            left = one.upload()
            log.reaches = False
            one.pass_time(2 * HOUR_US)
            await one.settle()
            assert one.has(left)
            log.reaches = True
            await one.settle()
            assert not one.has(left)

    asyncio.run(run())


def test_the_barrier_comes_after_the_listing_and_before_the_state_is_asked() -> None:
    """A node that lags behind has not applied a publication, and learns of it before it deletes."""

    async def run() -> None:
        log = Sharing("9f2c")
        async with bench(log=log) as one:
            await one.sweeper.stop()
            left = one.upload()
            one.now += HOUR_US

            def catch_up(reached: Reached) -> None:
                assert isinstance(one.publish(left, 1), Published)
                one.pass_time(HOUR_US)
                reached(True)

            one.sweeper._barrier = catch_up
            await one.sweeper.sweep_uploads()
            assert one.has(left)

    asyncio.run(run())


def test_a_snapshot_stays_long_after_its_deadline_while_anything_needs_it(
    blobs: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blob_sweeper, "STREAMS_PER_TURN", 1)

    async def run() -> None:
        async with bench(blobs, Sharing("9f2c")) as one:
            for number in range(5):
                one.do(Create(f"b/{number}", "text/plain"))
            pinned, shown = one.upload(), one.upload(b"again")
            one.publish(pinned, 1)
            assert isinstance(one.do(Pin("b/s", "pin", "b/fork", one.now + 1)), Pinned)
            one.publish(shown, 2)
            one.pass_time(24 * HOUR_US)
            await one.settle()
            assert one.has(pinned)
            assert one.has(shown)
            one.publish(one.upload(b"at last"), 3)
            replaced = list(one.state.discarded)
            await one.settle()
            assert replaced == [shown.id]
            assert one.has(shown), "a discarded snapshot went without its grace"

    asyncio.run(run())


def test_files_of_an_earlier_version_that_no_stream_has_go_at_once_and_other_files_stay(tmp_path: Path) -> None:
    async def run() -> None:
        for name in ("9" * 32, f"{'8' * 32}.tmp", "notes.txt", "7" * 32):
            (tmp_path / name).write_bytes(b"old")
        with ThreadPoolExecutor(1) as threads:
            one = Bench(FolderBlobs(tmp_path, RealDisk()), MemoryLog("9f2c"), threads)
            one.do(PublishSnapshot("b/s", 1, Snapshot(1, 0, "7" * 32, "text/plain", 3, "digest"), trims=False))
            one.sweeper.start()
            await one.settle()
            assert sorted(path.name for path in tmp_path.iterdir()) == ["7" * 32, "notes.txt"]
            await one.sweeper.stop()

    asyncio.run(run())


@pytest.mark.parametrize("call", ["items", "delete"])
def test_a_store_that_fails_is_asked_again(call: str, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        store = FaultyStore()
        async with bench(ObjectBlobs(store)) as one:
            left = one.upload()
            store.plan[call] = Fault.FAIL_BEFORE  # type: ignore[index]
            one.pass_time(2 * HOUR_US)
            await one.settle()
            assert one.has(left)
            store.heal()
            await one.settle()
            assert not one.has(left)

    asyncio.run(run())
    assert "Planned fault" in caplog.text


def test_two_that_sweep_the_same_blobs_do_no_harm() -> None:
    """Two nodes may both believe to be the keeper for a moment."""

    async def run() -> None:
        shared, blobs = SharedLog("9f2c"), MemoryBlobs()
        log = shared.proposer()
        async with bench(blobs, log) as one, bench(blobs, log) as other:
            log.start(lambda batch, ticket: None, lambda ticket: None)
            kept = one.upload()
            for node in (one, other):
                assert isinstance(node.publish(kept, 1), Published)
            left = one.upload()
            for node in (one, other):
                node.pass_time(2 * HOUR_US)
            await one.settle()
            assert (one.has(kept), one.has(left)) == (True, False)

    asyncio.run(run())


def test_a_reply_to_a_forgotten_blob_is_done() -> None:
    async def run() -> None:
        async with bench() as one:
            one.publish(one.upload(), 1)
            one.publish(one.upload(b"again"), 2)
            await one.settle()
            assert [one.do(command) for command in one.commands] == [Done()]

    asyncio.run(run())


# -- Purges ------------------------------------------------------------------------------------------------------------


async def purged(found: Bench) -> None:
    await asyncio.wait_for(found.sweeper.purge(), 10)


def test_a_purge_deletes_discarded_blobs_at_once_although_other_nodes_may_send_them(blobs: BlobStore) -> None:
    async def run() -> None:
        async with bench(blobs, Sharing("9f2c")) as found:
            first, second = found.upload(), found.upload(b"later")
            found.publish(first, 1)
            found.publish(second, 2)
            await found.settle()
            assert found.has(first), "it has its grace"
            await purged(found)
            assert not found.has(first)
            assert found.has(second)
            assert not found.state.discarded

    asyncio.run(run())


def test_a_purge_deletes_uploads_of_a_process_that_has_ended(blobs: BlobStore) -> None:
    left = [blobs.create(START_US + HOUR_US - 1) for _ in range(2)]
    left[0].write(b"half")
    left[1].write(b"whole")
    left[1].finish()

    async def run() -> None:
        async with bench(blobs) as found:
            published = found.upload()
            found.publish(published, 2)
            await purged(found)
            assert all(name.startswith(published.id[:20]) for name in blobs.names())

    asyncio.run(run())


@pytest.mark.parametrize("shared", [False, True])
def test_a_purge_waits_for_uploads_that_have_begun_and_for_no_later_ones(shared: bool) -> None:
    async def run() -> None:
        async with bench(log=Sharing("9f2c") if shared else None) as found:
            blob = found.upload()
            purge = asyncio.create_task(found.sweeper.purge())
            await asyncio.sleep(0.1)
            assert not purge.done()
            found.pass_time(SECOND_US)
            later = found.upload()
            found.publish(blob, 2)
            await asyncio.wait_for(purge, 10)
            assert found.has(later)

    asyncio.run(run())


def test_a_purge_waits_no_longer_than_until_the_deadline_of_an_upload() -> None:
    async def run() -> None:
        async with bench(log=Sharing("9f2c")) as found:
            blob = found.upload()
            purge = asyncio.create_task(found.sweeper.purge())
            await asyncio.sleep(0.1)
            found.pass_time(HOUR_US + MARGIN_US + 1)
            await asyncio.wait_for(purge, 10)
            assert not found.has(blob)

    asyncio.run(run())


def test_a_purge_tries_again_what_could_not_be_deleted() -> None:
    async def run() -> None:
        store = FaultyStore()
        async with bench(ObjectBlobs(store), Sharing("9f2c")) as found:
            first, second = found.upload(), found.upload(b"later")
            found.publish(first, 1)
            found.publish(second, 2)
            store.plan["delete"] = Fault.FAIL_BEFORE
            purge = asyncio.create_task(found.sweeper.purge())
            await asyncio.sleep(0.1)
            assert not purge.done()
            store.heal()
            await asyncio.wait_for(purge, 10)
            assert not found.has(first)

    asyncio.run(run())
