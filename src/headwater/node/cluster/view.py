"""What one node knows about its cluster, for operators."""

import asyncio
import time
from typing import Any

import msgspec

from headwater.log.images.files import ImageDamaged
from headwater.log.seam import MarkDamaged, MemberLog
from headwater.node.cluster.shared_shard import SharedShard
from headwater.protocol.limits import SECOND_US
from headwater.storage.store import KeyMissing, StoreFailed
from headwater.streams.commands.cluster import Member


class MemberView(msgspec.Struct, frozen=True):
    """A member, as this node hears it."""

    name: str
    address: str
    applied: int | None
    known: int | None
    clock_offset_ms: int | None
    level: int
    silent_seconds: float | None
    """Since its last pulse; None if none was heard."""


class ClusterView(msgspec.Struct, frozen=True):
    """The cluster as one node sees it."""

    node: str
    standing: str
    outage: str | None
    shortage: str | None
    """What the log lacks to take writes, as one sentence; None if there is room."""
    log_id: str
    position: int
    applied: int
    known: int
    level: int
    clock_offset_ms: int
    keeper: str | None
    leader: str | None
    """The NATS server that leads the stream; None if NATS does not say."""
    replica_lag: int | None
    """How many messages the slowest replica of the stream is behind."""
    image_age_seconds: float | None
    """The age of the newest image by the log's time; None if there is none, or the store is away."""
    members: list[MemberView]
    checkpoint: dict[str, Any] | None


async def view(shard: SharedShard) -> ClusterView:
    """What this node knows now, with what NATS and the store say."""
    state, membership, digest = shard.state, shard.membership, shard.digests.latest
    assert membership is not None, "a node of a cluster is a member, or becomes one"
    log = membership.log
    engine, image_age = await asyncio.gather(log.describe(), _image_age_seconds(shard, log))
    keeper = state.cluster.keeper
    return ClusterView(
        node=shard.node.name,
        standing=membership.standing.value,
        outage=shard.outage,
        shortage=shard.shortage,
        log_id=state.log_id,
        position=state.position,
        applied=log.applied,
        known=log.known,
        level=state.cluster.level,
        clock_offset_ms=log.clock_offset_us() // 1000,
        keeper=None if keeper is None or state.now > keeper.until else keeper.node,
        leader=None if engine is None else engine.leader,
        replica_lag=None if engine is None else engine.replica_lag,
        image_age_seconds=image_age,
        members=[_member(shard, log, name, member) for name, member in sorted(state.cluster.members.items())],
        checkpoint=None if digest is None else digest._asdict(),
    )


def _member(shard: SharedShard, log: MemberLog, name: str, member: Member) -> MemberView:
    if name == shard.node.name:
        offset_ms = log.clock_offset_us() // 1000
        return MemberView(name, member.address, log.applied, log.known, offset_ms, member.level, 0.0)
    peer = log.peers.get(name)
    if peer is None:
        return MemberView(name, member.address, None, None, None, member.level, None)
    silent = round(time.monotonic() - peer.heard_at, 3)
    return MemberView(
        name, member.address, peer.applied, peer.known, peer.clock_offset_us // 1000, member.level, silent
    )


async def _image_age_seconds(shard: SharedShard, log: MemberLog) -> float | None:
    images = shard.images
    if images is None:
        return None
    try:
        loop = asyncio.get_running_loop()
        positions = await loop.run_in_executor(None, images.positions)
        if not positions:
            return None
        mark = log.read_mark(await loop.run_in_executor(None, images.mark, max(positions)))
    except (StoreFailed, KeyMissing, ImageDamaged, MarkDamaged):
        return None  # The store is away, or another node has just replaced the image.
    return round(max(shard.state.now - mark.now, 0) / SECOND_US, 1)
