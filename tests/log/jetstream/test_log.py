"""The log on one NATS server: following, barriers, room, purging, clocks."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
import uvloop

from headwater.log.jetstream import health, streams
from headwater.log.jetstream.judging import CHECKPOINT_MESSAGES
from headwater.log.jetstream.log import JetStreamLog
from headwater.log.jetstream.pulses import PULSE_SECONDS
from headwater.log.jetstream.streams import LogBehind, LogChanged
from headwater.log.seam import MemberLog
from headwater.node.clock import Clock
from headwater.streams.commands.streams import Append

from .nodes import Cluster, Node, until


def run(nodes: list[Node], use: Callable[[], Awaitable[None]]) -> None:
    """Start nodes that are each other's members, use them, and stop them."""

    async def main() -> None:
        for node in nodes:
            node.start()
            node.log.members = dict(node.member for node in nodes)
        others = len(nodes) - 1
        await until(lambda: all(len(node.log.peers) == others for node in nodes))
        await use()
        for node in nodes:
            await node.stop()

    # The loop of the server.
    uvloop.run(main())


@pytest.fixture
def pair(cluster: Cluster) -> list[Node]:
    return [Node(cluster.open(node=name)) for name in ("n1", "n2")]


@pytest.fixture
def trio(cluster: Cluster) -> list[Node]:
    return [Node(cluster.open(node=name)) for name in ("n1", "n2", "n3")]


def deaf(node: Node) -> None:
    """From now on this node misses every message that is republished."""
    subject = node.log.config.subject("decided")
    subscriptions = node.log._client._subscriptions
    for sid, (found, _) in list(subscriptions.items()):
        if found == subject:
            subscriptions[sid] = (found, lambda message: None)


# -- Following ---------------------------------------------------------------------------------------------------------


def test_messages_that_were_missed_in_silence_are_fetched(pair: list[Node]) -> None:
    ours, theirs = pair

    async def use() -> None:
        deaf(ours)
        for number in range(20):
            await theirs.append([Append("a", b"%d" % number)])
        await until(lambda: len(ours.batches) == 20)

    run(pair, use)
    assert ours.batches == theirs.batches
    assert ours.log.follower.fetched == 20


def test_a_proposer_that_misses_its_own_messages_is_answered_all_the_same(pair: list[Node]) -> None:
    ours, _ = pair

    async def use() -> None:
        deaf(ours)
        await ours.append([Append("a", b"x")])

    run(pair, use)
    assert ours.tickets == [1]


def test_a_large_command_is_delivered_whole_to_every_node_and_small_ones_pass_it(pair: list[Node]) -> None:
    ours, theirs = pair
    large = bytes(range(256)) * 12_000

    async def use() -> None:
        slow = ours.append([Append("large", large)])
        await ours.append([Append("small", b"x")])
        await slow
        await until(lambda: len(theirs.batches) == 2)

    run(pair, use)
    assert ours.batches == theirs.batches
    assert [batch.commands for batch in theirs.batches] == [[Append("small", b"x")], [Append("large", large)]]


def test_a_foreign_message_in_the_stream_is_skipped_by_all(pair: list[Node]) -> None:
    ours, theirs = pair

    async def use() -> None:
        ours.log._client.publish(ours.log.config.subject("log"), b"nonsense")
        await theirs.append([Append("a", b"x")])
        await until(lambda: all(node.log.applied == 2 for node in pair))

    run(pair, use)
    assert ours.batches == theirs.batches
    assert ours.log._judge.invalid == theirs.log._judge.invalid == 1


def test_checkpoints_are_compared_and_a_difference_is_an_outage(pair: list[Node]) -> None:
    ours, theirs = pair

    async def use() -> None:
        while ours.log.applied < CHECKPOINT_MESSAGES:
            await asyncio.gather(*(ours.append([Append("a", b"x")]) for _ in range(32)))
        await until(lambda: theirs.log.applied == ours.log.applied)
        checkpoint = ours.log._judge.checkpoint
        await until(lambda: ours.log.peers["n2"].checkpoint == checkpoint)
        assert ours.log.outage is None
        theirs.log._judge.checkpoint = checkpoint._replace(chain=checkpoint.chain ^ 1)
        await until(lambda: ours.log.outage is not None)
        assert "The nodes n1 and n2 differ" in str(ours.log.outage)

    run(pair, use)


# -- Barriers ----------------------------------------------------------------------------------------------------------


