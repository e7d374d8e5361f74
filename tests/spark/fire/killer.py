"""The killer: executors, Python workers, the driver and the server, one after the other, at any instant."""

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
"""Before anything else: at any instant, while executors have work, during a batch, or when some of it is written."""
PAUSE_SECONDS_MAX = 6.0
AFTER_SECONDS = (0.0, 0.0, 0.01, 0.05, 0.2, 1.0)
"""How long after it has come to what was aimed at."""
AWAY_SECONDS_MAX = 3.0
"""How long a server is away before it is started again."""
AIM_SECONDS_MAX = 180.0
"""How long it may take until there is something to kill: a driver starts, gets executors, and these start Python."""


class Killer:
    """Kills one thing at a time; each kind, and with each aim, as often as the others, in random order."""

    def __init__(self, cluster: Cluster, server: MortalServer, driver: Driver, aim: Aim, random: Random) -> None:
        self._cluster, self._server, self._driver, self._aim, self._random = cluster, server, driver, aim, random
        self._kinds: list[str] = []
        self._aims: list[str] = []
        self.kills: Counter[str] = Counter()
        self.in_a_batch = 0
        self.half_written = 0

    def strike(self) -> None:
        """Wait for some time, aim at something, and kill."""
        kind, aim = self._draw(self._kinds, KINDS), self._draw(self._aims, AIMS)
        pause(self._random.uniform(0, PAUSE_SECONDS_MAX), [self._driver])
        if aim == "work":
            self._await_work()
        elif aim != "anywhere":
            self._await_batch(written=aim == "writing")
        moment = self._aim.look()
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
        """Wait for a batch, some of it written if so wished, and then for a while that it outlasts."""
        deadline = time.monotonic() + AIM_SECONDS_MAX
        moment = None
        while moment is None or (written and not moment.written):
            came = self._aim.wait(written, self._driver.tend, deadline - time.monotonic())
            assert came, f"The pipeline does nothing:\n{self._driver.words()}"
            time.sleep(self._random.choice(AFTER_SECONDS))
            moment = self._aim.look()

    def _await_work(self) -> None:
        deadline = time.monotonic() + AIM_SECONDS_MAX
        while not self._cluster.python_workers():
            assert time.monotonic() < deadline, f"There is nothing at work to kill:\n{self._driver.words()}"
            pause(0.2, [self._driver])

    def _kill(self, kind: str) -> None:
        if kind == "server":
            self._driver.blame()
            self._server.kill()
            pause(self._random.uniform(0, AWAY_SECONDS_MAX), [self._driver])
            self._server.start()
            # Whoever asked in vain may only find out now.
            self._driver.blame()
            return
        deadline = time.monotonic() + AIM_SECONDS_MAX
        while not self._strike_at(kind):
            assert time.monotonic() < deadline, f"There is no {kind} to kill:\n{self._driver.words()}"
            pause(0.2, [self._driver])

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
        kinds = ", ".join(f"{kind} {self.kills[kind]}" for kind in KINDS)
        return (
            f"{self.kills.total()} kills ({kinds}), {self.in_a_batch} of them in a batch, {self.half_written} when it "
            "was written in part"
        )
