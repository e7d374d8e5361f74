"""The killer: kills executors, Python workers, the driver and the server, one at a time, at any instant."""

import time
from collections import Counter
from collections.abc import Sequence
from random import Random

from ..cluster.standalone import Cluster
from ..processes import Process, kill
from .aims import Aim
from .drivers import Driver, pause
from .server import MortalServer

KINDS = ("server", "driver", "executor", "python worker")
AIMS = ("anywhere", "work", "batch", "writing", "writing", "writing")
"""When to kill: at any instant, while executors have work, during a batch, or when a batch is partly written."""
PAUSE_SECONDS_MAX = 6.0
AFTER_SECONDS = (0.0, 0.0, 0.01, 0.05, 0.2, 1.0)
"""How long to wait after the chosen moment."""
OFFLINE_SECONDS_MAX = 3.0
"""How long a server stays offline before it is restarted."""
AIM_SECONDS_MAX = 180.0
"""How long it may take until there is something to kill: the driver, its executors and their Python must start."""


class Killer:
    """Kills one process at a time; every kind and every aim equally often, in random order."""

    def __init__(self, cluster: Cluster, server: MortalServer, driver: Driver, aim: Aim, random: Random) -> None:
        self._cluster, self._server, self._driver, self._aim, self._random = cluster, server, driver, aim, random
        self._kinds: list[str] = []
        self._aims: list[str] = []
        self.kills: Counter[str] = Counter()
        self.in_a_batch = 0
        self.half_written = 0

    def strike(self) -> None:
        """Wait for a while, then for the chosen moment, then kill."""
        kind, aim = self._draw(self._kinds, KINDS), self._draw(self._aims, AIMS)
        pause(self._random.uniform(0, PAUSE_SECONDS_MAX), [self._driver])
        if aim == "work":
            self._await_work()
        elif aim != "anywhere":
            self._await_batch(written=aim == "writing")
        moment = self._aim.observe()
        self._kill(kind)
        self.kills[kind] += 1
        self.in_a_batch += moment is not None
        self.half_written += moment is not None and moment.written

    def _draw(self, deck: list[str], cards: Sequence[str]) -> str:
        if not deck:
            deck += cards
            self._random.shuffle(deck)
        return deck.pop()

    def _await_batch(self, written: bool) -> None:
        """Wait for a batch, partly written if `written`, and then for a short while that it outlasts."""
        deadline = time.monotonic() + AIM_SECONDS_MAX
        moment = None
        while moment is None or (written and not moment.written):
            came = self._aim.wait(written, self._driver.tend, deadline - time.monotonic())
            assert came, f"The pipeline makes no progress:\n{self._driver.last_output()}"
            time.sleep(self._random.choice(AFTER_SECONDS))
            moment = self._aim.observe()

    def _await_work(self) -> None:
        deadline = time.monotonic() + AIM_SECONDS_MAX
        while not self._cluster.python_workers():
            assert time.monotonic() < deadline, (
                f"No worker is running that could be killed:\n{self._driver.last_output()}"
            )
            pause(0.2, [self._driver])

    def _kill(self, kind: str) -> None:
        if kind == "server":
            self._driver.excuse()
            self._server.kill()
            pause(self._random.uniform(0, OFFLINE_SECONDS_MAX), [self._driver])
            self._server.start()
            # A request that failed meanwhile may be noticed only now.
            self._driver.excuse()
            return
        deadline = time.monotonic() + AIM_SECONDS_MAX
        while not self._strike_at(kind):
            assert time.monotonic() < deadline, f"There is no {kind} to kill:\n{self._driver.last_output()}"
            pause(0.2, [self._driver])

    def _strike_at(self, kind: str) -> bool:
        """Kill one process of a kind; whether there was one."""
        if kind == "driver":
            parts = self._driver.parts()
            if not parts:
                return False
            # All of it, or only one of its two processes: the other must notice by itself, and survives for a while.
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
        self._driver.excuse()
        return bool(kill([self._random.choice(victims)], *self._cluster.worker_pids))

    def summary(self) -> str:
        kinds = ", ".join(f"{kind} {self.kills[kind]}" for kind in KINDS)
        return (
            f"{self.kills.total()} kills ({kinds}), {self.in_a_batch} of them in a batch, {self.half_written} when it "
            "was partly written"
        )
