"""Reads stay fresh while a member of the cluster, a process of its own, is paused."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from headwater.log.jetstream.barriers import SILENT_SECONDS
from headwater.streams.commands.streams import Append

from .nodes import Cluster, Node, until

MEMBER = """
import asyncio, sys
from headwater.log.jetstream.identity import Established
from headwater.log.jetstream.log import JetStreamLog
from headwater.log.jetstream.streams import ClusterConfig, StreamInfo
from headwater.node.clock import Clock

urls, name, log_id = sys.argv[1:]

async def main():
    config = ClusterConfig(urls.split(","), name, 0, "n3", "n3#1")
    log = JetStreamLog(config, Established(log_id, StreamInfo()), clock=Clock().now)
    for batch in log.replay(0):
        pass
    log.start(lambda batch, ticket: None, lambda ticket: None)
    await asyncio.sleep(60)

asyncio.run(main())
"""


@contextmanager
def member(cluster: Cluster, log_id: str) -> Iterator[subprocess.Popen[bytes]]:
    """One more node, in a process."""
    process = subprocess.Popen([sys.executable, "-c", MEMBER, cluster.servers.url, cluster.name, log_id])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_a_barrier_is_fresh_whether_a_member_answers_or_is_paused(cluster: Cluster) -> None:
    ours, theirs = Node(cluster.open(node="n1")), Node(cluster.open(node="n2"))

    async def check(number: int) -> None:
        await theirs.append([Append("a", b"%d" % number)])
        assert await ours.barrier()
        assert [one.payload for one in ours.batches[-1].commands] == [b"%d" % number]  # type: ignore[attr-defined]

    async def main(process: subprocess.Popen[bytes]) -> None:
        barriers = ours.log.liveness.barriers
        for node in (ours.start(), theirs.start()):
            node.log.members = dict([ours.member, theirs.member, ("n3", "n3#1")])
        await until(lambda: set(ours.log.peers) == {"n2", "n3"})
        for number in range(20):
            await check(number)
        assert barriers.asked > 0

        process.send_signal(signal.SIGSTOP)
        through_log = barriers.through_log
        await check(20)
        assert barriers.through_log > through_log, "no answer in time"
        await until(lambda: not ours.log.liveness.peers.heard_within("n3", "n3#1", SILENT_SECONDS))
        asked = barriers.asked
        for number in range(21, 40):
            await check(number)
        assert barriers.asked == asked, "a silent member is not asked"

        process.send_signal(signal.SIGCONT)
        await until(lambda: ours.log.liveness.peers.heard_within("n3", "n3#1", SILENT_SECONDS))
        await until(lambda: ours.log.peers["n3"].applied >= ours.log.applied)
        for number in range(40, 60):
            await check(number)
        assert barriers.asked > asked
        await ours.stop()
        await theirs.stop()

    with member(cluster, ours.log.log_id) as process:
        asyncio.run(main(process))
