"""Objects that are gone when they are to be read: another node has replaced and deleted them, or they are lost."""

import asyncio
from collections.abc import Callable

import pytest

from headwater.log.seam import Reached
from headwater.node.committer import Done
from headwater.node.reads.bootstrap import Bootstrap
from headwater.node.reads.cold import LakeUnreadable
from headwater.protocol.refusals import Code, Refusal
from headwater.streams.commands import Command
from headwater.streams.commands.streams import Delete
from headwater.streams.queries import Read
from headwater.streams.replies import Page, Placed, Reply

from .handed_in import hand_in
from .lakes import Bench, bench


async def with_history(node: Bench) -> list[str]:
    """A stream whose bytes are in two segments; the keys of these."""
    for payload in (b"one", b"two"):
        await node.create("b/s", payload)
        await node.lake.flush()
    return node.segments()


async def replaced(node: Bench, old: list[str]) -> Callable[[Reached], None]:
    """Replaces both segments and deletes them; the barrier that it returns lets this node learn of the swap."""
    decided: asyncio.Future[tuple[Command, Done]] = asyncio.get_running_loop().create_future()
    node.lake.swaps._submit = lambda command, done: decided.set_result((command, done))
    swap = asyncio.get_running_loop().create_task(
        node.lake.swaps.swap(hand_in(node.state, node.store, node.node.now()))
    )
    command, done = await asyncio.wait_for(decided, 10)
    for key in old:
        node.store.lose(key)

    def learn(reached: Reached) -> None:
        def applied(reply: Reply) -> None:
            assert isinstance(reply, Placed)
            done(reply)
            swap.add_done_callback(lambda _: reached(True))

        node.node.submit(command, applied)

    return learn


async def bootstrapped(node: Bench) -> bytes:
    found = node.shard.bootstrap("b/s", None)
    assert isinstance(found, Bootstrap)
    return b"".join(
        [bytes(piece.payload[start:end]) async for slice_ in found.slices() for piece, start, end in slice_.parts()]
    )


def test_a_read_of_segments_that_were_replaced_is_answered_from_the_new_ones() -> None:
    async def run() -> None:
        async with bench() as node:
            node.lake.reads._barrier = await replaced(node, await with_history(node))
            page = await node.read(Read("b/s", 0))
            assert isinstance(page, Page), page
            assert page.body == b"onetwo"
            assert (node.lake.reads.failures, +node.lake.reads.in_use) == (0, {})

    asyncio.run(run())


def test_a_bootstrap_of_segments_that_were_replaced_goes_on_with_the_new_ones() -> None:
    async def run() -> None:
        async with bench() as node:
            node.lake.reads._barrier = await replaced(node, await with_history(node))
            assert await bootstrapped(node) == b"onetwo"
            assert +node.lake.reads.in_use == {}

    asyncio.run(run())


def test_a_bootstrap_that_has_begun_goes_on_where_it_was() -> None:
    async def run() -> None:
        async with bench() as node:
            old = await with_history(node)
            found = node.shard.bootstrap("b/s", None)
            assert isinstance(found, Bootstrap)
            slices = found.slices()
            first = await anext(slices)
            node.lake.reads._barrier = await replaced(node, old)
            rest = [slice_ async for slice_ in slices]
            assert [(one.start, one.end) for one in (first, *rest)] == [(0, 3), (3, 6)]
            data = [bytes(piece.payload[start:end]) for one in (first, *rest) for piece, start, end in one.parts()]
            assert b"".join(data) == b"onetwo"

    asyncio.run(run())


def test_a_segment_that_the_state_still_has_is_damaged() -> None:
    async def run() -> None:
        async with bench() as node:
            for key in await with_history(node):
                node.store.lose(key)
            refusal = await node.read(Read("b/s", 0))
            assert isinstance(refusal, Refusal)
            assert refusal.code is Code.INTERNAL
            with pytest.raises(LakeUnreadable):
                await bootstrapped(node)
            assert (node.lake.reads.failures, +node.lake.reads.in_use) == (2, {})

    asyncio.run(run())


def test_while_the_log_cannot_tell_a_missing_segment_is_not_called_damaged() -> None:
    async def run() -> None:
        async with bench() as node:
            for key in await with_history(node):
                node.store.lose(key)
            node.lake.reads._barrier = lambda reached: reached(False)
            refusal = await node.read(Read("b/s", 0))
            assert isinstance(refusal, Refusal)
            assert refusal.code is Code.OVERLOADED
            with pytest.raises(LakeUnreadable, match="cannot tell"):
                await bootstrapped(node)

    asyncio.run(run())


@pytest.mark.parametrize("swaps", [True, False])
def test_a_bootstrap_ends_if_its_stream_was_deleted_and_its_segments_are_gone(swaps: bool) -> None:
    async def run() -> None:
        async with bench() as node:
            old = await with_history(node)
            found = node.shard.bootstrap("b/s", None)
            assert isinstance(found, Bootstrap)
            for key in old:
                node.store.lose(key)
            await node.ask(Delete("b/s"))
            if swaps:
                for number in list(node.state.cold.segments):
                    node.state.cold.take_out(number, node.state.position)
            with pytest.raises(LakeUnreadable):
                [slice_ async for slice_ in found.slices()]

    asyncio.run(run())


def test_a_bootstrap_ends_if_the_rest_of_it_was_trimmed() -> None:
    async def run() -> None:
        async with bench() as node:
            old = await with_history(node)
            found = node.shard.bootstrap("b/s", None)
            assert isinstance(found, Bootstrap)
            stream = node.state.streams["b/s"]
            for key in old:
                node.store.lose(key)
            node.state.cold.take_out(stream.extents[0].segment, node.state.position)
            stream.extents = stream.extents[1:]
            with pytest.raises(LakeUnreadable):
                [slice_ async for slice_ in found.slices()]

    asyncio.run(run())
