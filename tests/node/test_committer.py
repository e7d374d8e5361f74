"""The committer over a log that it shares with others: each client gets its own reply, every state is the same."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest

from headwater.log.seam import CommandLog
from headwater.node.committer import (
    BATCH_BYTES_MAX,
    BATCH_COMMANDS_MAX,
    OVERLAP_COMMANDS_MIN,
    Committer,
    ask,
)
from headwater.node.metrics import Metrics
from headwater.node.reads.tails import Shared, Tails
from headwater.protocol.producers import Producer
from headwater.protocol.refusals import Code, Refusal
from headwater.streams.batches import Batch, encode
from headwater.streams.commands import Command
from headwater.streams.commands.streams import Append, Create, Delete, SetAttrs
from headwater.streams.images import image_of
from headwater.streams.replies import Appended, Created, Deleted, Duplicate, Reply
from headwater.streams.state import State

from ..doubles.shared_log import SharedLog

LOG_ID = "9f2c"
TEXT = "text/plain"


class Replica:
    """A state and its committer on one end of a log."""

    def __init__(self, command_log: CommandLog) -> None:
        self.state, self.tails, self.metrics = State(LOG_ID), Tails(), Metrics()
        self.failures: list[BaseException] = []
        self.foreign: list[tuple[Command, Reply]] = []
        self.committer = Committer(
            self.state, command_log, self.tails, self.metrics, now=lambda: 0, on_failure=self.failures.append
        )
        self.committer.on_foreign = lambda commands, replies: self.foreign.extend(zip(commands, replies, strict=True))

    async def ask(self, command: Command) -> Reply:
        return await asyncio.wait_for(ask(self.committer.submit, command), 10)


class Waiter:
    """A live reader that counts how often it is woken."""

    wakes = 0

    def wake(self, shared: Shared) -> None:
        self.wakes += 1


@asynccontextmanager
async def replicas(log: SharedLog, count: int) -> AsyncIterator[list[Replica]]:
    """Replicas on one log, started."""
    proposers = [log.proposer() for _ in range(count)]
    started = [Replica(proposer) for proposer in proposers]
    for replica in started:
        replica.committer.start()
    yield started
    for proposer in proposers:
        proposer.close()
    await asyncio.sleep(0)
    assert [replica.failures for replica in started] == [[]] * count


def append(name: str, payload: bytes) -> Append:
    return Append(name, payload, content_type=TEXT)


def test_two_nodes_on_one_log_answer_their_own_clients_and_have_the_same_state() -> None:
    async def client(replica: Replica, name: str, count: int) -> list[Reply]:
        """One client: the offsets that it is answered are the ends of what it appended to its own stream."""
        replies = [await replica.ask(Create(name, TEXT))]
        for number in range(count):
            replies.append(await replica.ask(append(name, b"x" * (number + 1))))
        return replies

    async def main() -> None:
        async with replicas(SharedLog(LOG_ID), 2) as (first, second):
            clients = {
                f"{side}-{number}": replica for number in range(20) for side, replica in enumerate((first, second))
            }
            answers = await asyncio.gather(*(client(replica, name, 30) for name, replica in clients.items()))
            for created, *appended in answers:
                assert isinstance(created, Created)
                assert [reply.next_offset for reply in appended if isinstance(reply, Appended)] == [
                    number * (number + 1) // 2 for number in range(1, 31)
                ]
            assert first.state.position == second.state.position == 40 * 31
            assert image_of(first.state) == image_of(second.state)
            assert len(first.foreign) == len(second.foreign) == 20 * 31

    asyncio.run(main())


def test_a_node_counts_the_duplicates_that_it_answers_and_no_others() -> None:
    async def main() -> None:
        async with replicas(SharedLog(LOG_ID), 2) as (first, second):
            await first.ask(Create("a", TEXT))
            once = Append("a", b"x", content_type=TEXT, producer=Producer("p", 0, 0))
            replies = [await first.ask(once), await first.ask(once), await second.ask(once), await second.ask(once)]
            assert [type(reply) for reply in replies] == [Appended, Duplicate, Duplicate, Duplicate]
            # What is refused is no duplicate, although it has the number of one.
            assert isinstance(await first.ask(msgspec.structs.replace(once, payload=b"y")), Refusal)
            assert (first.metrics.producer_duplicates, second.metrics.producer_duplicates) == (1, 2)

    asyncio.run(main())


def test_of_two_nodes_that_create_one_stream_at_once_one_is_answered_that_it_exists() -> None:
    async def main() -> None:
        log = SharedLog(LOG_ID)
        async with replicas(log, 2) as (first, second):
            log.hold()
            both = asyncio.gather(first.ask(Create("a", TEXT)), second.ask(Create("a", "text/html")))
            while log.in_flight < 2:
                await asyncio.sleep(0)
            log.release()
            won, lost = await both
            assert isinstance(won, Created)
            assert isinstance(lost, Refusal)
            assert lost.code is Code.STREAM_EXISTS
            assert image_of(first.state) == image_of(second.state)

    asyncio.run(main())


def test_a_foreign_batch_answers_no_client_and_wakes_live_readers() -> None:
    async def main() -> None:
        log, answered = SharedLog(LOG_ID), list[Reply]()
        async with replicas(log, 2) as (first, second):
            await second.ask(Create("a", TEXT))
            waiter = Waiter()
            first.tails.watch("a", waiter)
            log.hold()
            await _until_in_flight(log, 1, second, append("a", b"theirs"))
            first.committer.submit(append("a", b"ours"), answered.append)
            # Their batch was sent first, so it comes back first, while ours is in flight.
            while log.in_flight < 2:
                await asyncio.sleep(0)
            log.release()
            while len(answered) < 1:
                await asyncio.sleep(0)
            assert waiter.wakes == 2
            assert [reply.next_offset for reply in answered if isinstance(reply, Appended)] == [len(b"theirsours")]
            assert first.metrics.batch_commands.count == 1, "commits of other nodes are counted by them"
            assert first.committer.idle

    asyncio.run(main())


async def _until_in_flight(log: SharedLog, count: int, replica: Replica, *commands: Command) -> None:
    """Submit commands and wait until the held log has this many batches."""
    for command in commands:
        replica.committer.submit(command, lambda _: None)
    while log.in_flight < count:
        await asyncio.sleep(0)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_as_many_batches_are_in_flight_as_the_log_allows_and_each_answers_its_own_waiters(depth: int) -> None:
    async def main() -> None:
        log, answered = SharedLog(LOG_ID, depth), list[tuple[int, Reply]]()
        async with replicas(log, 1) as (only,):
            await only.ask(Create("a", TEXT))
            log.hold()
            for turn in range(5):
                for number in range(OVERLAP_COMMANDS_MIN):
                    index = turn * OVERLAP_COMMANDS_MIN + number
                    only.committer.submit(
                        append("a", b"x"),
                        lambda reply, index=index: answered.append((index, reply)),  # type: ignore[misc]
                    )
                await asyncio.sleep(0)
            assert log.in_flight == depth
            log.release()
            while not only.committer.idle:
                await asyncio.sleep(0)
            offsets = [reply.next_offset for _, reply in answered if isinstance(reply, Appended)]
            assert [index for index, _ in answered] == list(range(5 * OVERLAP_COMMANDS_MIN))
            assert offsets == list(range(1, 5 * OVERLAP_COMMANDS_MIN + 1))

    asyncio.run(main())


def test_few_commands_wait_for_the_batch_in_flight_also_where_several_may_be() -> None:
    async def main() -> None:
        log = SharedLog(LOG_ID, 4)
        async with replicas(log, 1) as (only,):
            await only.ask(Create("a", TEXT))
            log.hold()
            await _until_in_flight(log, 1, only, append("a", b"first"))
            for _ in range(OVERLAP_COMMANDS_MIN - 1):
                only.committer.submit(append("a", b"x"), lambda _: None)
                await asyncio.sleep(0)
            assert log.in_flight == 1
            only.committer.submit(append("a", b"x"), lambda _: None)
            await asyncio.sleep(0)
            assert log.in_flight == 2
            log.release()
            while not only.committer.idle:
                await asyncio.sleep(0)
            assert log.position == 2 + OVERLAP_COMMANDS_MIN

    asyncio.run(main())


@pytest.mark.parametrize("ticket", [1, 99])
def test_a_batch_that_cannot_be_matched_with_its_waiters_ends_the_server(ticket: int) -> None:
    async def main() -> None:
        log, answered = SharedLog(LOG_ID), list[Reply]()
        log.hold()
        proposer = log.proposer()
        only = Replica(proposer)
        only.committer.start()
        only.committer.submit(Create("a", TEXT), answered.append)
        while not log.in_flight:
            await asyncio.sleep(0)
        # A ticket that was never given out, or the right one with another number of commands.
        only.committer.deliver(Batch(1, 0, [Create("a", TEXT), Create("b", TEXT)]), ticket)
        assert len(only.failures) == 1
        assert answered == []
        assert only.state.position == 0

    asyncio.run(main())


def test_a_waiter_that_fails_does_not_keep_others_from_their_replies(caplog: pytest.LogCaptureFixture) -> None:
    def fail(reply: Reply) -> None:
        raise RuntimeError("a bug")

    async def main() -> None:
        async with replicas(SharedLog(LOG_ID), 1) as (only,):
            only.committer.submit(Create("a", TEXT), fail)
            assert isinstance(await only.ask(append("a", b"x")), Appended)

    asyncio.run(main())
    assert "a reply could not be delivered" in caplog.text


@pytest.mark.parametrize(("count", "attrs"), [(2_000, b"{" + b" " * 16_000 + b"}"), (BATCH_COMMANDS_MAX + 1, b"{}")])
def test_no_batch_is_larger_than_a_log_can_take_whatever_its_commands_are(count: int, attrs: bytes) -> None:
    async def main() -> None:
        log = SharedLog(LOG_ID)
        async with replicas(log, 1) as [replica]:
            await replica.ask(Create("b/s", TEXT))
            replies = await asyncio.gather(*(replica.ask(SetAttrs("b/s", attrs)) for _ in range(count)))
            assert len(replies) == count
            for batch in log.decided(0):
                assert len(encode(batch.at, batch.commands)) <= BATCH_BYTES_MAX
                assert len(batch.commands) <= BATCH_COMMANDS_MAX

    asyncio.run(main())


def test_a_deletion_that_is_given_back_is_not_sent_again_behind_later_writes_on_its_stream() -> None:
    async def main() -> None:
        log = SharedLog(LOG_ID)
        async with replicas(log, 1) as [replica]:
            for name in ("a", "b"):
                await replica.ask(Create(name, TEXT, payload=b"old"))
            log.hold()
            asked: list[Command] = [append("c", b"x"), Delete("a"), Delete("b")]
            first = [asyncio.create_task(replica.ask(command)) for command in asked]
            await asyncio.sleep(0.01)
            later = [append("a", b"%d" % number) for number in range(OVERLAP_COMMANDS_MIN)]
            second = [asyncio.create_task(replica.ask(command)) for command in later]
            await asyncio.sleep(0.01)
            assert log.in_flight == 2
            log.give_back_first()
            log.release()
            replies = [await one for one in first]
            assert [refused(reply) for reply in replies] == [Code.OVERLOADED, Code.OVERLOADED, None]
            assert isinstance(replies[2], Deleted), "nothing on that stream is in flight, so it is sent again"
            assert {type(await one) for one in second} == {Appended}
            assert "a" in replica.state.streams, "what was acknowledged after the deletion is there"

    asyncio.run(main())


def refused(reply: Reply) -> Code | None:
    return reply.code if isinstance(reply, Refusal) else None
