"""A purge and the lake: what it removes, what it leaves alone, and what it does when the store fails."""

import asyncio
from pathlib import Path

import pytest

from headwater.lake.format import new_segment_id, segment_key
from headwater.lake.segments.writer import SegmentWriter
from headwater.node.committer import Done
from headwater.node.purges.requests import PurgeBegun, PurgeRequest, ask_purge, status_of
from headwater.protocol.limits import MINUTE_US
from headwater.protocol.refusals import Code, Refusal
from headwater.streams.cold import Tombstone
from headwater.streams.commands import Command
from headwater.streams.commands.consumers import RegisterConsumer
from headwater.streams.commands.forks import Ancestry, Pin, Unpin
from headwater.streams.commands.lake import Publication, PublishSegment
from headwater.streams.commands.purges import WithdrawSegments
from headwater.streams.commands.streams import Delete
from headwater.streams.forking import ForkRequest
from headwater.streams.replies import Created, Reply
from headwater.streams.state import State

from ...doubles.faulty_store import POSSIBLE, Call, Fault, FaultyStore
from ...searching import holders
from .lakes import TEXT, Bench, bench, until
from .small_lake import CountingStore

MARKER = b"Marker4711"
SECRET = f"b/{MARKER.decode()}"


def found(node: Bench, folder: Path) -> list[str]:
    """The objects with the marker; they are copied to a folder for the search."""
    store = node.store.store
    for item in store.items(""):
        path = folder / item.key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(store.read(item.key))
    names = {item.key for item in store.items("")}
    return [name for name in holders(folder, MARKER) if name in names]


async def write(node: Bench, *names: str) -> None:
    """Two segments, with rows of these streams and of another one."""
    for number in range(2):
        for name in (*names, "b/other"):
            if not number:
                await node.create(name)
            await node.append(name, b"%d of %b;" % (number, name.encode()))
        await node.lake.flush()


async def begin(node: Bench, request: PurgeRequest) -> str:
    assert node.shard.chores is not None
    node.shard.chores.purger._retry_seconds = 0.01
    asked = await ask_purge(node.shard, request)
    assert isinstance(asked, PurgeBegun), asked
    return asked.purge


async def purge(node: Bench, request: PurgeRequest) -> str:
    """Purge, and return the stage in which that ended."""
    asked = await begin(node, request)
    await until(lambda: node.state.cold.purges[asked].has_ended)
    return node.state.cold.purges[asked].stage


async def fork(node: Bench, source: str, name: str) -> None:
    done: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
    node.node.fork(ForkRequest(name, Ancestry(source, None, 0, None, None), False, b""), done.set_result)
    assert isinstance(await asyncio.wait_for(done, 10), Created)
    await until(lambda: not node.state.unconfirmed)


def test_rows_of_another_dead_stream_that_a_consumer_has_not_read_stay(tmp_path: Path) -> None:
    async def run() -> None:
        async with bench() as node:
            await write(node, SECRET, "b/dead")
            await node.ask(RegisterConsumer("late", node.state.position))
            await node.append("b/dead", b"unread")
            await node.append("b/other", b"2")
            await node.lake.flush()
            await node.ask(Delete("b/dead"))
            assert await purge(node, PurgeRequest(SECRET)) == "done"
            assert found(node, tmp_path) == []
            assert list(node.state.cold.consumers) == ["late"], "the rows that are gone are older than what it has read"
            [(_, dead)] = node.state.cold.tombstones.freeze()
            assert isinstance(dead, Tombstone)
            assert dead.name == "b/dead"
            assert await node.whole("b/other") == b"0 of b/other;1 of b/other;2"

    asyncio.run(run())


