"""The killer: executors, Python workers, the driver and the server, one after the other, at any instant."""

import time
from collections import Counter
from collections.abc import Sequence
from random import Random

from .fire_drivers import Driver, pause
from .fire_server import MortalServer
from .processes import Process, kill
from .standalone import Cluster

KINDS = ("server", "driver", "executor", "python worker")
PAUSE_SECONDS_MAX = 6.0
AWAY_SECONDS_MAX = 3.0
"""How long a server is away before it is started again."""
AIM_SECONDS_MAX = 180.0
"""How long it may take until there is something to kill: a driver starts, gets executors, and these start Python."""


class Killer:
    """Kills one thing at a time; each kind as often as the others, in random order."""

    def __init__(self, cluster: Cluster, server: MortalServer, driver: Driver, random: Random) -> None:
        self._cluster, self._server, self._driver, self._random = cluster, server, driver, random
        self._deck: list[str] = []
        self.kills: Counter[str] = Counter()

    def strike(self, bystanders: Sequence[Driver] = ()) -> None:
        """Wait for some time, then kill something that is at work."""
        if not self._deck:
            self._deck = list(KINDS)
            self._random.shuffle(self._deck)
        kind = self._deck.pop()
        drivers = (self._driver, *bystanders)
        # Mostly in the midst of work, and sometimes while it only begins.
        if self._random.random() < 0.75:
            self._await_work(drivers)
        pause(self._random.uniform(0, PAUSE_SECONDS_MAX), drivers)
        self._kill(kind, drivers)
        self.kills[kind] += 1

    def _await_work(self, drivers: Sequence[Driver]) -> None:
        deadline = time.monotonic() + AIM_SECONDS_MAX
        while not self._cluster.python_workers():
            assert time.monotonic() < deadline, f"There is nothing at work to kill:\n{self._driver.words()}"
            pause(0.2, drivers)

    def _kill(self, kind: str, drivers: Sequence[Driver]) -> None:
        if kind == "server":
            for driver in drivers:
                driver.blame()
            self._server.kill()
            pause(self._random.uniform(0, AWAY_SECONDS_MAX), drivers)
            self._server.start()
            # Whoever asked in vain may only find out now.
            for driver in drivers:
                driver.blame()
            return
        deadline = time.monotonic() + AIM_SECONDS_MAX
        while not self._strike_at(kind):
            assert time.monotonic() < deadline, f"There is no {kind} to kill:\n{self._driver.words()}"
            pause(0.2, drivers)

    def _strike_at(self, kind: str) -> bool:
        """Kill one of a kind; whether there was any."""
        if kind == "driver":
            parts = self._driver.parts()
            if not parts:
                return False
            # The whole of it, or one half: then the other must find out by itself, and lives on for a while.
            return self._driver.kill(self._random.choice((parts, parts[:1], parts[-1:])))
        if kind == "executor":
            return self._strike_cluster(self._cluster.executors())
        planners, workers = self._driver.python(), self._cluster.python_workers()
        if not planners and not workers:
            return False
        if not workers or (planners and self._random.random() < 0.3):
            return self._driver.kill([self._random.choice(planners)])
        return self._strike_cluster(workers)

    def _strike_cluster(self, victims: Sequence[Process]) -> bool:
        if not victims:
            return False
        self._driver.blame()
        return bool(kill([self._random.choice(victims)], *self._cluster.worker_pids))

    def summary(self) -> str:
        return f"{self.kills.total()} kills ({', '.join(f'{kind} {self.kills[kind]}' for kind in KINDS)})"