def test_a_barrier_waits_for_what_another_member_has_applied(trio: list[Node]) -> None:
    ours, theirs, _ = trio

    async def use() -> None:
        deaf(ours)
        for number in range(30):
            await theirs.append([Append("a", b"%d" % number)])
            assert await ours.barrier()
            assert len(ours.batches) == number + 1

    run(trio, use)
    assert ours.log.liveness.barriers.asked > 0


def test_with_a_silent_member_the_barrier_goes_through_the_log(trio: list[Node]) -> None:
    ours, theirs, silent = trio

    async def use() -> None:
        await ours.barrier()
        asked = ours.log.liveness.barriers.asked
        silent.log._timer.cancel()  # No pulses any more,
        silent.log._client.switch("test")  # nor answers.
        silent.log._client._addresses = []
        deaf(ours)
        for number in range(10):
            await theirs.append([Append("a", b"%d" % number)])
            assert await ours.barrier()
            assert len(ours.batches) == number + 1
        assert ours.log.liveness.barriers.through_log > 0
        assert ours.log.liveness.barriers.asked <= asked + 10

    async def main() -> None:
        for node in trio:
            node.start()
            node.log.members = dict(node.member for node in trio)
        await until(lambda: all(len(node.log.peers) == 2 for node in trio))
        await use()
        await ours.stop()
        await theirs.stop()
        silent.log._client._task.cancel()  # type: ignore[union-attr]

    asyncio.run(main())


def test_an_answer_of_a_former_process_of_a_member_does_not_count(pair: list[Node]) -> None:
    ours, theirs = pair

    async def use() -> None:
        ours.log.members = {**ours.log.members, "n2": "another session"}
        before = ours.log.liveness.barriers.asked
        assert await ours.barrier()
        assert ours.log.liveness.barriers.asked == before
        assert ours.log.liveness.barriers.through_log == 1

    run(pair, use)
    assert theirs.batches == []


def test_without_known_members_a_barrier_goes_through_the_log(cluster: Cluster) -> None:
    ours, theirs = Node(cluster.open()), Node(cluster.open())

    async def main() -> None:
        ours.start()
        theirs.start()
        for number in range(10):
            await theirs.append([Append("a", b"%d" % number)])
            assert await ours.barrier()
            assert len(ours.batches) == number + 1
        await ours.stop()
        await theirs.stop()

    asyncio.run(main())


def test_the_only_member_asks_the_log_because_it_may_have_been_evicted(cluster: Cluster) -> None:
    node = Node(cluster.open())

    async def use() -> None:
        sequence = node.log.applied
        assert await node.barrier()
        assert node.log.applied == sequence + 1

    run([node], use)


def test_concurrent_readers_share_a_barrier(pair: list[Node]) -> None:
    ours, _ = pair

    async def use() -> None:
        before = ours.log.liveness.barriers.asked + ours.log.liveness.barriers.through_log
        assert all(await asyncio.gather(*(ours.barrier() for _ in range(100))))
        after = ours.log.liveness.barriers.asked + ours.log.liveness.barriers.through_log
        assert after - before == 1

    run(pair, use)


# -- Room and purging --------------------------------------------------------------------------------------------------


def test_a_nearly_full_log_has_no_room_until_it_is_purged(cluster: Cluster) -> None:
    node = Node(cluster.open(log_bytes_max=2_000_000))

    async def use() -> None:
        while node.log.has_room:
            await node.append([Append("a", b"x" * 100_000)])
        assert "full" in node.log.shortage
        node.log.mark()
        position = node.batches[-1].last_position
        await node.append([Append("a", b"a small command still fits")])
        node.log.forget(position)
        await until(lambda: node.log.has_room)

    run([node], use)
    with pytest.raises(LogBehind):
        list(cluster.open().replay(0))


def test_a_full_log_loses_nothing_and_continues_once_it_is_purged(cluster: Cluster) -> None:
    node = Node(cluster.open(log_bytes_max=1_000_000))

    async def use() -> None:
        waiting = [node.append([Append("a", b"%d" % number + b"x" * 100_000)]) for number in range(12)]
        await until(lambda: len(node.batches) >= 8)
        await asyncio.sleep(0.2)
        assert not waiting[-1].done()
        position = node.batches[-1].last_position
        node.log.mark()
        node.log.forget(position)
        await asyncio.gather(*waiting)

    run([node], use)
    payloads = [one.payload[:2] for batch in node.batches for one in batch.commands]  # type: ignore[attr-defined]
    assert payloads == [b"%d" % number + b"x" * (number < 10) for number in range(12)]


