"""Whenever the power fails, what was acknowledged is there, once, and nothing torn is visible."""

import asyncio
from collections import Counter
from random import Random

from ..doubles.faulty_disk import FaultyDisk
from .history import History
from .load import Load
from .machine import AIMS, Machine
from .nodes import running_node
from .seeds import all_seeds_run, for_each_seed

LIVES = 6
SCENES = [
    "at a write of N.journal",
    "at a sync of N.journal",
    "at a unlink of N.journal",
    "at a sync directory of journal",
    "at a rename of spare",
    "while a spare is made",
    "at a write of N.tmp",
    "at a sync of N.tmp",
    "at a rename of N.tmp",
    "at a unlink of N.image",
    "at a sync directory of images",
    "at a write of N-N.torn",
]
"""Where the machine must have halted at least once for these tests to mean something."""


def test_nothing_acknowledged_is_lost_or_changed_by_a_power_loss() -> None:
    halts: Counter[str] = Counter()
    survived_in_flight = 0

    def run(seed: int) -> None:
        nonlocal survived_in_flight
        machine = Machine(seed)
        for _ in range(LIVES):
            machine.live()
        machine.start()
        halts.update(machine.halts)
        survived_in_flight += machine.history.survived_in_flight

    for_each_seed(300, run)
    if all_seeds_run():
        blind = [scene for scene in SCENES if not halts[scene]]
        assert not blind, f"the machine never halted {blind}"
        assert survived_in_flight, "nothing that was in flight ever survived"


def test_a_node_with_all_its_threads_survives_power_losses() -> None:
    """The seed does not decide the order of threads, so a failure may take several attempts to reproduce."""
    acknowledged = 0

    def run(seed: int) -> None:
        nonlocal acknowledged
        random, history = Random(seed), History()
        disk, load = FaultyDisk(random), Load(random, large=False)
        for _ in range(3):
            aim = random.choice(AIMS)
            disk.halt_in(random.randrange(1, aim.steps_max + 1), aim.hits)
            try:
                asyncio.run(_work(disk, history, load))
            except OSError:
                assert disk.halted
            disk.lose_power()
        asyncio.run(_work(disk, history, load))
        acknowledged += history.acknowledged

    for_each_seed(40, run)
    assert acknowledged


async def _work(disk: FaultyDisk, history: History, load: Load) -> None:
    """Submit commands as fast as possible until the machine halts."""
    async with running_node(disk, history) as running:
        for _ in range(60):
            for command in load.batch(running.node.only.state)[1]:
                running.node.submit(command, lambda _: None)
            await asyncio.sleep(0.0005)
            if disk.halted:
                return
