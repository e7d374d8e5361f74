"""Processes of a server with workers are killed under load, one by one and all at once; nothing acknowledged is lost.

TESTS_CRASH_CYCLES sets how often, TESTS_CRASH_SEED the random choices; the timing is not reproducible.
"""

import os
import time
from collections import Counter
from pathlib import Path
from random import Random
from threading import Thread

import pytest

from headwater.testing import running_server

from ..cli.fleets import Fleet, is_alive
from ..http.processes import eventually
from .buckets import Estate
from .ledger import Ledger
from .snapshot_checks import check_blobs_are_gone
from .test_kill import FLAGS, KINDS, SEED, check_all, delete_all, make_writers
from .writers import Writer

pytestmark = pytest.mark.crash

KILLS = int(os.environ.get("TESTS_CRASH_CYCLES", "8"))
LOAD_SECONDS = 1.3
VICTIMS = ("worker", "keeper", "sequencer", "all", "supervisor")
EXPECTED = ("is restarted", "connection to the sequencer was lost", "the supervisor has died")
"""Complaints that a killed process causes."""


class Load:
    """All writers, each in a thread that ends with its connection."""

    def __init__(self, writers: list[Writer]) -> None:
        self._writers = writers
        self._threads: dict[str, Thread] = {}

    def start(self, url: str) -> None:
        """Start every writer that does not work at the moment."""
        for writer in self._writers:
            thread = self._threads.get(writer.identity)
            if thread is None or not thread.is_alive():
                self._threads[writer.identity] = writer.start(url)

    @property
    def working(self) -> int:
        return sum(thread.is_alive() for thread in self._threads.values())

    def join(self) -> None:
        """Wait until all have lost their connections; raise what any of them has found."""
        for thread in self._threads.values():
            thread.join()
        for writer in self._writers:
            if writer.error is not None:
                raise writer.error


def victims_of(fleet: Fleet, kind: str, random: Random) -> list[str]:
    """The processes to kill."""
    if kind == "worker":
        return [random.choice(fleet.workers())]
    if kind == "keeper":
        return [fleet.status()["keeper"] or "w0"]
    return ["sequencer"]


def kill_one(fleet: Fleet, load: Load, kind: str, workers: int, random: Random) -> None:
    """Kill a process under load, and wait until the server is whole again."""
    time.sleep(random.uniform(0.2, 1.0) * LOAD_SECONDS)
    for name in victims_of(fleet, kind, random):
        fleet.kill(name)
    fleet.wait_until_whole(workers)
    load.start(fleet.url)
    assert eventually(lambda: load.working > 0)


def end(fleet: Fleet, kind: str, random: Random) -> None:
    """Kill everything under load: at once, or by the death of the supervisor."""
    pids = fleet.pids()
    time.sleep(random.uniform(0.2, 1.0) * LOAD_SECONDS)
    if kind == "supervisor":
        fleet.server.kill()
        assert eventually(lambda: not any(map(is_alive, pids.values())), 10), "children outlive their supervisor"
    else:
        fleet.kill_all(pids)


def check_output(fleet: Fleet) -> None:
    """The processes report nothing but what the kills explain."""
    lines = fleet.server.output().splitlines()
    worst = [line for line in lines if any(word in line for word in ("ERROR", "CRITICAL", "Traceback"))]
    complaints = [line for line in worst if not any(words in line for words in EXPECTED)]
    assert not complaints, fleet.server.output()


def test_nothing_acknowledged_is_lost_when_processes_of_a_server_are_killed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    random, data = Random(SEED), tmp_path / "data"
    ledger, estate = Ledger(KINDS), Estate()
    load = Load(make_writers(ledger, estate, random))
    kills: Counter[str] = Counter()
    checked: Counter[str] = Counter()
    order = [VICTIMS[number % len(VICTIMS)] for number in range(KILLS)]
    random.shuffle(order)
    started = time.monotonic()
    try:
        while order:
            workers = random.choice((2, 2, 3))
            ledger.trims = random.random() < 0.5
            flush_bytes = random.choice((20_000, 100_000, 64 << 20))
            flags = ("--retention", "snapshot" if ledger.trims else "explicit", "--flush-bytes-max", str(flush_bytes))
            with running_server(*FLAGS, *flags, "--workers", str(workers), data=data) as server:
                fleet = Fleet(server, data)
                fleet.wait_until_whole(workers)
                checked += check_all(server, ledger, estate, data)
                load.start(server.url)
                while order and order[-1] not in ("all", "supervisor"):
                    kind = order.pop()
                    kill_one(fleet, load, kind, workers, random)
                    kills[kind] += 1
                kind = order.pop() if order else "all"
                end(fleet, kind, random)
                kills[kind] += 1
                load.join()
                check_output(fleet)
        for workers in (1, 3):
            with running_server(*FLAGS, "--workers", str(workers), data=data) as server:
                checked += check_all(server, ledger, estate, data)
                assert server.stop() == 0, server.output()
        with running_server(*FLAGS, "--workers", "2", data=data) as server:
            delete_all(server, ledger)
            check_blobs_are_gone(ledger, data / "snapshots")
    finally:
        with capsys.disabled():
            seconds = time.monotonic() - started
            print(
                f"\n{dict(kills)} killed in {seconds:.0f} s (seed {SEED}): {ledger.appends_acknowledged} appends were"
                f" acknowledged; {checked['appends']} of them and {checked['reads']} reads were checked."
            )