def test_what_an_image_needs_is_not_purged(cluster: Cluster) -> None:
    node = Node(cluster.open())
    marks: list[tuple[int, bytes]] = []

    async def use() -> None:
        for number in range(10):
            await node.append([Append("a", b"%d" % number)])
            # Messages without commands follow, which do not change the position.
            node.log.members = {}
            assert await node.barrier()
            marks.append((node.batches[-1].last_position, node.log.mark()))
            assert await node.barrier()
        node.log.forget(marks[4][0])
        await until(lambda: not node.log._housekeeping)
        await asyncio.sleep(0.05)

    run([node], use)
    position, mark = marks[4]
    assert list(cluster.open(mark).replay(position)) == node.batches[5:]
    with pytest.raises(LogBehind):
        list(cluster.open(marks[3][1]).replay(marks[3][0]))


# -- Failures ----------------------------------------------------------------------------------------------------------


def test_a_node_that_is_left_behind_by_a_purge_fails(cluster: Cluster) -> None:
    failures: list[BaseException] = []
    lagging = Node(cluster.open(on_failure=failures.append))
    node = Node(cluster.open())

    async def main() -> None:
        node.start()
        for number in range(10):
            await node.append([Append("a", b"%d" % number)])
        node.log.mark()
        node.log.forget(10)
        await until(lambda: not node.log._housekeeping)
        await asyncio.sleep(0.1)
        lagging.start()
        await until(lambda: bool(failures))
        assert lagging.log.outage is not None
        await lagging.stop()
        await node.stop()

    asyncio.run(main())
    assert isinstance(failures[0], LogBehind)


def test_a_stream_that_has_lost_acknowledged_messages_ends_the_node(cluster: Cluster) -> None:
    failures: list[BaseException] = []
    node = Node(cluster.open(on_failure=failures.append))

    async def main() -> None:
        node.start()
        for number in range(10):
            await node.append([Append("a", b"%d" % number)])
        config, client = node.log.config, node.log._client
        await streams.call(client, f"STREAM.DELETE.{config.stream}")
        await streams.create(client, config, streams.configuration(config, node.log.log_id, 1_000_000, 1))
        node.append([Append("a", b"y")])
        await until(lambda: bool(failures))
        await node.stop()

    asyncio.run(main())
    assert isinstance(failures[0], LogChanged)


def test_a_node_without_nats_is_out_of_order_and_heals(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "LOST_SECONDS", 0.2)
    node = Node(cluster.open())

    async def use() -> None:
        addresses = node.log._client._addresses
        node.log._client._addresses = [addresses[0]._replace(port=1)]
        node.log._client.switch("test")
        await until(lambda: node.log.outage is not None)
        assert not await node.barrier()
        waiting = node.append([Append("a", b"x")])
        node.log._client._addresses = addresses
        await waiting
        await until(lambda: node.log.outage is None)

    run([node], use)


# -- Clocks ------------------------------------------------------------------------------------------------------------


def test_a_clock_is_behind_by_the_log_and_ahead_by_the_other_nodes(cluster: Cluster) -> None:
    hour = 3_600_000_000
    now = Clock().now
    right = [Node(cluster.open(node=name)) for name in ("n1", "n2")]
    ahead = Node(cluster.open(node="n3", clock=lambda: now() + hour))
    behind = Node(cluster.open(node="n4", clock=lambda: now() - hour))

    async def use() -> None:
        await right[0].append([Append("a", b"x")])
        await until(lambda: behind.log.applied == 1)
        await until(lambda: abs(ahead.log.clock_offset_us() - hour) < 2_000_000)
        await until(lambda: abs(behind.log.clock_offset_us() + hour) < 2_000_000)
        assert all(abs(node.log.clock_offset_us()) < 2_000_000 for node in right)

    run([*right, ahead, behind], use)


def test_a_log_that_was_idle_for_a_night_makes_nobody_ahead(cluster: Cluster) -> None:
    night = 8 * 3_600_000_000
    first = Node(cluster.open())

    async def before() -> None:
        await first.append([Append("a", b"x")], at=Clock().now() - night)

    run([first], before)
    nodes = [Node(cluster.open()), Node(cluster.open())]

    async def after() -> None:
        await asyncio.sleep(2 * PULSE_SECONDS)
        assert all(abs(node.log.clock_offset_us()) < 2_000_000 for node in nodes)
        await nodes[0].append([Append("a", b"y")])

    run(nodes, after)


def test_a_log_is_a_command_log_with_members(cluster: Cluster) -> None:
    log: MemberLog = cluster.open()
    assert isinstance(log, JetStreamLog)