@pytest.mark.parametrize("call", POSSIBLE)
@pytest.mark.parametrize("fault", [Fault.FAIL_BEFORE, Fault.FAIL_AFTER, Fault.TIME_OUT])
@pytest.mark.parametrize("index", [0, 2, 5])
def test_a_purge_gets_on_when_the_store_works_again(tmp_path: Path, call: Call, fault: Fault, index: int) -> None:
    if fault not in POSSIBLE[call]:
        pytest.skip("this call never fails so")

    async def run() -> None:
        store = CountingStore()
        async with bench(store) as node:
            await write(node, SECRET)
            store.fail_at(call, index, fault)
            assert await purge(node, PurgeRequest(SECRET)) == "done"
            node.store.heal()
            assert found(node, tmp_path) == []
            assert await node.whole("b/other") == b"0 of b/other;1 of b/other;"

    asyncio.run(run())


def test_what_keeps_a_purge_from_going_on_is_said(tmp_path: Path) -> None:
    async def run() -> None:
        async with bench() as node:
            await write(node, SECRET)
            node.store.plan["delete"] = Fault.FAIL_BEFORE
            asked = await begin(node, PurgeRequest(SECRET))

            def problem() -> str | None:
                status = status_of(node.shard, asked)
                assert not isinstance(status, Refusal)
                return status.problem

            await until(lambda: problem() is not None)
            assert "tried again" in str(problem())
            node.store.heal()
            await until(lambda: node.state.cold.purges[asked].has_ended)
            assert problem() is None

    asyncio.run(run())


def test_files_that_an_earlier_process_has_removed_from_the_tables_go_too(tmp_path: Path) -> None:
    async def run() -> None:
        store, state = FaultyStore(), State("journal")
        async with bench(store, state) as node:
            await write(node, SECRET)
            await fork(node, SECRET, "c/fork")
            await node.lake.flush()
            await node.ask(Delete("c/fork"))
            await node.ask(Delete(SECRET))
            await node.lake.flush()
            assert any(name.startswith("forks/data/") for name in found(node, tmp_path))
        async with bench(store, state) as node:
            assert await purge(node, PurgeRequest(SECRET)) == "done"
            assert found(node, tmp_path) == []

    asyncio.run(run())


# -- Objects that were never published ---------------------------------------------------------------------------------


def store_unpublished(node: Bench, name: str) -> tuple[str, Publication]:
    """Store an object as a server does that ends before it publishes it."""
    stream = node.state.streams[name]
    segment_id = new_segment_id(node.node.now() + 10 * MINUTE_US, f"{len(node.segments()):012x}")
    writer = SegmentWriter(segment_id, 1, node.state.position)
    writer.add(name, stream.incarnation, TEXT, stream.hot or [])
    key, written = segment_key(0, 1, node.state.position, segment_id), writer.finish()
    node.store.store.create(key, written.data)
    return key, Publication(written.segment, tuple(written.rows))


def test_an_object_that_was_never_published_goes_if_it_has_such_rows_and_never_comes_back(tmp_path: Path) -> None:
    async def run() -> None:
        async with bench() as node:
            await node.create(SECRET, b"0")
            await node.create("b/other", b"0")
            (marked, _), (other, _) = store_unpublished(node, SECRET), store_unpublished(node, "b/other")
            damaged = segment_key(0, 1, 2, new_segment_id(node.node.now() + 10 * MINUTE_US, "f" * 12))
            node.store.store.create(damaged, b"not a segment, " + MARKER)
            node.store.store.create("segments/shard=0/notes.txt", b"of somebody else")
            assert await purge(node, PurgeRequest(SECRET)) == "done"
            assert marked not in node.segments()
            assert damaged not in node.segments()
            assert node.segments() == sorted([other, "segments/shard=0/notes.txt"])
            assert len(node.state.cold.withdrawn) == 2

    asyncio.run(run())


def test_an_object_that_is_published_while_it_is_withdrawn_is_rewritten(tmp_path: Path) -> None:
    async def run() -> None:
        async with bench() as node:
            await node.create("b/other", b"0")
            await node.create(SECRET, b"0")
            key, publication = store_unpublished(node, SECRET)
            purger, withdrawals = node.housekeeping.purger, []

            def publish_first(command: Command, done: Done) -> None:
                if isinstance(command, WithdrawSegments):
                    withdrawals.append(command)
                    deadline = command.deadlines[publication.segment.id]
                    node.shard.submit(PublishSegment(publication, deadline, 0), lambda _: None)
                node.shard.submit(command, done)

            purger._parts = purger._parts._replace(submit=publish_first)
            assert await purge(node, PurgeRequest(SECRET)) == "done"
            assert len(withdrawals) == 1
            assert key not in node.segments()
            assert not node.state.cold.segments

    asyncio.run(run())


