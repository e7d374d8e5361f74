"""The nodes of a simulated cluster: real nodes, each in a process of its own, over simulated NATS and one store."""

import asyncio
from collections.abc import Callable
from typing import Any

from headwater.log.images.objects import ObjectImages
from headwater.log.images.restoring import newest_good_image
from headwater.log.jetstream.identity import Established
from headwater.log.jetstream.log import JetStreamLog
from headwater.log.jetstream.streams import LogBehind
from headwater.node.chores.imager import ImageLimits
from headwater.node.clock import Clock
from headwater.node.cluster.keeping import NodeId
from headwater.node.cluster.membership import Profile, Standing
from headwater.node.cluster.shared_shard import SharedShard
from headwater.node.lake.parts import FlushLimits, LakeIntervals, LakeLimits
from headwater.node.node import Node
from headwater.node.shard_parts import ShardLimits, ShardParts
from headwater.storage.blobs import MemoryBlobs
from headwater.storage.store import Store, StoreFailed
from headwater.streams.apply import apply
from headwater.streams.commands.command import LEVEL
from headwater.streams.state import State

from .nats import PLACE, SimulatedClient, SimulatedNats
from .processes import Process, Scheduler

LIMITS = ShardLimits(
    ImageLimits(log_bytes=4_000, slice_seconds=-1.0, retry_seconds=1.0),
    page_bytes=200,
    lake=LakeLimits(
        flush=FlushLimits(interval_seconds=0.5, bytes_min=1, bytes_max=3_000, segment_bytes=1_000, concurrency=2),
        history_seconds=0.3,
        intervals=LakeIntervals(
            flush_check_seconds=0.3,
            flush_retry_seconds=0.5,
            catalog_check_seconds=1.5,
            compact_check_seconds=2.0,
            compact_retry_seconds=1.0,
            compact_avoid_seconds=5.0,
            sweep_check_seconds=0.5,
            orphans_check_seconds=0.4,
            read_retry_seconds=(0.0, 0.0),
        ),
    ),
)
"""Small, so that a few seconds see everything that a real server does in hours."""


class SimulatedClock(Clock):
    """The wall clock of a process."""

    def __init__(self, process: Process) -> None:
        self.now = process.clock_us  # type: ignore[method-assign]


class NameTaken(Exception):
    """A process ended because another one had joined under its name."""


class Server:
    """One process of a cluster, from its start to its end."""

    def __init__(self, process: Process, name: str, nats: SimulatedNats, store: Store, *, has_lake: bool) -> None:
        self.process, self.name = process, name
        self._nats, self._store, self._has_lake = nats, store, has_lake
        self.node: Node | None = None
        self.log: JetStreamLog | None = None
        self.ended_because: BaseException | None = None
        self.on_end: Callable[[], None] = lambda: None
        self.stopping = False
        """Whether it was told to stop."""

    def boot(self, session: str, pause_seconds: float) -> None:
        """Start as `headwater serve --cluster` does: newest image, then the log behind it, then serve."""
        images = ObjectImages(self._store, self._nats.log_id)
        try:
            restored = newest_good_image(images)
        except StoreFailed as error:
            self._failed(error)
            return
        # Reading an image takes a while, in which the log goes on, and may be purged.
        self.process.call_later(pause_seconds, self._follow, session, images, restored)

    def _follow(self, session: str, images: ObjectImages, restored: Any) -> None:
        state = State(self._nats.log_id) if restored is None else restored.state
        clock = SimulatedClock(self.process)
        mark = b"" if restored is None else restored.mark
        log = JetStreamLog(
            PLACE._replace(node=self.name, session=session),
            Established(self._nats.log_id, self._nats.info()),
            mark,
            clock=clock.now,
            on_failure=self._failed,
        )
        try:
            for batch in log.replay(state.position):
                apply(state, batch)
        except LogBehind as error:
            self._failed(error)
            return
        node_id = NodeId(self.name, session)
        parts = ShardParts(state, log, images, MemoryBlobs(), node_id)
        self.node, self.log = (
            Node([parts], limits=LIMITS, clock=clock, store=self._store if self._has_lake else None),
            log,
        )
        shard = self.shard
        shard.join(Profile(node_id, f"{self.name}:4437", LEVEL), log)
        assert shard.membership is not None
        shard.membership._end = lambda reason: self._failed(NameTaken(reason))
        self.node.start()

    def _failed(self, error: BaseException) -> None:
        self.ended_because = error
        self.end()

    def end(self) -> None:
        self.process.kill()
        self.on_end()

    @property
    def shard(self) -> SharedShard:
        assert self.node is not None, "the node has not started yet"
        shard = self.node.only
        assert isinstance(shard, SharedShard)
        return shard

    @property
    def client(self) -> SimulatedClient | None:
        """Its connection to NATS."""
        return next((client for client in self._nats.clients if client.process is self.process), None)

    @property
    def serves(self) -> bool:
        """Whether it answers clients."""
        if self.node is None or self.process.dead or self.stopping:
            return False
        membership = self.shard.membership
        return membership is not None and membership.standing is Standing.SERVING and self.node.outage is None

    async def stop(self) -> None:
        """Stop as SIGTERM does."""
        if self.node is not None:
            await self.node.stop()
            if self.log is not None and self.log.closing is not None:
                await asyncio.wait([self.log.closing])
        self.end()


class Cluster:
    """Servers by their names; one that ends is started again, under the same name."""

    def __init__(self, scheduler: Scheduler, nats: SimulatedNats, store: Store, *, has_lake: bool) -> None:
        self._scheduler, self.nats, self.store, self._has_lake = scheduler, nats, store, has_lake
        self._random = scheduler.random
        self.servers: dict[str, Server] = {}
        self.started: list[Server] = []
        """All that ever were."""
        self.skew_seconds = 0.1
        self.restart_seconds_max = 1.5
        self.healing = False

    def start(self, name: str) -> None:
        process = Process(self._scheduler, name)
        process.clock_skew_seconds = (2 * self._random.random() - 1) * self.skew_seconds
        server = Server(process, name, self.nats, self.store, has_lake=self._has_lake)
        server.on_end = lambda: self._ended(server)
        self.servers[name] = server
        self.started.append(server)
        process.call_soon(server.boot, f"{self._random.getrandbits(64):016x}", 0.05 * self._random.random())

    def _ended(self, server: Server) -> None:
        if self.servers.get(server.name) is server:
            again = 0.1 + self._random.random() * (0.1 if self.healing else self.restart_seconds_max)
            self.nats._servers.call_later(again, self._restart, server)

    def _restart(self, ended: Server) -> None:
        if self.servers.get(ended.name) is ended:
            self.start(ended.name)

    def pick(self) -> Server | None:
        """Some server; more often than not the one that does the chores."""
        living = self.living
        keepers = [server for server in living if server.shard.chores is not None]
        if not living:
            return None
        return self._random.choice(keepers if keepers and self._random.random() < 0.6 else living)

    @property
    def living(self) -> list[Server]:
        return [server for server in self.servers.values() if not server.process.dead and server.node is not None]
