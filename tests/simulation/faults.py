"""What goes wrong in a schedule: how unreliable the network is, and what happens to nodes, NATS and the store."""

import asyncio
from collections.abc import Callable
from functools import partial
from random import Random

from ..doubles.faulty_store import FaultyStore
from .cluster import Cluster
from .nats import Leader, Odds
from .processes import Process


def choose_odds(random: Random) -> Odds:
    """How unreliable the network is in this schedule: not at all, in one way, or in all."""

    def some(most: float) -> float:
        return random.choice((0.0, 0.0, most * random.random()))

    return Odds(
        delay_seconds=random.choice((0.001, 0.004, 0.02)),
        late=some(0.1),
        overtakes=some(0.3),
        lost=some(0.05),
        unacknowledged=some(0.3),
        unrepublished=some(0.3),
        ghosts=some(0.1),
        stale=some(0.5),
    )


NODES_MAX = 6

THEMES = {
    "evictions": ("mute", "leave_behind"),
    "joins": ("stop", "join_unseen", "join_unseen"),
    "tenures": ("cut", "deafen", "slow"),
    "suspensions": ("cut", "pause", "slow"),
    "routes": ("slow", "leave_behind"),
    "elections": ("pause", "lose_leader"),
}
"""Faults that are dangerous together. More than half of all schedules have one of these themes."""


class Faults:
    """Breaks something every now and then, and heals it after a while."""

    def __init__(self, random: Random, cluster: Cluster, store: FaultyStore, process: Process, theme: str) -> None:
        self._random, self._cluster, self._store, self._process = random, cluster, store, process
        self._nats = cluster.nats
        self.happened: list[str] = []
        kinds = [
            self._kill,
            self._kill_all,
            self._stop,
            self._pause,
            self._cut,
            self._mute,
            self._deafen,
            self._reset,
            self._lose_leader,
            self._slow,
            self._leave_behind,
            self._break_store,
            self._skew,
            self._add_node,
        ]
        chosen = random.choice(list(THEMES)) if random.random() < 0.6 else ""
        theme = theme or chosen
        self._kinds: list[Callable[[], None]] = random.sample(kinds, random.randrange(1, 6))
        if theme:
            self._kinds = [getattr(self, f"_{kind}") for kind in THEMES[theme]]
        self._interval_seconds = random.choice((0.4, 0.8, 1.6))

    async def run(self, seconds: float) -> None:
        until = self._process.time() + seconds
        while self._process.time() < until:
            await asyncio.sleep(self._random.random() * 2 * self._interval_seconds)
            fault = self._random.choice(self._kinds)
            self.happened.append(f"{self._process.time():.3f} {fault.__name__}")
            fault()

    def _later(self, seconds: float, heal: Callable[[], None]) -> None:
        self._process.call_later(seconds, heal)

    def _kill(self) -> None:
        if (server := self._cluster.pick()) is not None:
            server.end()

    def _kill_all(self) -> None:
        for server in self._cluster.living:
            server.end()

    def _stop(self) -> None:
        server = self._cluster.pick()
        if server is not None and not server.process.paused and not server.stopping:
            server.stopping = True
            server.process.call_soon(lambda: server.process.create_task(server.stop()))

    def _pause(self) -> None:
        if (server := self._cluster.pick()) is not None:
            server.process.pause()
            self._later(self._duration(), server.process.resume)

    def _cut(self) -> None:
        """Everything that a node sends and should receive is lost."""
        if (server := self._cluster.pick()) is not None and (client := server.client) is not None:
            client.cut_off()
            self._later(self._duration(), client.heal)

    def _mute(self) -> None:
        """The others do not hear a node that is quite well."""
        if (server := self._cluster.pick()) is not None and (client := server.client) is not None:
            client.mute = True
            self._later(self._duration(), lambda: setattr(client, "mute", False))

    def _deafen(self) -> None:
        """A node receives nothing, but what it sends arrives."""
        if (server := self._cluster.pick()) is not None and (client := server.client) is not None:
            client.deaf = True
            self._later(self._duration(), lambda: setattr(client, "deaf", False))

    def _duration(self) -> float:
        """A moment, or about as long as it takes until others evict a node and take over its chores."""
        return self._random.choice((0.5 * self._random.random(), 1.0 + 1.5 * self._random.random()))

    def _reset(self) -> None:
        for server in self._cluster.living:
            if server.client is not None and self._random.random() < 0.5:
                server.process.call_soon(server.client.reset)

    def _lose_leader(self) -> None:
        self._nats.leader = self._random.choice((Leader.SILENT, Leader.REFUSES, Leader.KEEPS))
        keep = self._random.random() < 0.7
        seconds = self._random.choice((0.3, 2.0, 4.0)) * self._random.random()
        self._later(seconds, lambda: self._nats.elect(keep=keep))

    def _slow(self) -> None:
        """What some nodes receive, or one sends, is slow for a while; all else is not."""
        clients = [server.client for server in self._cluster.living if server.client is not None]
        ways = [client.stream for client in clients if self._random.random() < 0.6]
        if self._random.random() < 0.3 and clients:
            client = self._random.choice(clients)
            ways = [self._random.choice((client.out, client.back))]
        slowness = self._random.choice((10.0, 50.0))
        for way in ways:
            way.slowness = slowness * self._random.random()
            self._later(1.5 * self._random.random(), partial(setattr, way, "slowness", 1.0))

    def _leave_behind(self) -> None:
        """All nodes but one learn late what the log has decided: that one was muted, or has just started."""
        living = self._cluster.living
        ahead = [server for server in living if server.client is not None and server.client.mute]
        ahead = ahead or [server for server in self._cluster.started if server in living][-1:]
        if self._random.random() < 0.3 or not ahead:
            ahead = [self._random.choice(living)] if living else []
        for server in living:
            if server not in ahead and (client := server.client) is not None:
                client.stream.slowness = (0.1 + 0.3 * self._random.random()) / self._nats.odds.delay_seconds
                self._later(0.5 + 2 * self._random.random(), partial(setattr, client.stream, "slowness", 1.0))

    def _join_unseen(self) -> None:
        """A node joins, and the others learn that late."""
        for server in self._cluster.living:
            if (client := server.client) is not None:
                client.stream.slowness = (0.3 + 0.2 * self._random.random()) / self._nats.odds.delay_seconds
                self._later(1.0, partial(setattr, client.stream, "slowness", 1.0))
        self._add_node()

    def _break_store(self) -> None:
        self._store.odds = 0.3
        self._later(2 * self._random.random(), lambda: setattr(self._store, "odds", 0.0))

    def _skew(self) -> None:
        """The clock of the next process to start is far off, and stays so until that one ends."""
        self._cluster.skew_seconds = self._random.choice((0.1, 0.4, 3.0))
        if living := self._cluster.living:
            self._random.choice(living).end()

    def _add_node(self) -> None:
        name = f"n{len(self._cluster.servers)}"
        if len(self._cluster.servers) < NODES_MAX:
            self._cluster.start(name)

    def heal(self) -> None:
        """Nothing is wrong any more."""
        self._cluster.healing = True
        self._cluster.skew_seconds = 0.1
        self._store.heal()
        self._nats.odds = Odds()
        self._nats.elect(keep=True)
        for server in list(self._cluster.servers.values()):
            server.process.resume()
            if server.client is not None:
                server.client.mute = server.client.deaf = False
                for way in (server.client.out, server.client.back, server.client.stream):
                    way.slowness = 1.0
                server.client.heal()
            if abs(server.process.clock_skew_seconds) > 0.3 and not server.process.dead:
                server.end()