# -- Forks -------------------------------------------------------------------------------------------------------------


def test_a_purge_of_a_stream_with_forks_is_refused_unless_they_go_too(tmp_path: Path) -> None:
    async def run() -> None:
        async with bench() as node:
            await write(node, SECRET)
            await fork(node, SECRET, "c/fork")
            await fork(node, "c/fork", "d/fork-of-a-fork")
            await node.append("d/fork-of-a-fork", MARKER)
            await node.lake.flush()
            refused = await ask_purge(node.shard, PurgeRequest(SECRET))
            assert isinstance(refused, Refusal)
            assert refused.code is Code.FORK_CONFLICT
            assert "c/fork" in refused.detail
            assert SECRET in node.state.streams
            assert await purge(node, PurgeRequest(SECRET, with_forks=True)) == "done"
            assert list(node.state.streams) == ["b/other"]
            assert found(node, tmp_path) == []

    asyncio.run(run())


def test_a_deleted_source_that_lives_for_its_forks_is_purged_with_them(tmp_path: Path) -> None:
    async def run() -> None:
        async with bench() as node:
            await write(node, SECRET)
            await fork(node, SECRET, "c/fork")
            await node.ask(Delete(SECRET))
            assert isinstance(await ask_purge(node.shard, PurgeRequest(SECRET)), Refusal)
            assert await purge(node, PurgeRequest(prefix="b/Mark", with_forks=True)) == "done"
            assert list(node.state.streams) == ["b/other"]
            assert found(node, tmp_path) == []

    asyncio.run(run())


def test_a_fork_alone_is_purged_and_its_source_stays(tmp_path: Path) -> None:
    async def run() -> None:
        async with bench() as node:
            await write(node)
            await fork(node, "b/other", SECRET)
            await node.append(SECRET, MARKER)
            await node.lake.flush()
            assert await purge(node, PurgeRequest(SECRET)) == "done"
            assert found(node, tmp_path) == []
            assert await node.whole("b/other") == b"0 of b/other;1 of b/other;"
            assert not node.state.streams["b/other"].pins

    asyncio.run(run())


def test_a_fork_that_comes_in_between_ends_the_purge(tmp_path: Path) -> None:
    async def run() -> None:
        async with bench() as node:
            await write(node, SECRET)
            asking = asyncio.create_task(ask_purge(node.shard, PurgeRequest(SECRET)))
            node.node.fork(ForkRequest("c/fork", Ancestry(SECRET, None, 0, None, None), False, b""), lambda _: None)
            begun = await asking
            assert isinstance(begun, PurgeBegun)
            asked = begun.purge
            await until(lambda: node.state.cold.purges[asked].has_ended)
            assert node.state.cold.purges[asked].stage == "refused"
            assert node.state.cold.purges[asked].target == ""
            assert await node.whole("c/fork") == f"0 of {SECRET};1 of {SECRET};".encode()

    asyncio.run(run())


def test_a_purge_waits_for_a_fork_that_is_being_made(tmp_path: Path) -> None:
    async def run() -> None:
        async with bench() as node:
            await write(node, SECRET)
            incarnation = node.state.streams[SECRET].incarnation
            await node.ask(Pin(SECRET, "pin", "c/fork", node.node.now() + MINUTE_US))
            asked = await begin(node, PurgeRequest(SECRET))
            await until(lambda: node.state.streams[SECRET].deleted)
            await asyncio.sleep(0.1)
            assert node.state.cold.purges[asked].stage == "deleting"
            await node.ask(Unpin(SECRET, incarnation, "pin"))
            await until(lambda: node.state.cold.purges[asked].has_ended)
            assert node.state.cold.purges[asked].stage == "done"
            assert found(node, tmp_path) == []

    asyncio.run(run())
